"""Admin routes for workers: list, inspect, disable, enable, revoke."""

from __future__ import annotations

from typing import Any

from holdfast.model import WorkerRecord
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.store import Row
from holdfast.wire import HeldJob, WorkersResponse, WorkerView, WorkerWhole

_SAME = (
    *("status", "enabled", "liveness", "registered_at", "heartbeat_seconds", "offline_seconds", "name", "tenants"),
    *("capabilities", "offers", "metadata", "job_types", "slots", "last_heartbeat_at", "current_job_id"),
)


async def page(server: ServerState, request: HttpRequest) -> Reply:
    held = await server.engine.workers.holds()
    found = await server.engine.workers.all()
    return Reply(200, WorkersResponse([_view(worker, held.get(worker.id, 0)) for worker in found]))


async def get(server: ServerState, request: HttpRequest) -> Reply:
    worker = await server.engine.workers.get(request.path["worker_id"])
    held = await server.engine.workers.held_jobs(worker.id)
    number = (await server.engine.workers.holds()).get(worker.id, 0)
    return Reply(200, WorkerWhole(**_fields(worker, number), jobs=[_held(row) for row in held]))


async def disable(server: ServerState, request: HttpRequest) -> Reply:
    """It claims no more jobs; it may finish those it holds."""
    worker = await server.engine.workers.disable(request.path["worker_id"], by=request.caller.name)
    return await _answer(server, worker.id)


async def enable(server: ServerState, request: HttpRequest) -> Reply:
    worker = await server.engine.workers.enable(request.path["worker_id"], by=request.caller.name)
    return await _answer(server, worker.id)


async def revoke(server: ServerState, request: HttpRequest) -> Reply:
    """Revoke its keys, so that it cannot finish the jobs it holds, and disable it."""
    await server.engine.workers.revoke(request.path["worker_id"], by=request.caller.name)
    return await _answer(server, request.path["worker_id"])


async def _answer(server: ServerState, worker_id: str) -> Reply:
    worker = await server.engine.workers.get(worker_id)
    return Reply(200, _view(worker, (await server.engine.workers.holds()).get(worker.id, 0)))


def _view(worker: WorkerRecord, holds: int) -> WorkerView:
    return WorkerView(**_fields(worker, holds))


def _fields(worker: WorkerRecord, holds: int) -> dict[str, Any]:
    same = {name: getattr(worker, name) for name in _SAME}
    return {**same, "worker_id": worker.id, "worker_type": worker.kind, "holds": holds}


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
