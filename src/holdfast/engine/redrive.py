"""redrive: a finished job is done again as a new job linked to it. Final rows never move."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.create import Created, create
from holdfast.engine.read import get
from holdfast.engine.rules import Rules
from holdfast.errors import Conflict
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.model.json import decode
from holdfast.store import Tx, q


async def redrive(
    tx: Tx,
    rules: Rules,
    job_id: str,
    *,
    actor: Actor = Actor.API,
    payload: dict[str, Any] | None = None,
    idempotency_key: str | None = None,
    tenant: str | None = None,
) -> Created:
    """A new job with the old one's type, queue, payload, tags and policy; `root_id` leads back to the first of all."""
    job = await get(tx, job_id, tenant)
    if not job.final:
        raise Conflict(f"job {job_id} is {job.state}; only a finished job is redriven", code="not_final", job_id=job_id)
    lane = await tx.one(q.lane, id=job.lane)
    snapshot = await rules.registry.snapshot(tx, job.policy)
    new = NewJob(
        type=job.type,
        payload=job.payload if payload is None else payload,
        tenant=job.tenant,
        lifecycle=job.lifecycle,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        policy=msgspec.to_builtins(snapshot.policy),
        requires=decode(lane["requires"]) if lane else None,
        prefers=decode(lane["prefers"]) if lane else None,
        tags=job.tags or [],
        partition_key=job.partition_key,
        trace=job.trace,
        idempotency_key=idempotency_key,
        redrive_of=job.id,
        root_id=job.root_id or job.id,
    )
    return (await create(tx, rules, [new], actor=actor))[0]
