"""Run one transition: the guarded statement, the effects of extensions, and, after the commit, the observers."""

from __future__ import annotations

from typing import Any

from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.moves import run_effects
from holdfast.lifecycle import FINAL, Actor, State
from holdfast.store import Row, Tx
from holdfast.store.queries import Query

NEVER_END = (None, "claim")  # moves after which a job goes on; None: it was created, or no state has changed


async def move(
    tx: Tx,
    ctx: EngineContext,
    query: Query,
    *,
    actor: Actor,
    limit: int | None = None,
    brief: bool = False,
    **params: Any,
) -> list[Row]:
    """Run a guarded statement and return the rows that it changed; it leaves jobs that do not match as they are.

    `brief`: fetch only the columns that the caller needs, and those of the observers.
    """
    wanted, timing = query, ctx.timing if ctx.timing is not None and ctx.timing.observes(query) else None
    if brief and timing is None:
        wanted = query.observed if ctx.observers else query.minimal
    rows = await tx.all(wanted, limit=limit, actor=actor.value, **params)
    verb = "create" if query.create else query.move  # None: a cancel request or a report is no transition
    if rows and query.mine and verb is not None and any(ctx.hooks.effects(verb, row["type"]) for row in rows):
        if query.create:  # the lock timeout of create is only for idempotency keys
            await tx.wait_for_locks()
        await run_effects(tx, ctx, verb, rows)
    if rows and ctx.observers:
        tx.after_commit(lambda: _notify(ctx, wanted, rows, actor))
    if rows and timing is not None:
        tx.after_commit(lambda: timing.record(wanted, rows))
    if rows and query.move not in NEVER_END:
        tx.after_commit(lambda: _tell_of_ended(ctx, query, rows))
        if ctx.given_with_limits:
            tx.after_commit(lambda: ctx.freed_limited(rows), hint=True)
    return rows


def _tell_of_ended(ctx: EngineContext, query: Query, rows: list[Row]) -> None:
    """To callers that wait for results."""
    if ctx.ended is not None:
        all_ended = query.ends == State.SUCCEEDED  # rows that are fetched in brief have no state
        if ids := [row["id"] for row in rows if all_ended or row["state"] in FINAL]:
            ctx.ended(ids)


def _notify(ctx: EngineContext, query: Query, rows: list[Row], actor: Actor) -> None:
    for observer in ctx.observers:
        observer(query, rows, actor.value)
