"""requeue: make delayed jobs and retries claimable when they are due."""

from __future__ import annotations

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import Found, ask_guards, by_itself, defer_refused, each_by_itself
from holdfast.engine.move import move
from holdfast.engine.preconditions import require_move
from holdfast.engine.reads.read import get
from holdfast.errors import Conflict, HoldfastError
from holdfast.lifecycle import Actor, State
from holdfast.model import Job
from holdfast.model.names import check_name
from holdfast.store import Row, Tx, q

PARENTS_SECONDS = 5.0  # how often a job that waits for its children is checked


async def requeue_due(tx: Tx, ctx: EngineContext) -> int:
    """One bounded maintenance step; concurrent calls skip each other's locked rows."""
    limit = ctx.limits.sweep_batch
    rows: list[Row] = [
        row for parked in ("waiting", "retrying") for row in await tx.all(q.mark_due_jobs, parked=parked, limit=limit)
    ]
    parents = await tx.all(q.mark_due_parents, limit=limit, pause=PARENTS_SECONDS)
    rows += [row for row in parents if row["due"]]
    rows += await move(tx, ctx, q.requeue_due, actor=Actor.SYSTEM, limit=limit)
    if ctx.hooks.extensions:
        rows += await _requeue_with_hooks(tx, ctx, limit)
    tx.after_commit(lambda: ctx.wake(rows))
    return len(rows)


async def _requeue_with_hooks(tx: Tx, ctx: EngineContext, limit: int) -> list[Row]:
    ripe = [Found(row["id"], row) for row in await tx.all(ctx.mine(q.due_retries), limit=limit)]

    async def settle(found: list[Found]) -> dict[str, Row]:
        await ask_guards(tx, ctx, "requeue", {}, [one.row for one in found])
        query, ids = ctx.mine(q.requeue_ripe), [one.id for one in found]
        return {row["id"]: row for row in await move(tx, ctx, query, actor=Actor.SYSTEM, ids=ids)}

    answers = await each_by_itself(tx, ctx, "requeue", ripe, settle) if ripe else {}
    await defer_refused(tx, ctx, answers)
    return [answer for answer in answers.values() if not isinstance(answer, HoldfastError)]


async def requeue(
    tx: Tx,
    ctx: EngineContext,
    job_id: str,
    *,
    actor: Actor = Actor.SYSTEM,
    reason: str = "requeued",
    tenant: str | None = None,
) -> Job:
    """Requeue a retry now, before its backoff ends."""
    check_name(reason, "reason")
    job = await get(tx, job_id, tenant)
    if job.state is not State.RETRYING:
        raise Conflict(
            f"job {job_id} is {job.state}; only a job that waits for a retry can be requeued", code="not_retrying"
        )
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    require_move(machine, "requeue", job_id, State.RETRYING, State.QUEUED, actor)

    async def settle(which: Which) -> list[Row]:
        return await move(tx, ctx, which(q.requeue_jobs), actor=actor, ids=[job_id], reason=reason)

    moved = await by_itself(tx, ctx, "requeue", job, settle)
    if not moved:
        raise Conflict(f"job {job_id} has just changed its state; try again", code="job_contended")
    tx.after_commit(lambda: ctx.wake(moved))
    return await get(tx, job_id)
