"""accept: a created job becomes eligible. A commit of its own where the lifecycle asks for it."""

from __future__ import annotations

from holdfast.engine.move import move
from holdfast.engine.rules import Rules
from holdfast.lifecycle import Actor
from holdfast.store import Row, Tx, q


async def accept(tx: Tx, rules: Rules, ids: list[str], *, actor: Actor) -> list[Row]:
    """Accept those that still wait for it; accepting twice is harmless."""
    rows = await move(tx, rules, q.accept_jobs, actor=actor, ids=sorted(ids))
    tx.after_commit(lambda: rules.wake(row["queue"] for row in rows))
    return rows


async def accept_orphans(tx: Tx, rules: Rules) -> list[Row]:
    """Finish the acceptance of jobs whose creator died between its two commits, so that nothing is lost."""
    seconds = rules.limits.accept_orphans_seconds
    if seconds <= 0:
        return []
    orphans = await tx.all(q.orphans, seconds=float(seconds), limit=rules.limits.sweep_batch)
    return await accept(tx, rules, [row["id"] for row in orphans], actor=Actor.SYSTEM) if orphans else []
