"""Events of workers in the event log: online, idle, busy, offline, disabled."""

from __future__ import annotations

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.store import Tx, q

VERB = "worker"
KEPT_SECONDS = 86_400.0
CALM_SECONDS = 5.0  # at least between two busy or idle events of one worker
PRUNED_EACH = 100  # events of one worker per call


async def is_all_said(tx: Tx) -> bool:
    """Whether no status has changed: nearly always, and the check takes no lock."""
    return not await tx.all(q.changed_workers, limit=1, calm=CALM_SECONDS)


async def record_worker_events(tx: Tx, ctx: EngineContext) -> int:
    """Add an event for each worker whose status has changed since its last event; skips locked workers."""
    rows = await tx.all(q.changed_workers, limit=ctx.limits.sweep_batch, calm=CALM_SECONDS)
    if not rows:
        return 0
    events = [
        (row["id"], row["status"], msgspec.json.encode({"name": row["name"], "was": row["told"]}).decode())
        for row in rows
    ]
    await tx.all(q.insert_worker_events, said=events)
    await tx.all(q.mark_workers_recorded, said=[(worker, status) for worker, status, _ in events])
    return len(events)


async def prune_worker_events(tx: Tx, ctx: EngineContext, seconds: float = KEPT_SECONDS) -> int:
    """Delete worker events after a day."""
    old = await tx.all(q.old_worker_events, seconds=seconds, each=PRUNED_EACH, limit=ctx.limits.sweep_batch)
    if old:
        await tx.all(q.drop_worker_events, old=[(row["job_id"], row["seq"]) for row in old])
    return len(old)
