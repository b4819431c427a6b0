"""What workers do, in the same log as what happens to jobs: online, idle, busy, offline, disabled (R003-118)."""

from __future__ import annotations

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.store import Tx, q

VERB = "worker"
KEPT_SECONDS = 86_400.0
CALM_SECONDS = 5.0  # between two lines that a worker is busy or idle
PRUNED_EACH = 100  # lines of one worker at a time


async def is_all_said(tx: Tx) -> bool:
    """Asked first, because it is so almost always, and asking takes no lock."""
    return not await tx.all(q.changed_workers, limit=1, calm=CALM_SECONDS)


async def record_worker_events(tx: Tx, ctx: EngineContext) -> int:
    """Write down what has changed since the last line about each worker. One that others have locked is theirs."""
    rows = await tx.all(q.changed_workers, limit=ctx.limits.sweep_batch, calm=CALM_SECONDS)
    if not rows:
        return 0
    said = [
        (row["id"], row["status"], msgspec.json.encode({"name": row["name"], "was": row["told"]}).decode())
        for row in rows
    ]
    await tx.all(q.insert_worker_events, said=said)
    await tx.all(q.mark_workers_recorded, said=[(worker, status) for worker, status, _ in said])
    return len(said)


async def prune_worker_events(tx: Tx, ctx: EngineContext, seconds: float = KEPT_SECONDS) -> int:
    """Lines about workers are of interest for a day."""
    old = await tx.all(q.old_worker_events, seconds=seconds, each=PRUNED_EACH, limit=ctx.limits.sweep_batch)
    if old:
        await tx.all(q.drop_worker_events, old=[(row["job_id"], row["seq"]) for row in old])
    return len(old)
