"""The reads of `holdfast top`: job counts, and the activity since the last refresh, with bounded cost."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.engine.context import EngineContext
from holdfast.engine.reads.limit_use import LimitUse, limit_use
from holdfast.lifecycle import Machine
from holdfast.store import Row, Tx, q

COUNT_MAX = 100_000  # of each kind except waiting
FLOW_SAMPLE = 10_000
ENDED_EVENTS, ENDED_KEPT = 500, 50
RUNNING_MAX, WORKERS_MAX, LIMITS_MAX = 100, 200, 100
DEAD_SECONDS = 3600.0
GONE_SECONDS = 600.0  # how long an offline worker is shown
GAP_SECONDS = 120.0  # after a longer gap, such as an outage, there are no rates


class Counts(NamedTuple):
    at: datetime
    waiting: list[Row]
    others: list[Row]
    limits: dict[str, LimitUse]


class Activity(NamedTuple):
    """`pos` is the end of the event log. `seconds`: since the activity before; 0 if there was none, or too long ago."""

    at: datetime
    pos: int
    seconds: float
    held: list[Row]
    running: list[Row]
    workers: list[Row]
    paused: list[Row]
    flow: list[Row]
    ended: list[tuple[Row, Machine]]


async def counts(tx: Tx) -> Counts:
    [clock] = await tx.all(q.clock)
    waiting = await tx.all(q.top_waiting)
    others = await tx.all(q.top_counts, limit=COUNT_MAX, seconds=DEAD_SECONDS)
    most_used = [*(await limit_use(tx)).items()][:LIMITS_MAX]
    return Counts(clock["now_at"], waiting, others, dict(most_used))


async def activity(tx: Tx, ctx: EngineContext, before: Activity | None) -> Activity:
    """What runs now, and what happened since the activity `before`."""
    [clock], end = await tx.all(q.clock), await tx.one(q.feed_end)
    at, pos, after = clock["now_at"], end["pos"] if end else 0, before.pos if before else 0
    seconds = (at - before.at).total_seconds() if before else 0.0
    seconds = seconds if 0 < seconds < GAP_SECONDS else 0.0
    ended = (await tx.all(q.top_ended, after=after, until=pos, limit=ENDED_EVENTS))[:ENDED_KEPT]
    return Activity(
        at=at,
        pos=pos,
        seconds=seconds,
        held=await tx.all(q.top_held),
        running=await tx.all(q.top_running, limit=RUNNING_MAX),
        workers=await tx.all(q.top_workers, limit=WORKERS_MAX, seconds=GONE_SECONDS),
        paused=await tx.all(q.paused_queues),
        flow=await tx.all(q.top_flow, after=after, until=pos, limit=FLOW_SAMPLE) if seconds else [],
        ended=[(row, (await ctx.registry.snapshot(tx, row["policy"])).machine) for row in ended],
    )
