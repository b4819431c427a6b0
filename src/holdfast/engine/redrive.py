"""redrive: run a finished job again as a new job that is linked to it. The finished job does not change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.create import create
from holdfast.engine.insert import Created
from holdfast.engine.reads.read import get
from holdfast.errors import Conflict
from holdfast.ids import is_uuid
from holdfast.lifecycle import Actor, Lifecycles, Machine
from holdfast.model import NewJob
from holdfast.model.json import decode
from holdfast.store import Tx, q

SUCCESSORS_MAX = 100


async def redrive(
    tx: Tx,
    ctx: EngineContext,
    job_id: str,
    *,
    actor: Actor = Actor.API,
    payload: dict[str, Any] | None = None,
    idempotency_key: str | None = None,
    run_at: datetime | None = None,
    tenant: str | None = None,
) -> Created:
    """Create a job with the type, queue, payload, subject, tags and policy of the old one; `root_id` is the first."""
    job = await get(tx, job_id, tenant)
    if not job.final:
        raise Conflict(
            f"job {job_id} is {job.state}; only a finished job can be redriven", code="not_final", job_id=job_id
        )
    lane = await tx.one(q.lane, id=job.lane)
    snapshot = await ctx.registry.snapshot(tx, job.policy)
    _learn(ctx.lifecycles, snapshot.machine)
    new = NewJob(
        type=job.type,
        payload=job.payload if payload is None else payload,
        tenant=job.tenant,
        lifecycle=job.lifecycle,
        queue=job.queue,
        priority=job.priority,
        run_at=run_at,
        max_attempts=job.max_attempts,
        policy=msgspec.to_builtins(snapshot.policy),
        requires=decode(lane["requires"]) if lane else None,
        prefers=decode(lane["prefers"]) if lane else None,
        tags=job.tags or [],
        partition_key=job.partition_key,
        limit_key=job.limit_key if payload is None else None,  # those of another payload are computed
        fairness_key=job.fairness_key if payload is None else None,
        keys_are_final=payload is None,
        limits=decode(lane["limits"]) if lane else None,
        subject=job.subject,
        trace=job.trace,
        idempotency_key=idempotency_key,
        redrive_of=job.id,
        root_id=job.root_id or job.id,
    )
    return (await create(tx, ctx, [new], actor=actor))[0]


def _learn(lifecycles: Lifecycles, machine: Machine) -> None:
    """Add a lifecycle that this process does not know; the stored policy of the job contains it."""
    if machine.name not in {known.name for known in lifecycles}:
        lifecycles.learn(machine)


async def successors(tx: Tx, job_id: str) -> list[str]:
    """The jobs that were redriven from this one, oldest first."""
    rows = await tx.all(q.successors, id=job_id, limit=SUCCESSORS_MAX) if is_uuid(job_id) else []
    return [row["id"] for row in rows]
