"""Admin routes for workers: list, inspect, disable, enable, revoke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model import WorkerRecord
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.store import Row
from holdfast.wire import HeldJob, WorkersResponse, WorkerView, WorkerWhole


async def page(server: ServerState, request: HttpRequest) -> Reply:
    held = await server.engine.workers.holds()
    found = await server.engine.workers.all()
    return Reply(200, WorkersResponse([WorkerView.of(worker, **_own_fields(worker, held)) for worker in found]))


async def get(server: ServerState, request: HttpRequest) -> Reply:
    worker = await server.engine.workers.get(request.path["worker_id"])
    jobs = [_held(row) for row in await server.engine.workers.held_jobs(worker.id)]
    held = await server.engine.workers.holds()
    return Reply(200, WorkerWhole.of(worker, **_own_fields(worker, held), jobs=jobs))


async def disable(server: ServerState, request: HttpRequest) -> Reply:
    """It claims no more jobs; it may finish those it holds."""
    await server.engine.workers.disable(request.path["worker_id"], by=request.caller.name)
    return await _changed(server, request)


async def enable(server: ServerState, request: HttpRequest) -> Reply:
    await server.engine.workers.enable(request.path["worker_id"], by=request.caller.name)
    return await _changed(server, request)


async def revoke(server: ServerState, request: HttpRequest) -> Reply:
    """Revoke its keys, so that it cannot finish the jobs it holds, and disable it."""
    await server.engine.workers.revoke(request.path["worker_id"], by=request.caller.name)
    return await _changed(server, request)


async def _changed(server: ServerState, request: HttpRequest) -> Reply:
    worker = await server.engine.workers.get(request.path["worker_id"])
    return Reply(200, WorkerView.of(worker, **_own_fields(worker, await server.engine.workers.holds())))


def _own_fields(worker: WorkerRecord, held: Mapping[str, int]) -> dict[str, Any]:
    return {"worker_id": worker.id, "worker_type": worker.kind, "holds": held.get(worker.id, 0)}


def _held(row: Row) -> HeldJob:
    return HeldJob(
        job_id=row["id"],
        job_type=row["type"],
        queue=row["queue"],
        tenant=row["tenant"],
        attempt=row["attempt"],
        claimed_at=row["claimed_at"],
        expires_at=row["lease_expires_at"],
        instance_id=row["lease_instance"],
        percent=row["percent"],
        step=row["step"],
    )
