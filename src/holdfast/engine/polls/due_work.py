"""Which maintenance steps have work, in one cheap query."""

from __future__ import annotations

import msgspec

from holdfast.engine.admin.limits import RECOUNTED_SECONDS
from holdfast.engine.context import EngineContext
from holdfast.engine.maintenance.reap import pause_of
from holdfast.engine.maintenance.worker_events import KEPT_SECONDS
from holdfast.store import Tx, q


class DueWork(msgspec.Struct, frozen=True, kw_only=True):
    """`unswept`: the last sweep is too long ago. The others: the maintenance step of that name may find work."""

    log_ahead: bool = True
    unswept: bool = True
    ripe: bool = True
    running: bool = True
    batches: bool = True
    orphans: bool = True
    silent: bool = True
    forgotten: bool = True
    claims: bool = True
    sessions: bool = True
    full_keys: bool = True
    tokens: bool = True
    changed_limits: bool = True
    lines: bool = True


async def due_work(tx: Tx, ctx: EngineContext, *, workers_kept: float, claims_kept: float) -> DueWork:
    [row] = await tx.all(
        q.due_work,
        pause=pause_of(ctx),
        orphaned=float(ctx.limits.accept_orphans_seconds),
        workers_kept=float(workers_kept),
        claims_kept=float(claims_kept),
        lines_kept=KEPT_SECONDS,
        recounted=RECOUNTED_SECONDS,
        limit=ctx.limits.lanes_max,
    )
    return DueWork(**{name: bool(row[name]) for name in DueWork.__struct_fields__})
