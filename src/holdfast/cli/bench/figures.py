"""The figures of `holdfast bench` and their explanations."""

from __future__ import annotations

import math

import msgspec

MEANINGS = {
    "enqueue_one_by_one": "one caller, a commit per job; raw SQL: an insert and its commit",
    "enqueue_20_callers": "20 concurrent callers in one process, whose jobs share commits",
    "enqueue_bulk": "one enqueue_many in one transaction; raw SQL: inserts of 1,000 rows",
    "drain": "claimed, run and completed, first claim to last completion; raw SQL: batches of 100, without history",
    "idle_start_p50": "from the enqueue call to the handler's start in an idle worker, median",
    "idle_start_p99": "the same, 99th percentile",
}


class Figure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`by_hand`: hand-written SQL on the same database in the same run; None if there is no comparison."""

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
    """The nearest-rank percentile."""
    return sorted(values)[math.ceil(len(values) * part / 100) - 1]
