"""prune: finished jobs leave with their history when their time is over. Off unless asked for; bounded per call."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.engine.rules import Rules
from holdfast.ids import uuid7_floor
from holdfast.lifecycle import FINAL, State
from holdfast.model.numbers import check_limit, check_number
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
            if seconds is not None:
                check_number(seconds, f"seconds to keep {state} jobs", code="invalid_retention")

    @property
    def deletes(self) -> bool:
        """Anything at all."""
        return any(getattr(self, state.value) is not None for state in FINAL)


async def prune(tx: Tx, rules: Rules, retention: Retention, *, limit: int | None = None) -> int:
    """Delete up to `limit` jobs of each final state, oldest first, with their events, attempts and parts."""
    most = rules.limits.sweep_batch
    bound = most if limit is None else min(check_limit(limit, "jobs"), most)
    gone = 0
    for state in sorted(FINAL):
        keep = getattr(retention, state.value)
        if keep is not None:
            gone += await _prune_state(tx, rules, state, float(keep), bound)
    return gone


async def _prune_state(tx: Tx, rules: Rules, state: State, keep: float, limit: int) -> int:
    if state is State.SUCCEEDED:
        # Nothing finishes before it was created: younger ids need no look. A minute covers clocks that differ.
        newest = uuid7_floor(rules.clock.now() - timedelta(seconds=keep - 60))
        rows = await tx.all(q.prunable_succeeded, keep_seconds=keep, bound=newest, limit=limit)
    else:
        rows = await tx.all(q.prunable_unhappy, state=state.value, keep_seconds=keep, limit=limit)
    ids = [row["id"] for row in rows]
    if not ids:
        return 0
    deleted = [row["id"] for row in await tx.all(q.prune_jobs, ids=ids)]
    for query in (q.prune_events, q.prune_attempts, q.prune_parts):
        await tx.all(query, ids=deleted)
    return len(deleted)
