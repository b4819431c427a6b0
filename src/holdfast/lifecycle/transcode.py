"""The `transcode` lifecycle: half-hour leases, no late writes, reaped only if the worker is offline."""

from holdfast.lifecycle.machine import Machine
from holdfast.lifecycle.policy import Policy, Reaping

TRANSCODE = Machine(
    "transcode",
    about="Video transcoding: long leases, completed parts survive retries, GPU workers are preferred.",
    words={
        "queued": "pending",
        "running": "processing",
        "retrying": "retrying",
        "succeeded": "ready",
        "dead": "failed",
    },
    moves=[
        "claim:    queued, retrying -> running  by worker",
        "complete: running -> succeeded         by worker",
        "fail:     running -> retrying, dead    by worker",
        "release:  running -> queued            by worker, system",
        "reap:     running -> retrying, dead    by system",
    ],
    policy=Policy(
        lease_seconds=1800,
        heartbeat_seconds=30,
        max_attempts=3,
        backoff_base_seconds=0,
        late_writes=False,
        reaping=Reaping.EXPIRED_AND_OFFLINE,
        offline_seconds=300,
        no_progress_seconds=1800,
        defer_seconds=60,
        discard_partial_parts=True,
    ),
)
