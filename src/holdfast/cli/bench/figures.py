"""What was measured, and what it means."""

from __future__ import annotations

import msgspec

MEANINGS = {
    "enqueue_one_by_one": "one caller waits for each job to be on disk; hand-written: an insert and its commit",
    "enqueue_20_callers": "20 callers in one process, whose jobs share commits",
    "enqueue_bulk": "one call of enqueue_many, all or nothing; hand-written: the same in inserts of 1,000",
    "drain": "jobs that waited are claimed, run and completed, first claim to last completion; hand-written: one loop, "
    "100 at a time, no history",
    "idle_start_p50": "from the call of enqueue to the start of the handler in an idle worker: half are faster",
    "idle_start_p99": "the same: all but one in a hundred are faster",
}
JOBS_PER_SECOND, MILLISECONDS = "jobs/s", "ms"


class Figure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`hand_written` is what SQL by hand reached on the same database in the same run; None where nothing compares."""

    name: str
    value: float
    unit: str
    hand_written: float | None = None

    @property
    def share(self) -> float | None:
        return self.value / self.hand_written if self.hand_written else None


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    figures: list[Figure]
    removed: int
    stays: int


def percentile(values: list[float], part: float) -> float:
    """The smallest value that this part of all of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]
