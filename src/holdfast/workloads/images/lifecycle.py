"""The `images` lifecycle: ten-minute leases, retries are claimed directly, and cancel through a control job."""

from holdfast.lifecycle import Machine, Policy

IMAGES = Machine(
    "images",
    about="Image processing: ten-minute leases; retries are claimed directly; a worker may end a waiting retry.",
    words={
        "queued": "queued",
        "running": "processing",
        "retrying": "failed_retryable",
        "succeeded": "completed",
        "dead": "failed",
    },
    moves=[
        "claim:    queued, retrying -> running  by worker",
        "complete: running -> succeeded         by worker",
        "fail:     running -> retrying, dead    by worker",
        "fail:     retrying -> dead             by worker, system",
        "release:  running -> queued            by worker, system",
        "reap:     running -> retrying, dead    by system",
    ],
    policy=Policy(lease_seconds=600, heartbeat_seconds=30, cancel_grace_seconds=10),
)
