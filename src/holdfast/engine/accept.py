"""accept: a created job becomes eligible. A commit of its own where the lifecycle asks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.batching import each
from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import Found, ask_guards, moved_or_refused
from holdfast.engine.insert import Created
from holdfast.engine.move import move
from holdfast.engine.preconditions import movable
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.lifecycle import Actor, State
from holdfast.store import Row, Tx, q


async def accept(tx: Tx, ctx: EngineContext, ids: list[str], *, actor: Actor) -> list[Row]:
    """Accept those that still wait for it; accepting twice is harmless."""
    waiting = await movable(tx, ctx, ids, "accept", State.CREATED, State.QUEUED, actor)
    rows, refused = await _accept(tx, ctx, waiting, actor)
    if refused and len(waiting) == 1:
        raise refused[0]
    return rows


async def accept_willing(tx: Tx, ctx: EngineContext, ids: list[str], *, actor: Actor) -> list[Row]:
    """The same, leaving out those that hooks refuse or fail, and those whose hooks this process does not have."""
    found = await tx.all(q.jobs_by_id, ids=ids)
    willing = [row["id"] for row in found if not ctx.hooks.missing_of(row)]
    waiting = await movable(tx, ctx, willing, "accept", State.CREATED, State.QUEUED, actor)
    return (await _accept(tx, ctx, waiting, actor))[0]


async def _accept(
    tx: Tx, ctx: EngineContext, waiting: list[Row], actor: Actor
) -> tuple[list[Row], list[HoldfastError]]:

    async def settle(which: Which, found: list[Found]) -> dict[str, Row]:
        if which == ctx.mine:
            await ask_guards(tx, ctx, "accept", {}, [one.row for one in found])
        moved = await move(tx, ctx, which(q.accept_jobs), actor=actor, ids=[one.id for one in found])
        return {row["id"]: row for row in moved}

    rows, refused = await moved_or_refused(tx, ctx, "accept", waiting, settle)
    tx.after_commit(lambda: ctx.wake(rows), hint=True)
    return rows, refused


async def accept_born(tx: Tx, ctx: EngineContext, ids: list[str], *, actor: Actor) -> None:
    """Jobs with hooks on this verb, accepted by the transaction that creates them. What these refuse or fail is raised:
    then nothing was created."""
    await ask_guards(tx, ctx, "accept", {}, await tx.all(q.jobs_by_id, ids=ids))
    await move(tx, ctx, ctx.mine(q.accept_jobs), actor=actor, ids=ids)


async def accept_orphans(tx: Tx, ctx: EngineContext) -> list[Row]:
    """Finish the acceptance of jobs whose creator died between its two commits, so that nothing is lost."""
    seconds = ctx.limits.accept_orphans_seconds
    if seconds <= 0:
        return []
    found = await _accept_found(tx, ctx, seconds, ctx.plain)
    return found + (await _accept_found(tx, ctx, seconds, ctx.mine) if ctx.hooks.extensions else [])


async def _accept_found(tx: Tx, ctx: EngineContext, seconds: float, which: Which) -> list[Row]:
    limit, not_ours = ctx.limits.sweep_batch, set[int]()
    while True:
        orphans = await tx.all(which(q.orphans), seconds=float(seconds), not_ours=sorted(not_ours), limit=limit)
        ours = [row for row in orphans if await _is_ours(tx, ctx, row, Actor.SYSTEM)]
        others = {row["policy"] for row in orphans} - {row["policy"] for row in ours}
        if len(orphans) < limit or others <= not_ours:
            return await accept_willing(tx, ctx, [row["id"] for row in ours], actor=Actor.SYSTEM) if ours else []
        not_ours |= others  # jobs of these policies wait for others, and would hide all that come after them


async def accept_made(tx: Tx, ctx: EngineContext, ids: list[str]) -> list[Row]:
    """What was handed in over the wire, in a commit of its own: before it, nobody runs the job."""
    rows = await tx.all(q.jobs_by_id, ids=ids)
    ours = [row["id"] for row in rows if await _is_ours(tx, ctx, row, Actor.API)]
    return await accept(tx, ctx, ours, actor=Actor.API) if ours else []


async def _is_ours(tx: Tx, ctx: EngineContext, row: Row, actor: Actor) -> bool:
    """A lifecycle may leave acceptance to others; its jobs then wait for them."""
    machine = (await ctx.registry.snapshot(tx, row["policy"])).machine
    return machine.allows("accept", State.CREATED, State.QUEUED, actor)


async def accept_each(
    accept: Callable[[list[str]], Awaitable[list[str]]], made: list[Created | Exception]
) -> list[Created | Exception]:
    """Accept those that still wait for it. To repeat this is harmless, and creating is over."""
    waiting = [one for one in made if isinstance(one, Created) and one.waits]
    if not waiting:
        return made

    async def accepted(some: list[Created]) -> list[Created]:
        done = await accept([one.id for one in some])
        return [one.accepted() if one.id in done else one for one in some]

    answers: Sequence[Created | Exception]
    try:
        answers = await each(accepted, waiting)
    except Exception as error:
        answers = [error] * len(waiting)
    told = {
        one.id: not_accepted(one.id, answer) if isinstance(answer, Exception) else answer
        for one, answer in zip(waiting, answers, strict=True)
    }
    return [told.get(one.id, one) if isinstance(one, Created) else one for one in made]


def not_accepted(job_id: str, error: Exception) -> OutcomeUnknown:
    """Not a failure of the create: that has happened."""
    told = (
        f"job {job_id} is stored but not yet accepted ({{}}); repeat the request with the same key, or maintenance "
        "accepts the job later"
    )
    why = error.message if isinstance(error, HoldfastError) else type(error).__name__
    unknown = OutcomeUnknown(told.format(why), full=told.format(error), job_id=job_id)
    unknown.__cause__ = error
    return unknown
