"""The limits of one job: what it takes of each, and what it holds."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.limited import limit_of, limits_asked
from holdfast.model import Job
from holdfast.model.limits import Limit, key_bucket
from holdfast.store import Row, Tx, q


class LimitOfJob(NamedTuple):
    """`units`: what the job takes of the limit when it runs; `held`: what it holds now."""

    name: str
    limit: Limit
    units: int
    held: int


async def limits_of(tx: Tx, job: Job) -> list[LimitOfJob]:
    """The limits in force that bound the job, by name. A finished job has none."""
    rows = [] if job.final else await limit_rows(tx, job)
    found = [LimitOfJob(row["name"], limit_of(row), row["units"], row["held"] or 0) for row in rows]
    return [one for one in found if one.limit != Limit()]


async def limit_rows(tx: Tx, job: Job) -> list[Row]:
    lane = await tx.one(q.lane, id=job.lane)
    bucket = None if job.limit_key is None else key_bucket(job.type, job.limit_key)
    asked = [] if lane is None else limits_asked(lane, bucket)
    rows = await tx.all(q.limits_of_job, id=job.id, asked=asked) if asked else []
    return sorted(rows, key=lambda row: row["bucket"])
