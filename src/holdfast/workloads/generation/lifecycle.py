"""The `generation` lifecycle: moderation may reject before or during the run; a rejected job keeps its key."""

from holdfast.lifecycle import Idempotency, Machine, Policy

GENERATION = Machine(
    "generation",
    about="Image generation: moderation can reject jobs before or during their run; no refund for rejected jobs.",
    words={
        "queued": "queued",
        "running": "running",
        "retrying": "failed",
        "succeeded": "completed",
        "dead": "dead_letter",
        "canceled": "dead_letter",
        "rejected": "rejected",
    },
    moves=[
        "claim:    queued -> running                    by worker",
        "complete: running -> succeeded                 by worker",
        "fail:     running -> retrying, dead            by worker",
        "fail:     retrying -> dead                     by worker, system",
        "release:  running -> queued                    by worker, system",
        "reject:   queued -> rejected                   by system",
        "reject:   running -> rejected                  by worker",
        "cancel:   queued, retrying -> canceled         by client, api, system",
        "cancel:   running -> canceled                  by worker, system",
        "reap:     running -> retrying, dead, canceled  by system",
        "requeue:  retrying -> queued                   by system",
    ],
    policy=Policy(idempotency=Idempotency.WINDOW_UNTIL_FAILED),
)
