"""prune: finished jobs leave with their history when their time is over. Off unless asked for; bounded per call."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.engine.rules import Rules
from holdfast.errors import Invalid
from holdfast.ids import uuid7_floor
from holdfast.lifecycle import FINAL, State
from holdfast.store import Tx, q

DAY = 86_400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to keep each final state; None keeps it for ever."""

    succeeded: float | None = 7 * DAY
    dead: float | None = 30 * DAY
    canceled: float | None = 30 * DAY
    rejected: float | None = 30 * DAY

    def __post_init__(self) -> None:
        for state in FINAL:
            seconds = getattr(self, state.value)
            if seconds is not None and seconds < 0:
                raise Invalid(f"retention of {state} must not be negative, got {seconds}", code="invalid_retention")


async def prune(tx: Tx, rules: Rules, retention: Retention, *, limit: int | None = None) -> int:
    """Delete up to `limit` jobs of each final state, oldest first, with their events, attempts and parts."""
    bound = min(limit or rules.limits.sweep_batch, rules.limits.sweep_batch)
    gone = 0
    for state in sorted(FINAL):
        keep = getattr(retention, state.value)
        if keep is not None:
            gone += await _prune_state(tx, rules, state, float(keep), bound)
    return gone


async def _prune_state(tx: Tx, rules: Rules, state: State, keep: float, limit: int) -> int:
    # Nothing finishes before it was created, so younger ids need not be looked at. A minute covers clocks that differ.
    newest = uuid7_floor(rules.clock.now() - timedelta(seconds=keep - 60))
    rows = await tx.all(q.prunable_jobs, state=state.value, keep_seconds=keep, bound=newest, limit=limit)
    ids = [row["id"] for row in rows]
    if not ids:
        return 0
    deleted = [row["id"] for row in await tx.all(q.prune_jobs, ids=ids)]
    for query in (q.prune_events, q.prune_attempts, q.prune_parts):
        await tx.all(query, ids=deleted)
    return len(deleted)
