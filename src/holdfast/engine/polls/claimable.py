"""Polls of workers: whether there is something to claim, which leases are current, which jobs to stop."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.leases import check_list, check_worker
from holdfast.errors import NotFound, WorkerDisabled
from holdfast.model.reports import HeldLease
from holdfast.store import Row, Tx, q


class ClaimPoll(msgspec.Struct, frozen=True):
    """What a claim would find now: claimable jobs (`due`), delayed jobs that are due (`ripe`), expired leases (`lost`).

    `next_in`: seconds until the first delayed job of any queue is ripe, or a limit has tokens again; None if nothing is
    delayed.
    """

    enabled: bool
    due: bool
    ripe: bool
    lost: bool
    next_in: float | None

    @property
    def any(self) -> bool:
        return self.enabled and (self.due or self.ripe or self.lost)


async def poll(
    tx: Tx, ctx: EngineContext, worker: str, queues: list[str] | None = None, types: list[str] | None = None
) -> ClaimPoll:
    """What a claim would find, in one query: an idle worker asks this first."""
    check_worker(worker)
    check_list(queues, "queues")
    check_list(types, "job_types")
    row = await tx.one(ctx.mine(q.claimable), worker=worker, queues=queues, types=types, limit=ctx.limits.lanes_max)
    if row is None:
        raise NotFound(f"worker {worker} is not registered; register it before it claims", code="worker_not_found")
    ripe_in = seconds_until(row, "next_at")
    return ClaimPoll(
        enabled=bool(row["enabled"]),
        due=bool(row["due"]),
        ripe=ripe_in is not None and ripe_in <= 0,
        lost=bool(row["lost"]),
        next_in=next_in(row),
    )


async def overdue(tx: Tx, ctx: EngineContext, worker: str, queues: list[str] | None) -> bool:
    """Whether there are due retries or expired leases to requeue. Raises if the worker may not claim."""
    row = await tx.one(ctx.mine(q.overdue), worker=worker, queues=queues)
    if row is None:
        raise NotFound(f"worker {worker} is not registered; register it before it claims", code="worker_not_found")
    if not row["enabled"]:
        raise WorkerDisabled(f"worker {worker} was disabled by an operator; it may finish its jobs but claims no more")
    return bool(row["ripe"] or row["lost"])


def next_in(row: Row) -> float | None:
    """Seconds until the first delayed job is ripe, or a limit has tokens again."""
    waits = (seconds_until(row, "next_at"), seconds_until(row, "next_turn_at"), row["tokens_in"])
    return min((max(0.0, each) for each in waits if each is not None), default=None)


def seconds_until(row: Row, name: str) -> float | None:
    at: datetime | None = row[name]
    return None if at is None else (at - row["seen_at"]).total_seconds()


async def claiming_instances(tx: Tx) -> list[str]:
    """The processes that may hold leases: some may have finished their jobs."""
    return [row["lease_instance"] for row in await tx.all(q.claiming_instances)]


async def instances(tx: Tx, names: list[str] | None = None) -> list[str]:
    """The processes that hold leases, of those with these names."""
    return [row["lease_instance"] for row in await tx.all(q.instances, instances=names)]


async def held_by(tx: Tx, worker: str, *instances: str) -> list[HeldLease]:
    check_worker(worker)
    check_list(list(instances), "instances")
    rows = await tx.all(q.held_by, worker=worker, instances=list(instances))
    return [HeldLease(row["id"], row["lease_token"]) for row in rows]


async def to_stop(tx: Tx, worker: str, leases: list[HeldLease]) -> list[HeldLease]:
    """The leases whose jobs must stop: a cancel was requested, or the worker does not hold them any more."""
    check_worker(worker)
    ids = [lease.id for lease in leases if lease.plausible]
    rows = await tx.all(q.still_held, ids=ids, worker=worker) if ids else []
    going_on = {(row["id"], row["lease_token"]) for row in rows}
    return [lease for lease in leases if (lease.id, lease.token) not in going_on]
