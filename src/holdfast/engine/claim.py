"""claim: lease up to n jobs to a worker, each with a new fencing token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.engine.context import EngineContext
from holdfast.engine.declare import adopt_lane
from holdfast.engine.fail import fail
from holdfast.engine.hooks.claim import Wanted, claim_plain, claim_with_hooks
from holdfast.engine.lane_scope import BEHIND_SECONDS, LaneScope
from holdfast.engine.lanes import Window, aged
from holdfast.engine.limited import Taken, limits_asked, take_limited
from holdfast.engine.turns import PRIORITY_MAX, PRIORITY_MIN, Turn, heads_of, in_order, in_turn
from holdfast.model import Lease
from holdfast.model.job import UnreadableJob
from holdfast.model.reports import Fail
from holdfast.store import Row, Tx, q

PASSES_MAX = 8
UNREADABLE = "unreadable_job"


async def claim(
    tx: Tx,
    ctx: EngineContext,
    *,
    worker: str,
    instance: str | None,
    queues: list[str] | None,
    types: list[str] | None,
    limit: int,
    seen: Window | None = None,
) -> list[Lease]:
    """Lease the most urgent jobs that this worker may run: read the heads of its lanes, then take from those in turn.

    The read takes no locks; each take is one guarded statement. Claim never touches a running job. `seen`: lanes that
    the caller has read.
    """
    leases: list[Lease] = []
    unreadable: list[UnreadableJob] = []
    scope = LaneScope(ctx, worker=worker, queues=queues, types=types)
    holder = {"worker": worker, "instance": instance, "limited": None}
    try:
        if seen is None:
            _read_leases(await _take_from_only(tx, ctx, scope, limit, holder), leases, unreadable)
        busy: frozenset[str] = frozenset()
        for _ in range(0 if leases else PASSES_MAX):
            leased, failed = len(leases), len(unreadable)
            if seen is None and (turns := scope.next_turns(limit - leased)):
                _read_leases(await _take_turns(tx, ctx, scope, turns, holder), leases, unreadable)
                if len(leases) >= limit:
                    break
                continue
            window, seen = seen or await scope.open_lanes(tx, limit - leased + len(busy)), None
            committed: list[Row] = []
            try:
                taken = await _take(tx, ctx, _without(window, busy), limit - leased, holder, committed)
            finally:
                _read_leases(committed, leases, unreadable)
            scope.plan_turns(window, taken)
            if len(leases) >= limit:
                break
            again = len(unreadable) > failed or taken.more or busy or taken.busy
            if not again and _is_over(ctx, window, len(leases) - leased):
                break
            busy = taken.busy and busy | taken.busy
        if unreadable:
            await _fail_unreadable(tx, ctx, unreadable, worker=worker)
    except Exception:
        if not (leases and tx.alone):  # leases that are committed must reach the worker
            raise
    return in_order(leases)


def _without(window: Window, busy: frozenset[str]) -> Window:
    """Without lanes whose limits another claim counts now: they hide no others."""
    if not busy:
        return window
    lanes = [
        row
        for row in window.lanes
        if not row["limited"] or busy.isdisjoint(bucket for bucket, *_ in limits_asked(row, row["bucket"]))
    ]
    return window._replace(lanes=lanes)


def _is_over(ctx: EngineContext, window: Window, taken: int) -> bool:
    """Whether another pass would find no more: a single lane was taken from without a floor."""
    if taken and ctx.limits.ageing_seconds is not None:  # each pass takes jobs of one priority
        return False
    if not window.complete and not window.lanes:  # the next window may have some
        return False
    return not taken or (window.complete and len(window.lanes) < 2)


async def _take_from_only(
    tx: Tx, ctx: EngineContext, scope: LaneScope, limit: int, holder: dict[str, Any]
) -> list[Row]:
    """Take from the only lane with jobs, without reading the lanes: the statement checks that it still is that, and
    takes nothing if it is not."""
    if (only := scope.only) is None:
        return []
    began, last = ctx.clock.monotonic(), scope.last_taken
    if last is not None and await scope.elsewhere(tx, only, last):
        return []
    priorities = (PRIORITY_MIN, PRIORITY_MAX) if last is None else (last.priority, last.priority)
    checked, after = (only, None) if last is None else (None, last.id)
    wanted = [(only, *priorities, 0.0, limit)]
    rows = await claim_plain(tx, ctx, q.claim_jobs, wanted, holder, unread=True, only=checked, after=after)
    if not tx.one_writer:
        scope.took(rows, limit, scope.seldom(began, BEHIND_SECONDS) if last is None else last.until)
    return rows


async def _take(
    tx: Tx, ctx: EngineContext, window: Window, limit: int, holder: dict[str, Any], rows: list[Row]
) -> Taken:
    """Take jobs from the lanes whose turn it is, and add them to `rows` as soon as they are leased."""
    lanes = {row["id"]: row for row in window.lanes}
    heads = heads_of(window.lanes)
    if ctx.limits.ageing_seconds is not None and heads:
        heads = await aged(tx, heads, ctx.limits.ageing_seconds)
    heads = in_turn(heads, lanes)
    shares = [
        (lanes[share.lane], (share.lane, share.floor, share.ceiling, float(lanes[share.lane]["waits"]), share.most))
        for share in (ctx.turns.shares(heads, limit) if heads else ())
    ]
    free = [share for share in shares if not share[0]["limited"]]
    limited = [share for share in shares if share[0]["limited"]]
    rows += await _take_shares(tx, ctx, free, holder) if free else []
    taken = await take_limited(tx, ctx, limited, window.shut, holder, _take_shares)
    rows += taken.rows
    if len(lanes) > 1:
        ctx.turns.took(row["tenant"] for row in rows)
    return taken._replace(rows=rows, lanes={lane["id"] for lane, _ in shares})


async def _take_turns(
    tx: Tx, ctx: EngineContext, scope: LaneScope, turns: list[Turn], holder: dict[str, Any]
) -> list[Row]:
    """Take a job for each turn, without reading the lanes: the statement checks that they are still open."""
    wanted = [(lane, floor, PRIORITY_MAX, 0.0, most) for (lane, floor), most in Counter(turns).items()]
    taken = await _take_plain(tx, ctx, wanted, holder, unread=True)
    if len(taken) < len(turns):
        scope.drop_turns()
    return taken


async def _take_shares(
    tx: Tx, ctx: EngineContext, shares: Sequence[tuple[Row, Wanted]], holder: dict[str, Any]
) -> list[Row]:
    """Take jobs from lanes: from those without hooks in one statement."""
    plain: list[Wanted] = []
    taken: list[Row] = []
    for lane, wanted in shares:
        if not lane["hooked"] and (needs := ctx.hooks.needs_of(lane["type"])):
            await adopt_lane(tx, lane["type"], lane["id"], needs)
        if lane["hooked"] or ctx.hooks.needs_of(lane["type"]):
            taken += await claim_with_hooks(tx, ctx, lane["type"], wanted, holder)
        else:
            plain.append(wanted)
    if plain:
        taken += await _take_plain(tx, ctx, plain, holder)
    return taken


async def _take_plain(
    tx: Tx, ctx: EngineContext, wanted: list[Wanted], holder: dict[str, Any], *, unread: bool = False
) -> list[Row]:
    leased = await claim_plain(tx, ctx, q.claim_jobs, wanted, holder, unread=unread)
    if not leased:  # other workers were faster, or the lanes are empty
        await tx.one(q.drop_stale_ready, lanes=[lane for lane, *_ in wanted])
    return leased


def _read_leases(rows: list[Row], leases: list[Lease], unreadable: list[UnreadableJob]) -> None:
    for row in rows:
        try:
            leases.append(Lease.from_row(row))
        except UnreadableJob as error:
            unreadable.append(error)


async def _fail_unreadable(tx: Tx, ctx: EngineContext, unreadable: list[UnreadableJob], *, worker: str) -> None:
    """Fail jobs whose row cannot be decoded: no worker could ever run them."""
    failures = [
        Fail(id=error.id, token=error.token, code=UNREADABLE, message=str(error), permanent=True)
        for error in unreadable
    ]
    await fail(tx, ctx, worker, failures)
