"""prune: delete finished jobs and their history after the retention time, in bounded batches."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.hooks.moves import Found, each_by_itself, run_effects
from holdfast.engine.idempotency import held_until, is_free
from holdfast.engine.webhooks.deliveries import KEPT_SECONDS as DELIVERIES_KEPT_SECONDS
from holdfast.engine.webhooks.webhooks import READER
from holdfast.ids import uuid7_floor
from holdfast.lifecycle import FINAL, State
from holdfast.model.numbers import check_limit, check_number
from holdfast.store import Row, Tx, q

DAY = 86_400.0
UNREAD_SECONDS = 7 * DAY  # the longest that a job is kept for webhooks that have not read its events
CLOCKS_SECONDS = 60.0  # the largest difference between clocks of processes
SEEN_SECONDS = 60.0  # after this time every create sees a kept key: none of its statements takes longer
OVERDUE_SECONDS = 300.0  # a job this long after its retention time is overdue
OVERDUE_MAX = 10_000  # counted up to this


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to keep jobs of each final state, and then the records of their attempts; None keeps them forever."""

    succeeded: float | None = 7 * DAY
    dead: float | None = 30 * DAY
    canceled: float | None = 30 * DAY
    rejected: float | None = 30 * DAY
    attempts: float | None = None  # of deleted jobs, from the end of each attempt

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if seconds is not None:
                check_number(seconds, f"retention_{name}")

    def limits(self) -> list[tuple[State, float]]:
        """The states with a retention time, and its seconds."""
        kept = [(state, getattr(self, state.value)) for state in sorted(FINAL)]
        return [(state, float(seconds)) for state, seconds in kept if seconds is not None]


class Overdue(msgspec.Struct, frozen=True):
    """What `prune` should have deleted minutes ago, each counted up to `OVERDUE_MAX`."""

    jobs: int = 0
    deliveries: int = 0


async def prune(tx: Tx, ctx: EngineContext, retention: Retention, *, limit: int | None = None) -> int:
    """Delete up to `limit` jobs of each final state, oldest first, with their events and parts.

    If a job still holds its idempotency key, this call stores the key separately, and a call at least `SEEN_SECONDS`
    later deletes the job. The returned number counts both, and the records of attempts that it deletes.
    """
    most = ctx.limits.sweep_batch
    bound = most if limit is None else min(check_limit(limit, "jobs"), most)
    await tx.all(q.prune_kept_keys, limit=bound)
    pruned = await _prune_attempts(tx, retention.attempts, bound)
    pruned += await _prune(tx, ctx, retention, bound, ctx.plain)
    return pruned + (await _prune(tx, ctx, retention, bound, ctx.mine) if ctx.hooks.extensions else 0)


async def _prune_attempts(tx: Tx, keep: float | None, limit: int) -> int:
    """The records of the attempts of deleted jobs."""
    if keep is None:
        return 0
    old = sorted({row["job_id"] for row in await tx.all(q.old_attempts, keep_seconds=keep, limit=limit)})
    return len(await tx.all(q.prune_attempts, ids=old, keep_seconds=keep)) if old else 0


async def _prune(tx: Tx, ctx: EngineContext, retention: Retention, bound: int, which: Which) -> int:
    ready: list[Found] = []
    held: list[tuple[str, datetime | None]] = []  # (job, when its key becomes free)
    for state, keep in retention.limits():
        for row in await _prunable(tx, ctx, state, keep, bound, which):
            if not row["key_live"] or row["kept"] or await is_free(tx, ctx, row):
                ready.append(Found(row["id"], row))
            else:
                held.append((row["id"], await held_until(tx, ctx, row)))
    kept = await tx.all(q.keep_keys, held=held) if held else []
    if which == ctx.plain:
        return len(kept) + await delete(tx, [one.id for one in ready])
    return len(kept) + await _delete_with_hooks(tx, ctx, ready)


async def _delete_with_hooks(tx: Tx, ctx: EngineContext, ready: list[Found]) -> int:
    async def settle(found: list[Found]) -> dict[str, bool]:
        ids = [one.id for one in found]
        await run_effects(tx, ctx, "prune", [one.row for one in found])
        await delete(tx, ids, ctx.mine)
        return dict.fromkeys(ids, True)

    answers = await each_by_itself(tx, ctx, "prune", ready, settle) if ready else {}
    return sum(answer is True for answer in answers.values())


