"""claim: lease up to n jobs to a worker, each with a new fencing token."""

from __future__ import annotations

from typing import Any

from holdfast.engine.context import EngineContext
from holdfast.engine.declare import adopt_lane
from holdfast.engine.fail import fail
from holdfast.engine.hooks.claim import claim_plain, claim_with_hooks
from holdfast.engine.lanes import Window, open_lanes
from holdfast.engine.leases import check_worker
from holdfast.engine.turns import PRIORITY_MIN, OpenHead
from holdfast.errors import InvalidField, NotFound, WorkerDisabled
from holdfast.model import Lease
from holdfast.model.job import UnreadableJob
from holdfast.model.names import check_name, quoted
from holdfast.model.numbers import check_limit
from holdfast.model.reports import Fail
from holdfast.store import Row, Tx, q

PASSES_MAX = 8
SCOPES_MAX = 1000  # of claims of this process, remembered
ONLY_SECONDS = 1.0  # the worker may register again, with other capabilities
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
) -> list[Lease]:
    """Lease the most urgent jobs that this worker may run: read the heads of its lanes, then take from those in turn.

    The read takes no locks; each take is one guarded statement. Claim never touches a running job.
    """
    leases: list[Lease] = []
    unreadable: list[UnreadableJob] = []
    scope = _Scope(ctx, worker=worker, queues=queues, types=types)
    holder = {"worker": worker, "instance": instance}
    try:
        _read_leases(await _take_from_only(tx, ctx, scope, limit, holder), leases, unreadable)
        for _ in range(0 if leases else PASSES_MAX):
            leased, failed = len(leases), len(unreadable)
            window = await scope.open_lanes(tx, limit - leased)
            rows = await _take(tx, ctx, window.lanes, limit - leased, holder) if window.lanes else []
            _read_leases(rows, leases, unreadable)
            if len(leases) >= limit or (len(unreadable) == failed and _is_over(window, len(leases) - leased)):
                break
        if unreadable:
            await _fail_unreadable(tx, ctx, unreadable, worker=worker)
    except Exception:
        if not (leases and tx.alone):  # leases that are committed must reach the worker
            raise
    return sorted(leases, key=lambda lease: (-lease.priority, lease.id))


def _is_over(window: Window, taken: int) -> bool:
    """Whether another pass would find no more: a single lane was taken from without a floor."""
    if not window.complete and not window.lanes:  # the next window may have some
        return False
    return not taken or (window.complete and len(window.lanes) < 2)


class _Scope:
    """What a claim asks for, and the lane that was the only one with jobs when it was last asked for."""

    def __init__(self, ctx: EngineContext, **asked: Any) -> None:
        self._ctx, self._asked = ctx, asked
        self._key = tuple(tuple(names) if isinstance(names, list) else names for names in asked.values())

    @property
    def only(self) -> int | None:
        lane, until = self._ctx.only_lanes.get(self._key, (None, 0.0))
        return lane if self._ctx.clock.monotonic() < until else None

    async def open_lanes(self, tx: Tx, jobs: int) -> Window:
        ctx = self._ctx
        query, most = ctx.mine(q.open_lanes), ctx.limits.lanes_max
        window = await open_lanes(tx, query, ctx.lane_cursors, most=most, jobs=jobs, **self._asked)
        if window.only is None or ctx.hooks.needs_of(window.lanes[0]["type"]):
            ctx.only_lanes.pop(self._key, None)
        else:
            if len(ctx.only_lanes) >= SCOPES_MAX:
                ctx.only_lanes.clear()
            ctx.only_lanes[self._key] = window.only, ctx.clock.monotonic() + ONLY_SECONDS
        return window


async def _take_from_only(tx: Tx, ctx: EngineContext, scope: _Scope, limit: int, holder: dict[str, Any]) -> list[Row]:
    """Take from the only lane with jobs, without reading the lanes: the statement checks that it still is that."""
    if (only := scope.only) is None:
        return []
    return await claim_plain(tx, ctx, q.claim_jobs, [(only, PRIORITY_MIN, 0.0, limit)], holder, only)


async def _take(tx: Tx, ctx: EngineContext, lanes: list[Row], limit: int, holder: dict[str, Any]) -> list[Row]:
    """Take jobs from the lanes whose turn it is: from those without hooks in one statement."""
    heads = [OpenHead(row["id"], row["priority"], row["head"], row["tenant"], row["weight"]) for row in lanes]
    by_id = {row["id"]: row for row in lanes}
    plain: list[tuple[int, int, float, int]] = []
    taken: list[Row] = []
    for lane_id, floor, most in ctx.turns.shares(heads, limit):
        lane = by_id[lane_id]
        wanted = (lane_id, floor, float(lane["waits"]), most)
        if not lane["hooked"] and (needs := ctx.hooks.needs_of(lane["type"])):
            await adopt_lane(tx, lane["type"], lane_id, needs)
        if lane["hooked"] or ctx.hooks.needs_of(lane["type"]):
            taken += await claim_with_hooks(tx, ctx, lane["type"], wanted, holder)
        else:
            plain.append(wanted)
    if plain:
        leased = await claim_plain(tx, ctx, q.claim_jobs, plain, holder)
        if not leased:  # other workers were faster, or the lanes are empty
            await tx.one(q.drop_stale_ready, lanes=[lane_id for lane_id, *_ in plain])
        taken += leased
    if len(lanes) > 1:
        ctx.turns.took(row["tenant"] for row in taken)
    return taken


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


async def overdue(tx: Tx, ctx: EngineContext, worker: str, queues: list[str] | None) -> bool:
    """Whether there are due retries or expired leases to requeue. Raises if the worker may not claim."""
    row = await tx.one(ctx.mine(q.overdue), worker=worker, queues=queues)
    if row is None:
        raise NotFound(f"worker {worker} is not registered; register it before it claims", code="worker_not_found")
    if not row["enabled"]:
        raise WorkerDisabled(f"worker {worker} was disabled by an operator; it may finish its jobs but claims no more")
    return bool(row["ripe"] or row["lost"])


def check_claim(
    ctx: EngineContext, worker: str, instance: str | None, queues: list[str] | None, types: list[str] | None, limit: int
) -> None:
    check_worker(worker)
    check_limit(limit, "jobs", most=ctx.limits.claim_max)
    if instance is not None:
        check_name(instance, "instance_id")
    check_list(queues, "queues")
    check_list(types, "job_types")


def check_list(names: list[str] | None, field: str) -> None:
    if names is not None and not isinstance(names, list | tuple):
        raise InvalidField(f"{field} must be a list of names, got {quoted(names)}", field=field)
    for name in names or ():
        check_name(name, field, "each of ")
