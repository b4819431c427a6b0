"""What was measured, and what it means."""

from __future__ import annotations

import math

import msgspec

MEANINGS = {
    "enqueue_one_by_one": "one caller, each job on disk before the next; by hand: an insert and its commit",
    "enqueue_20_callers": "20 callers in one process, whose jobs share commits",
    "enqueue_bulk": "one enqueue_many, all or nothing; by hand: the same in inserts of 1,000",
    "drain": "claimed, run and completed, first claim to last completion; by hand: a loop without history, by 100",
    "idle_start_p50": "from the call of enqueue to the handler's start in an idle worker: half are faster",
    "idle_start_p99": "the same: all but one in a hundred are faster",
}


class Figure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`by_hand` is what hand-written SQL reached on the same database in the same run; None where nothing compares."""

    name: str
    value: float
    unit: str
    by_hand: float | None = None
    share: float | None = None
    meaning: str

    @classmethod
    def rate(cls, name: str, value: float, by_hand: float | None = None) -> Figure:
        share = value / by_hand if by_hand else None
        return cls(name=name, value=value, unit="jobs/s", by_hand=by_hand, share=share, meaning=MEANINGS[name])

    @classmethod
    def start(cls, part: int, milliseconds: float) -> Figure:
        name = f"idle_start_p{part}"
        return cls(name=name, value=milliseconds, unit="ms", meaning=MEANINGS[name])


def percentile(values: list[float], part: int) -> float:
    """The smallest of them that so many in a hundred do not exceed."""
    return sorted(values)[math.ceil(len(values) * part / 100) - 1]
