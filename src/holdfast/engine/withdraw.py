"""withdraw: a worker ends the waiting work of another job, for the job that it runs itself.

So a lifecycle needs no cancel of its own: who wants a job ended creates a control job, and a worker that runs it does
what workers may do. A retry that waits is given up; what waits in the queue is claimed and failed in one transaction.
"""

from __future__ import annotations

from holdfast.engine.cancel import cancel
from holdfast.engine.context import EngineContext
from holdfast.engine.fail import check_words, discard, fail, stored_error
from holdfast.engine.hooks.moves import each_by_itself
from holdfast.engine.leases import hold, holder_of
from holdfast.engine.move import move
from holdfast.engine.preconditions import extension_missing, require_move
from holdfast.engine.reads.read import get
from holdfast.errors import Forbidden, HoldfastError, LeaseLost
from holdfast.ids import is_uuid
from holdfast.lifecycle import Actor, Machine, State
from holdfast.model import Job
from holdfast.model.reports import Fail, Withdrawal, Withdrawn
from holdfast.store import Tx, q

CONTROL = "system.cancel"  # the type of control jobs, and what a wish to cancel is called in the history of its job


async def withdraw(
    tx: Tx, ctx: EngineContext, asked: Withdrawal, *, worker: str, queues: tuple[str, ...] | None = None
) -> Withdrawn:
    """Of a job of the same tenant; `LeaseLost` where the worker does not hold the job that it does this for. A job that
    has ended stays as it is."""
    await hold(tx, ctx, asked.held)
    return await withdraw_unfenced(tx, ctx, asked, worker=worker, queues=queues)


async def withdraw_unfenced(
    tx: Tx, ctx: EngineContext, asked: Withdrawal, *, worker: str, queues: tuple[str, ...] | None = None
) -> Withdrawn:
    """In a transaction that makes sure of the lease before it commits. To lock the job until then would hold up the
    heartbeats of its worker."""
    check_words(asked.reason, asked.message, None)
    if await holder_of(tx, ctx, asked.held) != worker:
        raise LeaseLost(f"job {asked.id} is held by another worker")
    tenant = (await get(tx, asked.id)).tenant
    if is_uuid(asked.target):
        await tx.one(q.lock_job, id=asked.target)
    job = await get(tx, asked.target, tenant)
    if queues is not None and job.queue not in queues:
        raise Forbidden(f"this worker's key is not for the queue {job.queue!r}", code="queue_not_allowed")
    if job.final:
        return Withdrawn(job.id, job.state)
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    if machine.allows("cancel", job.state, State.CANCELED, Actor.SYSTEM):
        told = await cancel(tx, ctx, job.id, actor=Actor.SYSTEM, reason=asked.reason)
        return Withdrawn(told.id, told.state, asked=not told.canceled)
    if job.state is State.RUNNING:
        return Withdrawn(job.id, State.RUNNING)
    await _end(tx, ctx, job, machine, asked, worker)
    return Withdrawn(job.id, State.DEAD)


async def _end(tx: Tx, ctx: EngineContext, job: Job, machine: Machine, asked: Withdrawal, worker: str) -> None:
    if missing := ctx.hooks.missing(job.needs):
        raise extension_missing(job.id, job.type, missing)
    context = {"control": CONTROL, "by": asked.id}
    if machine.allows("fail", job.state, State.DEAD, Actor.WORKER):
        error = stored_error(ctx, asked.reason, asked.message, context)
        await discard(tx, ctx, [job.id], actor=Actor.WORKER, reason=asked.reason, error=error)
        return
    require_move(machine, "claim", job.id, job.state, State.RUNNING, Actor.WORKER)

    async def claim_and_fail(_: list[Job]) -> dict[str, bool]:
        query = (ctx.mine if job.needs else ctx.plain)(q.claim_found)
        [lease] = await move(tx, ctx, query, actor=Actor.WORKER, ids=[job.id], worker=worker, instance=None)
        failure = Fail(
            id=job.id,
            token=lease["lease_token"],
            code=asked.reason,
            message=asked.message,
            context=context,
            permanent=True,
        )
        [answer] = await fail(tx, ctx, [failure], worker=worker)
        if isinstance(answer, HoldfastError):
            raise answer
        return {job.id: True}

    answer = (await each_by_itself(tx, ctx, "fail", [job], claim_and_fail))[job.id]
    if isinstance(answer, HoldfastError):
        raise answer
