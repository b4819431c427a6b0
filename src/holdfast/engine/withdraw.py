"""withdraw: the worker of a control job ends another job.

This is how jobs end whose lifecycle has no cancel: the client creates a control job, and its worker does what workers
may do. A waiting retry is failed; a queued job is claimed and failed in one transaction; the worker of a running job is
asked to stop it, and however its attempt then ends, unless it succeeds, the job is dead.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.cancel import CONTROL, cancel, cancel_found
from holdfast.engine.context import EngineContext
from holdfast.engine.fail import check_words, discard, fail, stored_error
from holdfast.engine.hooks.claim import token_prefix
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


async def withdraw(
    tx: Tx, ctx: EngineContext, worker: str, request: Withdrawal, *, queues: tuple[str, ...] | None = None
) -> Withdrawn:
    """End a job of the same tenant. Raises `LeaseLost` if the worker does not hold the control job. A finished job does
    not change."""
    await hold(tx, ctx, request)
    return await withdraw_unfenced(tx, ctx, worker, request, queues=queues)


async def withdraw_unfenced(
    tx: Tx, ctx: EngineContext, worker: str, request: Withdrawal, *, queues: tuple[str, ...] | None = None
) -> Withdrawn:
    """`withdraw` in a transaction that checks the lease before it commits: a lock on the control job until then would
    block the heartbeats of its worker."""
    check_words(request.reason, request.message, None)
    if await holder_of(tx, ctx, request) != worker:
        raise LeaseLost(f"job {request.id} is held by another worker; stop, and discard the result")
    tenant = (await get(tx, request.id)).tenant
    if is_uuid(request.target):
        await tx.one(q.lock_job, id=request.target)
    job = await get(tx, request.target, tenant)
    if queues is not None and job.queue not in queues:
        raise Forbidden(
            f"this worker's key does not allow queue {job.queue!r}; use a key for it", code="queue_not_allowed"
        )
    if job.final:
        return Withdrawn(job.id, job.state)
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    if machine.allows("cancel", job.state, State.CANCELED, Actor.SYSTEM):
        ended = await cancel(tx, ctx, job.id, actor=Actor.SYSTEM, reason=request.reason)
        return Withdrawn(ended.id, ended.state, asked=not ended.canceled)
    if job.state is State.RUNNING:
        asked = await cancel_found(tx, ctx, job, Actor.SYSTEM, request.reason)
        return Withdrawn(job.id, State.RUNNING, asked=asked)
    await _end(tx, ctx, job, machine, request, worker)
    return Withdrawn(job.id, State.DEAD)


async def _end(tx: Tx, ctx: EngineContext, job: Job, machine: Machine, request: Withdrawal, worker: str) -> None:
    if missing := ctx.hooks.missing(job.needs):
        raise extension_missing(job.id, job.type, missing)
    context = {"control": CONTROL, "by": request.id}
    if machine.allows("fail", job.state, State.DEAD, Actor.WORKER):
        error = stored_error(ctx, request.reason, request.message, context)
        await discard(tx, ctx, job.id, actor=Actor.WORKER, reason=request.reason, error=error)
        return
    require_move(machine, "claim", job.id, job.state, State.RUNNING, Actor.WORKER)

    async def claim_and_fail(_: list[Job]) -> dict[str, bool]:
        query = (ctx.mine if job.needs else ctx.plain)(q.claim_found)
        holder: dict[str, Any] = {
            "worker": worker,
            "instance": None,
            "limited": None,
            "token_prefix": token_prefix(ctx),
        }
        [lease] = await move(tx, ctx, query, actor=Actor.WORKER, ids=[job.id], **holder)
        failure = Fail(
            id=job.id,
            token=lease["lease_token"],
            code=request.reason,
            message=request.message,
            context=context,
            permanent=True,
        )
        [answer] = await fail(tx, ctx, worker, [failure])
        if isinstance(answer, HoldfastError):
            raise answer
        return {job.id: True}

    answer = (await each_by_itself(tx, ctx, "fail", [job], claim_and_fail))[job.id]
    if isinstance(answer, HoldfastError):
        raise answer
