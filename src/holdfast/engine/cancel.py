"""cancel: a waiting job ends at once; a running one when its worker stops it, or after the grace period."""

from __future__ import annotations

from functools import partial

import msgspec

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import by_itself
from holdfast.engine.move import move
from holdfast.engine.preconditions import require_move
from holdfast.engine.reads.read import get
from holdfast.errors import Conflict
from holdfast.lifecycle import Actor, State
from holdfast.model import Job
from holdfast.model.names import check_name
from holdfast.store import Tx, q

CONTROL = "system.cancel"  # the type of control jobs, and the name of a cancel request in the history of its target


class Canceling(msgspec.Struct, frozen=True):
    """The result of a cancel. Unless `canceled`, the job is running: its worker is asked to stop it, and maintenance
    cancels it after the grace period."""

    id: str
    state: State

    @property
    def canceled(self) -> bool:
        return self.state is State.CANCELED


async def cancel(
    tx: Tx,
    ctx: EngineContext,
    job_id: str,
    *,
    actor: Actor = Actor.CLIENT,
    reason: str = "canceled",
    tenant: str | None = None,
) -> Canceling:
    """Canceling a canceled job again changes nothing; raises `Conflict` if it ended otherwise."""
    actor = Actor.named(actor)
    check_name(reason, "reason")
    for _ in range(3):  # the state may change between the read and the transition; then read again
        job = await get(tx, job_id, tenant)
        if job.state is State.CANCELED:
            return Canceling(job.id, job.state)
        if job.final:
            raise Conflict(f"job {job_id} is already {job.state}; it cannot be canceled", code="already_final")
        machine = (await ctx.registry.snapshot(tx, job.policy)).machine
        by = actor if job.state is not State.RUNNING else Actor.SYSTEM
        require_move(machine, "cancel", job_id, job.state, State.CANCELED, by)
        if await cancel_found(tx, ctx, job, actor, reason):
            return Canceling(job_id, State.RUNNING if job.state is State.RUNNING else State.CANCELED)
    raise Conflict(f"job {job_id} keeps changing; try again", code="job_contended")


async def cancel_found(tx: Tx, ctx: EngineContext, job: Job, actor: Actor, reason: str) -> bool:
    """Cancel a job that was just read; if it is running, ask its worker to stop it. False: it has moved since."""
    return await by_itself(tx, ctx, "cancel", job, partial(_cancel, tx, ctx, job, actor, reason))


async def _cancel(tx: Tx, ctx: EngineContext, job: Job, actor: Actor, reason: str, which: Which) -> bool:
    if job.state is State.RUNNING:
        asked = job.cancel_requested_at is not None
        query = which(q.ask_to_cancel)
        return asked or bool(await move(tx, ctx, query, actor=actor, ids=[job.id], reason=reason))
    return bool(await move(tx, ctx, which(q.cancel_waiting), actor=actor, ids=[job.id], reason=reason))
