"""claim: lease up to n jobs to a worker, each with a new fencing token."""

from __future__ import annotations

from typing import Any

from holdfast.engine.context import EngineContext
from holdfast.engine.declare import adopt_lane
from holdfast.engine.fail import fail
from holdfast.engine.hooks.claim import claim_with_hooks
from holdfast.engine.leases import check_worker
from holdfast.engine.move import move
from holdfast.errors import InvalidField, NotFound, WorkerDisabled
from holdfast.lifecycle import Actor
from holdfast.model import Lease
from holdfast.model.job import UnreadableJob
from holdfast.model.names import check_name, quoted
from holdfast.model.numbers import check_limit
from holdfast.model.reports import Fail
from holdfast.store import Row, Tx, q

PASSES_MAX = 8
UNREADABLE = "unreadable_job"
PRIORITY_MIN = -100


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
    """Lease the most urgent jobs that this worker may run: read the heads of its lanes, then take from the best lane.

    The read takes no locks; each take is one guarded statement. Claim never touches a running job.
    """
    leases: list[Lease] = []
    unreadable: list[UnreadableJob] = []
    try:
        for _ in range(PASSES_MAX):
            leased, failed = len(leases), len(unreadable)
            query, most = ctx.mine(q.open_lanes), ctx.limits.lanes_max
            lanes = await tx.all(query, worker=worker, queues=queues, types=types, limit=most)
            await _take(tx, ctx, lanes, leases, unreadable, limit, worker=worker, instance=instance)
            if len(leases) == limit or (len(unreadable) == failed and (len(lanes) < 2 or len(leases) == leased)):
                break  # a single lane was taken from without a floor, so it has no more
        if unreadable:
            await _fail_unreadable(tx, ctx, unreadable, worker=worker)
    except Exception:
        if not (leases and tx.alone):  # leases that are committed must reach the worker
            raise
    return sorted(leases, key=lambda lease: (-lease.priority, lease.id))


async def _take(
    tx: Tx,
    ctx: EngineContext,
    lanes: list[Row],
    leases: list[Lease],
    unreadable: list[UnreadableJob],
    limit: int,
    **holder: Any,
) -> None:
    """Take from the best lane down to the priority of the next lane's head, then from lanes at least as urgent.

    Below that priority another lane may have more urgent jobs behind its head, so the lanes are read again first.
    """
    before, floor = len(leases), PRIORITY_MIN
    for lane, after in zip(lanes, [*lanes[1:], None], strict=False):
        if len(leases) == before:
            floor = PRIORITY_MIN if after is None else after["priority"]
        elif lane["priority"] < floor or len(leases) == limit:
            return
        wanted: dict[str, Any] = {
            "lane": lane["id"],
            "floor": floor,
            "waits": float(lane["waits"]),
            "most": limit - len(leases),
            "limit": ctx.limits.claim_max,
        }
        if not lane["hooked"] and (needs := ctx.hooks.needs_of(lane["type"])):
            await adopt_lane(tx, lane["type"], lane["id"], needs)
        if lane["hooked"] or ctx.hooks.needs_of(lane["type"]):
            rows = await claim_with_hooks(tx, ctx, lane["type"], wanted, holder)
        else:
            rows = await move(tx, ctx, q.claim_jobs, actor=Actor.WORKER, brief=True, **wanted, **holder)
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
