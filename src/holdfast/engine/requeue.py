"""requeue: jobs whose time has come become claimable, retries included."""

from __future__ import annotations

from holdfast.engine.lawful import require_move
from holdfast.engine.move import move
from holdfast.engine.read import get
from holdfast.engine.rules import Rules
from holdfast.errors import Conflict
from holdfast.lifecycle import Actor, State
from holdfast.model import Job
from holdfast.model.names import check_name
from holdfast.store import Row, Tx, q


async def requeue_due(tx: Tx, rules: Rules) -> int:
    """One bounded step of maintenance; several at once share the work and skip what the others hold."""
    limit = rules.limits.sweep_batch
    rows: list[Row] = await tx.all(q.ripen_jobs, limit=limit)
    rows += await move(tx, rules, q.requeue_due, actor=Actor.SYSTEM, limit=limit)
    tx.after_commit(lambda: rules.wake(rows))
    return len(rows)


async def requeue(
    tx: Tx, rules: Rules, job_id: str, *, actor: Actor, reason: str = "requeued", tenant: str | None = None
) -> Job:
    """Do not wait for the backoff of this job."""
    check_name(reason, "reason")
    job = await get(tx, job_id, tenant)
    if job.state is not State.RETRYING:
        raise Conflict(
            f"job {job_id} is {job.state}; only a job that waits for a retry is requeued", code="not_retrying"
        )
    machine = (await rules.registry.snapshot(tx, job.policy)).machine
    require_move(machine, "requeue", job_id, State.RETRYING, State.QUEUED, actor)
    moved = await move(tx, rules, q.requeue_jobs, actor=actor, ids=[job_id], reason=reason)
    if not moved:
        raise Conflict(f"job {job_id} has just moved on; look again", code="job_contended")
    tx.after_commit(lambda: rules.wake(moved))
    return await get(tx, job_id)
