"""The part of `why` on limits: whether each limit of a job has units and tokens left for it."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.limited import LimitBucket, limit_of
from holdfast.engine.reads.job_limits import limit_rows
from holdfast.model import Job
from holdfast.model.limits import rate_text
from holdfast.store import Row, Tx


class LimitState(NamedTuple):
    holds: bool
    says: str


async def limit_states(tx: Tx, job: Job) -> list[LimitState]:
    """Of each limit that the job has, by name."""
    return [_state(row) for row in await limit_rows(tx, job)]


def _state(row: Row) -> LimitState:
    limit, units = limit_of(row), row["units"]
    bucket = LimitBucket(row["bucket"], limit, locked=True, used=int(row["used"]), tokens=row["tokens"] or 0.0)
    name = f"limit {row['name']!r}"
    if row["name"] != row["bucket"]:
        name += f" for key {row['bucket'].removeprefix(row['name'] + ' ')!r}"
    takes = "" if units == 1 else f"it takes {units} units of "
    if limit.concurrency is not None:
        if units > limit.concurrency:
            if limit.concurrency == 0:
                return LimitState(False, f"{name} allows no jobs: its concurrency is 0")
            return LimitState(
                False, f"it takes {_units(units)} of {name}, which has {limit.concurrency}, so it never runs"
            )
        if bucket.used + units > limit.concurrency:
            return LimitState(False, f"{takes}{name}: {_used(bucket)}")
    if limit.rate is not None and bucket.room(units) == 0:
        return LimitState(
            False, f"{takes}{name}: its rate of {rate_text(limit.rate)} is used up{_until(bucket, units)}"
        )
    return LimitState(True, f"{name}: {_used(bucket)}" if limit.concurrency is not None else f"{name} is open")


def _used(bucket: LimitBucket) -> str:
    return f"{bucket.used} of {_units(bucket.limit.concurrency or 0)} in use"


def _units(number: int) -> str:
    return f"{number} unit{'' if number == 1 else 's'}"


def _until(bucket: LimitBucket, units: int) -> str:
    return f" for {bucket.seconds_until(units):.1f} s more" if bucket.limit.rate else ""
