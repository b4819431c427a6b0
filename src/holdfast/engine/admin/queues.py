"""Queues: job counts, pause and resume. A pause stops claims; creates and running jobs go on."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.lifecycle import State
from holdfast.model.hint import Hint
from holdfast.model.names import check_name
from holdfast.store import Row, Tx, q


class Queue(msgspec.Struct, frozen=True):
    """Job counts and pause state of one queue of one tenant."""

    tenant: str
    name: str
    jobs: dict[State, int]
    oldest_waiting_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None


async def listed(tx: Tx) -> list[Queue]:
    """All queues that contain a job or are paused."""
    counted: dict[tuple[str, str], list[Row]] = {}
    for row in await tx.all(q.queue_counts):
        counted.setdefault((row["tenant"], row["queue"]), []).append(row)
    paused = {(row["tenant"], row["name"]): row for row in await tx.all(q.paused_queues)}
    return [_queue(name, counted.get(name, []), paused.get(name)) for name in sorted(counted.keys() | paused.keys())]


def _queue(name: tuple[str, str], counted: list[Row], paused: Row | None) -> Queue:
    numbers = {row["state"]: row["jobs"] for row in counted}
    waiting: list[datetime] = [row["oldest_at"] for row in counted if row["oldest_at"] is not None]
    return Queue(
        *name,
        {state: numbers.get(state, 0) for state in State},
        min(waiting, default=None),
        paused["paused_at"] if paused else None,
        paused["paused_by"] if paused else None,
    )


async def is_paused(tx: Tx, queue: str, tenant: str) -> bool:
    return any((row["tenant"], row["name"]) == (tenant, queue) for row in await tx.all(q.paused_queues))


async def pause(tx: Tx, queue: str, *, tenant: str = "default", by: str | None = None) -> None:
    if by is not None:
        check_name(by, "paused_by")
    await tx.one(q.pause_queue, tenant=check_name(tenant, "tenant"), name=check_name(queue, "queue"), by=by)


async def resume(tx: Tx, ctx: EngineContext, queue: str, *, tenant: str = "default") -> bool:
    row = await tx.one(q.resume_queue, tenant=check_name(tenant, "tenant"), name=check_name(queue, "queue"))
    tx.after_commit(lambda: ctx.hint([Hint(queue)]))
    return row is not None
