"""The stored states, the actors, and all transitions that a lifecycle may allow."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.errors import UnknownName


class State(StrEnum):
    CREATED = "created"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELED = "canceled"
    REJECTED = "rejected"


FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELED, State.REJECTED})


class Actor(StrEnum):
    CLIENT = "client"
    API = "api"
    WORKER = "worker"
    SYSTEM = "system"

    @classmethod
    def named(cls, name: str) -> Actor:
        if type(name) is cls:
            return name
        try:
            return cls(name)
        except ValueError:
            raise UnknownName.of("actor", str(name), [actor.value for actor in cls]) from None


class Move(NamedTuple):
    verb: str
    source: State
    target: State
    actors: frozenset[Actor]

    def __str__(self) -> str:
        return f"{self.verb}: {self.source} -> {self.target} by {', '.join(sorted(self.actors))}"


# All possible transitions; every lifecycle is a subset.
CANON = (
    "accept:   created -> queued                      by client, api, system",
    "claim:    queued, retrying -> running            by worker",
    "complete: running -> succeeded                   by worker",
    "fail:     running -> retrying, dead              by worker",
    "fail:     retrying -> dead                       by worker, system",
    "release:  running -> queued                      by worker, system",
    "reject:   queued -> rejected                     by system",
    "reject:   running -> rejected                    by worker",
    "cancel:   created, queued, retrying -> canceled  by client, api, system",
    "cancel:   running -> canceled                    by worker, system",
    "reap:     running -> retrying, dead, canceled    by system",
    "reap:     retrying -> dead                       by system",
    "requeue:  retrying -> queued                     by api, system",
)

# One bit per pair of states, stored with every job: the database rejects a pair whose bit is not set.
# Rows in existing databases carry these bits, so the order never changes; new pairs go to the end.
PAIRS = (
    (State.CREATED, State.QUEUED),
    (State.QUEUED, State.RUNNING),
    (State.RETRYING, State.RUNNING),
    (State.RETRYING, State.QUEUED),
    (State.RUNNING, State.SUCCEEDED),
    (State.RUNNING, State.RETRYING),
    (State.RUNNING, State.DEAD),
    (State.RUNNING, State.QUEUED),
    (State.RUNNING, State.REJECTED),
    (State.RUNNING, State.CANCELED),
    (State.RETRYING, State.DEAD),
    (State.QUEUED, State.REJECTED),
    (State.CREATED, State.CANCELED),
    (State.QUEUED, State.CANCELED),
    (State.RETRYING, State.CANCELED),
)
BIT = {pair: 1 << place for place, pair in enumerate(PAIRS)}
ALL_BITS = sum(BIT.values())

# The status that clients see, independent of the lifecycle.
STATUS = {
    State.CREATED: "PENDING",
    State.QUEUED: "PENDING",
    State.RETRYING: "PENDING",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "COMPLETED",
    State.DEAD: "FAILED",
    State.CANCELED: "CANCELED",
    State.REJECTED: "REJECTED",
}
