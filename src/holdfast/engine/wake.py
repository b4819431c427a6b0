"""wake: make a delayed job or a waiting retry claimable now."""

from __future__ import annotations

from holdfast.engine.context import EngineContext
from holdfast.engine.maintenance.requeue import requeue
from holdfast.engine.move import move
from holdfast.engine.reads.read import get
from holdfast.errors import Conflict
from holdfast.lifecycle import Actor, State
from holdfast.model import Job
from holdfast.store import Tx, q


async def wake(tx: Tx, ctx: EngineContext, job_id: str, *, tenant: str | None = None) -> bool:
    """True: it can be claimed now. False: it is running; if its worker releases it, it does not wait."""
    for _ in range(3):  # the state may change between the read and the transition; then read again
        job = await get(tx, job_id, tenant)
        if job.final:
            raise Conflict(f"job {job_id} is already {job.state}; it cannot be woken", code="already_final")
        if job.state is State.CREATED:
            raise Conflict(
                f"job {job_id} is {job.state}: it must be accepted before it can be woken", code="not_waiting"
            )
        if job.due:
            return True
        if job.state is State.RUNNING:
            if await tx.all(q.wake_running, ids=[job_id]):
                return False
        elif await _wake(tx, ctx, job):
            return True
    raise Conflict(f"job {job_id} keeps changing; try again", code="job_contended")


async def _wake(tx: Tx, ctx: EngineContext, job: Job) -> bool:
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    if job.state is State.RETRYING and not machine.move("claim", State.RETRYING, State.RUNNING):
        await requeue(tx, ctx, job.id, actor=Actor.SYSTEM, reason="woken")
        return True
    moved = await move(tx, ctx, q.wake_waiting, actor=Actor.SYSTEM, ids=[job.id])
    tx.after_commit(lambda: ctx.wake(moved))
    return bool(moved)