async def _prunable(tx: Tx, ctx: EngineContext, state: State, keep: float, limit: int, which: Which) -> list[Row]:
    """Jobs to delete, without those whose events a webhook has still to read. If such jobs fill a whole batch, also
    look for jobs of tenants without webhooks, so that a stalled reader does not block them."""
    rows = await _candidates(tx, ctx, state, keep, limit, [], which)
    tenants = await _listening(tx) if rows else []
    unread = await _unread(tx, rows, keep, tenants)
    found = [row for row in rows if row["id"] not in unread]
    if unread and len(rows) == limit:
        known = {row["id"] for row in found}
        others = await _candidates(tx, ctx, state, keep, limit, tenants, which)
        found += [row for row in others if row["id"] not in known]
    return found[:limit]


async def _candidates(
    tx: Tx, ctx: EngineContext, state: State, keep: float, limit: int, besides: list[str], which: Which
) -> list[Row]:
    """The oldest jobs after their retention time, except those of the tenants in `besides`."""
    wanted: dict[str, Any] = {"keep_seconds": keep, "besides": besides, "seen_seconds": SEEN_SECONDS}
    if state is State.SUCCEEDED:
        bound = _youngest(ctx, keep)
        return await tx.all(which(q.prunable_succeeded), bound=bound, limit=limit, **wanted)
    return await tx.all(which(q.prunable_unhappy), state=state.value, limit=limit, **wanted)


async def _listening(tx: Tx) -> list[str]:
    """The tenants that have a webhook."""
    return [row["tenant"] for row in await tx.all(q.listening_tenants)]


def _youngest(ctx: EngineContext, keep: float) -> str:
    """An upper bound of the ids: a job with a younger id was created, and so finished, too late."""
    return uuid7_floor(ctx.clock.now() - timedelta(seconds=keep - CLOCKS_SECONDS))


async def _unread(tx: Tx, rows: list[Row], keep: float, tenants: list[str]) -> set[str]:
    """The jobs whose events a webhook of their tenant has still to read. If the webhook reader stands still, a job is
    kept at most `UNREAD_SECONDS` after its retention time."""
    if not tenants:
        return set()
    reader = await tx.one(q.reader, name=READER)
    if reader is None:  # a new reader starts at the end of the log, after these events
        return set()
    waited = timedelta(seconds=keep + UNREAD_SECONDS)
    ids = [row["id"] for row in rows if row["tenant"] in tenants and row["now_at"] - row["finished_at"] < waited]
    if not ids:
        return set()
    place = {"pos": reader["pos"], "job_id": reader["job_id"], "seq": reader["seq"]}
    return {row["job_id"] for row in await tx.all(q.unread_jobs, ids=ids, **place)}


async def delete(tx: Tx, ids: list[str], which: Which = EngineContext.plain) -> int:
    """Delete finished jobs with everything except the record of their attempts."""
    if not ids:
        return 0
    deleted = [row["id"] for row in await tx.all(which(q.prune_jobs), ids=ids)]
    for query in (q.keep_attempts, q.prune_parts, q.prune_hook_failures):
        await tx.all(query, ids=deleted)
    if events := await tx.all(q.prune_events, ids=deleted):
        await tx.one(q.note_pruned, pos=max(row["pos"] for row in events))
    return len(deleted)


async def overdue(tx: Tx, ctx: EngineContext, retention: Retention) -> Overdue:
    jobs = 0
    for state, keep in retention.limits():
        late = keep + OVERDUE_SECONDS
        if state is State.SUCCEEDED:
            bound = _youngest(ctx, late)
            [row] = await tx.all(q.overdue_succeeded, keep_seconds=late, bound=bound, limit=OVERDUE_MAX)
        else:
            [row] = await tx.all(q.overdue_unhappy, state=state.value, keep_seconds=late, limit=OVERDUE_MAX)
        jobs += row["jobs"]
    seconds = DELIVERIES_KEPT_SECONDS + OVERDUE_SECONDS
    [row] = await tx.all(q.overdue_deliveries, seconds=seconds, limit=OVERDUE_MAX)
    return Overdue(min(jobs, OVERDUE_MAX), row["deliveries"])
