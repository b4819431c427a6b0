"""The `crawl` lifecycle: crawling and ingestion, with error classes, anti-bot backoff and 24-hour idempotency."""

from holdfast.lifecycle.machine import Machine
from holdfast.lifecycle.policy import Idempotency, Policy, Treatment

_CODES = {
    Treatment.TRANSIENT: """
        network_error rate_limited browser_crash timeout_soft qdrant_unavailable neo4j_write_lock
        E_429_RATE E_5XX_ORIGIN E_TIMEOUT E_BROWSER E_QDRANT E_NEO4J E_GPU_OOM""",
    Treatment.PERMANENT: """
        invalid_url robots_disallowed parse_error_strict unsupported_mime bad_request
        E_URL_BAD E_ROBOTS E_PARSE""",
    # Anti-bot responses: back off much longer.
    Treatment.THROTTLED: "captcha 403_waf 503_shield E_403_WAF",
}

CRAWL = Machine(
    "crawl",
    about="Crawling and ingestion: seven attempts, classified errors; waiting and running jobs can be canceled.",
    words={
        "queued": "queued",
        "running": "running",
        "retrying": "retry_pending",
        "succeeded": "succeeded",
        "dead": "failed",
        "canceled": "canceled",
    },
    moves=[
        "claim:    queued, retrying -> running          by worker",
        "complete: running -> succeeded                 by worker",
        "fail:     running -> retrying, dead            by worker",
        "release:  running -> queued                    by worker, system",
        "cancel:   queued, retrying -> canceled         by client, api, system",
        "cancel:   running -> canceled                  by worker, system",
        "reap:     running -> retrying, dead, canceled  by system",
    ],
    policy=Policy(
        lease_seconds=90,
        heartbeat_seconds=10,
        max_attempts=7,
        max_runtime_seconds=300,
        errors={code: treatment for treatment, codes in _CODES.items() for code in codes.split()},
        idempotency=Idempotency.WINDOW,
    ),
)
