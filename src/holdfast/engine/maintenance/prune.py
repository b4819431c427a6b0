"""prune: finished jobs are deleted with their history when their time is over. Bounded per call."""

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
UNREAD_SECONDS = 7 * DAY  # so much longer a job is kept, at most, for webhooks that were not told of it
CLOCKS_SECONDS = 60.0  # by which the clocks of processes may differ
SEEN_SECONDS = 60.0  # after which every create sees a kept key: no statement of one lasts so long
OVERDUE_SECONDS = 300.0  # after its time a job that is still there counts as overdue
OVERDUE_MAX = 10_000  # counted


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
                check_number(seconds, f"retention_{state}")

    @property
    def deletes(self) -> bool:
        """Anything at all."""
        return any(True for _ in self.limits())

    def limits(self) -> list[tuple[State, float]]:
        """The states that are not kept for ever, and how many seconds each is kept."""
        kept = [(state, getattr(self, state.value)) for state in sorted(FINAL)]
        return [(state, float(seconds)) for state, seconds in kept if seconds is not None]


class Overdue(msgspec.Struct, frozen=True):
    """What pruning should have deleted some minutes ago, each counted up to `OVERDUE_MAX`."""

    jobs: int = 0
    deliveries: int = 0


async def prune(tx: Tx, ctx: EngineContext, retention: Retention, *, limit: int | None = None) -> int:
    """Delete up to `limit` jobs of each final state, oldest first, with their events and parts.

    Of a job whose idempotency key holds, the key is kept first, and a call at least `SEEN_SECONDS` later deletes the
    job. The answer counts both.
    """
    most = ctx.limits.sweep_batch
    bound = most if limit is None else min(check_limit(limit, "jobs"), most)
    await tx.all(q.prune_kept_keys, limit=bound)
    gone = await _prune(tx, ctx, retention, bound, ctx.plain)
    return gone + (await _prune(tx, ctx, retention, bound, ctx.mine) if ctx.hooks.extensions else 0)


async def _prune(tx: Tx, ctx: EngineContext, retention: Retention, bound: int, which: Which) -> int:
    ready: list[Found] = []
    held: list[tuple[str, datetime | None]] = []  # (job, when its key will be free)
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
        gone = [one.id for one in found]
        await run_effects(tx, ctx, "prune", [one.row for one in found])
        await delete(tx, gone, ctx.mine)
        return dict.fromkeys(gone, True)

    answers = await each_by_itself(tx, ctx, "prune", ready, settle) if ready else {}
    return sum(answer is True for answer in answers.values())


async def _prunable(tx: Tx, ctx: EngineContext, state: State, keep: float, limit: int, which: Which) -> list[Row]:
    """Without the jobs of which a webhook has still to be told. Where these fill a whole batch, jobs of tenants
    without a webhook are looked for by themselves: they do not wait for a reader that stands still."""
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
    """The oldest jobs whose time is over, but none of the tenants in `besides`."""
    wanted: dict[str, Any] = {"keep_seconds": keep, "besides": besides, "seen_seconds": SEEN_SECONDS}
    if state is State.SUCCEEDED:
        bound = _youngest(ctx, keep)
        return await tx.all(which(q.prunable_succeeded), bound=bound, limit=limit, **wanted)
    return await tx.all(which(q.prunable_unhappy), state=state.value, limit=limit, **wanted)


async def _listening(tx: Tx) -> list[str]:
    """The tenants that have a webhook."""
    return [row["tenant"] for row in await tx.all(q.listening_tenants)]


def _youngest(ctx: EngineContext, keep: float) -> str:
    """Nothing finishes before it was created: of younger ids none is old enough."""
    return uuid7_floor(ctx.clock.now() - timedelta(seconds=keep - CLOCKS_SECONDS))


async def _unread(tx: Tx, rows: list[Row], keep: float, tenants: list[str]) -> set[str]:
    """The jobs of which a webhook of their tenant has still to be told. If nothing reads for webhooks any more, a job
    waits for them no longer than `UNREAD_SECONDS` after its time."""
    if not tenants:
        return set()
    reader = await tx.one(q.reader, name=READER)
    if reader is None:  # it begins at the end of the log, behind all of these
        return set()
    waited = timedelta(seconds=keep + UNREAD_SECONDS)
    ids = [row["id"] for row in rows if row["tenant"] in tenants and row["now_at"] - row["finished_at"] < waited]
    if not ids:
        return set()
    place = {"pos": reader["pos"], "job_id": reader["job_id"], "seq": reader["seq"]}
    return {row["job_id"] for row in await tx.all(q.unread_jobs, ids=ids, **place)}


async def delete(tx: Tx, ids: list[str], which: Which = EngineContext.plain) -> int:
    """All of a finished job but the record of its attempts."""
    if not ids:
        return 0
    deleted = [row["id"] for row in await tx.all(which(q.prune_jobs), ids=ids)]
    for query in (q.prune_errors, q.prune_parts, q.prune_hook_failures):
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
