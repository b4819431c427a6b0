"""accept: a created job becomes claimable. Some lifecycles do this in a separate commit after create."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.batching import each
from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import ask_guards, moved_rows
from holdfast.engine.insert import Created
from holdfast.engine.move import move
from holdfast.engine.preconditions import movable
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.lifecycle import Actor, State
from holdfast.store import Row, Tx, q


async def accept(
    tx: Tx, ctx: EngineContext, *ids: str, actor: Actor = Actor.API, skip_refused: bool = False
) -> list[str]:
    """Accept the jobs that are still created, and return their ids; accepting a job twice changes nothing."""
    waiting = await movable(tx, ctx, ids, "accept", State.CREATED, State.QUEUED, actor)

    async def settle(which: Which, some: list[str]) -> list[Row]:
        return await move(tx, ctx, which(q.accept_jobs), actor=actor, ids=some)

    rows = await moved_rows(tx, ctx, "accept", waiting, settle, skip_refused=skip_refused)
    tx.after_commit(lambda: ctx.wake(rows), hint=True)
    return [row["id"] for row in rows]


async def accept_or_skip(tx: Tx, ctx: EngineContext, ids: list[str], *, actor: Actor) -> list[str]:
    """Accept, but leave out jobs that a hook refuses or fails, and jobs whose extensions this process does not have."""
    found = await tx.all(q.jobs_by_id, ids=ids) if ids else []
    possible = [row["id"] for row in found if not ctx.hooks.missing_of(row)]
    return await accept(tx, ctx, *possible, actor=actor, skip_refused=True)


async def accept_in_create(tx: Tx, ctx: EngineContext, ids: list[str], *, actor: Actor) -> None:
    """Accept jobs with hooks in the transaction that creates them. Raises what a hook raises: nothing is created."""
    await ask_guards(tx, ctx, "accept", {}, await tx.all(q.jobs_by_id, ids=ids))
    await move(tx, ctx, ctx.mine(q.accept_jobs), actor=actor, ids=ids)


async def accept_orphans(tx: Tx, ctx: EngineContext) -> int:
    """Accept jobs whose creator crashed between its two commits, so that no job is lost."""
    seconds = ctx.limits.accept_orphans_seconds
    if seconds <= 0:
        return 0
    found = await _accept_found(tx, ctx, seconds, ctx.plain)
    return found + (await _accept_found(tx, ctx, seconds, ctx.mine) if ctx.hooks.extensions else 0)


async def _accept_found(tx: Tx, ctx: EngineContext, seconds: float, which: Which) -> int:
    limit, skipped = ctx.limits.sweep_batch, set[int]()
    while True:
        orphans = await tx.all(which(q.orphans), seconds=float(seconds), not_ours=sorted(skipped), limit=limit)
        allowed = [row for row in orphans if await _may_accept(tx, ctx, row, Actor.SYSTEM)]
        others = {row["policy"] for row in orphans} - {row["policy"] for row in allowed}
        if len(orphans) < limit or others <= skipped:
            return len(await accept_or_skip(tx, ctx, [row["id"] for row in allowed], actor=Actor.SYSTEM))
        skipped |= others  # jobs that another actor accepts would fill every batch


async def accept_created(tx: Tx, ctx: EngineContext, ids: list[str]) -> list[str]:
    """Accept the jobs that the API may accept, in a second commit: before it, no worker can claim them."""
    rows = await tx.all(q.jobs_by_id, ids=ids)
    allowed = [row["id"] for row in rows if await _may_accept(tx, ctx, row, Actor.API)]
    return await accept(tx, ctx, *allowed)


async def _may_accept(tx: Tx, ctx: EngineContext, row: Row, actor: Actor) -> bool:
    """A lifecycle may leave acceptance to other actors; its jobs then wait for them."""
    machine = (await ctx.registry.snapshot(tx, row["policy"])).machine
    return machine.allows("accept", State.CREATED, State.QUEUED, actor)


async def accept_each(
    accept: Callable[[list[str]], Awaitable[list[str]]], made: list[Created | Exception]
) -> list[Created | Exception]:
    """Accept the jobs that are still created. Each error is the answer to its job: the job itself is stored."""
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
    results = {
        one.id: not_accepted(one.id, answer) if isinstance(answer, Exception) else answer
        for one, answer in zip(waiting, answers, strict=True)
    }
    return [results.get(one.id, one) if isinstance(one, Created) else one for one in made]


def not_accepted(job_id: str, error: Exception) -> OutcomeUnknown:
    """The create itself succeeded."""
    text = (
        f"job {job_id} is stored but not yet accepted ({{}}); repeat the request with the same idempotency key, or "
        "wait until maintenance accepts the job"
    )
    why = error.message if isinstance(error, HoldfastError) else type(error).__name__
    unknown = OutcomeUnknown(text.format(why), full=text.format(error), job_id=job_id)
    unknown.__cause__ = error
    return unknown
