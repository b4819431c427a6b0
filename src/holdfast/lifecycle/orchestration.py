"""The `orchestration` lifecycle: separate acceptance, retries return to the queue, DEAD only through RETRY."""

from holdfast.lifecycle.machine import Machine

ORCHESTRATION = Machine(
    "orchestration",
    about="The six states of a classic job table: separate acceptance, and retries return to the queue.",
    words={
        "created": "CREATED",
        "queued": "QUEUED",
        "running": "RUNNING",
        "retrying": "RETRY",
        "succeeded": "SUCCESS",
        "dead": "DEAD",
    },
    moves=[
        "accept:   created -> queued     by client, api, system",
        "claim:    queued -> running     by worker",
        "complete: running -> succeeded  by worker",
        "fail:     running -> retrying   by worker",
        "fail:     retrying -> dead      by worker, system",
        "release:  running -> queued     by worker, system",
        "reap:     running -> retrying   by system",
        "reap:     retrying -> dead      by system",
        "requeue:  retrying -> queued    by system",
    ],
    accept_separately=True,
)
