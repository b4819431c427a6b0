"""accept: a created job becomes eligible. A commit of its own where the lifecycle asks for it."""

from __future__ import annotations

from holdfast.engine.lawful import movable
from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.lifecycle import Actor, State
from holdfast.store import Row, Tx, q


async def accept(tx: Tx, rules: Rules, ids: list[str], *, actor: Actor) -> list[Row]:
    """Accept those that still wait for it; accepting twice is harmless."""
    waiting = await movable(tx, rules, ids, "accept", State.CREATED, State.QUEUED, actor)
    rows = await move(tx, rules, q.accept_jobs, actor=actor, ids=[row["id"] for row in waiting]) if waiting else []
    tx.after_commit(lambda: rules.wake(rows), hint=True)
    return rows


async def accept_orphans(tx: Tx, rules: Rules) -> list[Row]:
    """Finish the acceptance of jobs whose creator died between its two commits, so that nothing is lost."""
    seconds = rules.limits.accept_orphans_seconds
    if seconds <= 0:
        return []
    orphans = await tx.all(q.orphans, seconds=float(seconds), limit=rules.limits.sweep_batch)
    return await _accept_ours(tx, rules, orphans, actor=Actor.SYSTEM)


async def accept_made(tx: Tx, rules: Rules, ids: list[str]) -> list[Row]:
    """What was handed in over the wire, in a commit of its own: before it, nobody runs the job."""
    rows = await tx.all(q.jobs_by_id, ids=ids)
    return await _accept_ours(tx, rules, rows, actor=Actor.API)


async def _accept_ours(tx: Tx, rules: Rules, rows: list[Row], *, actor: Actor) -> list[Row]:
    """A lifecycle may leave acceptance to others; its jobs then wait for them."""
    ids = []
    for row in rows:
        machine = (await rules.registry.snapshot(tx, row["policy"])).machine
        if machine.allows("accept", State.CREATED, State.QUEUED, actor):
            ids.append(row["id"])
    return await accept(tx, rules, ids, actor=actor) if ids else []
