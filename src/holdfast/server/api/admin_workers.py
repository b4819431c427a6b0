"""Workers, for operators: who may claim, who is alive, and what each holds."""

from __future__ import annotations

from typing import Any

from holdfast.model import Worker
from holdfast.server.http.route import Asked, Reply
from holdfast.server.state import Server
from holdfast.store import Row
from holdfast.wire import HeldJob, WorkersAnswer, WorkerView, WorkerWhole

_SAME = (
    *("status", "enabled", "liveness", "registered_at", "heartbeat_seconds", "offline_seconds", "name", "tenants"),
    *("capabilities", "offers", "metadata", "job_types", "slots", "last_heartbeat_at", "current_job_id"),
)


async def page(server: Server, asked: Asked) -> Reply:
    held = await server.engine.workers.holds()
    found = await server.engine.workers.all()
    return Reply(200, WorkersAnswer([_view(worker, held.get(worker.id, 0)) for worker in found]))


async def get(server: Server, asked: Asked) -> Reply:
    worker = await server.engine.workers.get(asked.path["worker_id"])
    held = await server.engine.workers.held_jobs(worker.id)
    number = (await server.engine.workers.holds()).get(worker.id, 0)
    return Reply(200, WorkerWhole(**_told(worker, number), jobs=[_held(row) for row in held]))


async def disable(server: Server, asked: Asked) -> Reply:
    """It claims nothing more; what it holds it may finish."""
    worker = await server.engine.workers.disable(asked.path["worker_id"], by=asked.caller.name)
    return await _answer(server, worker.id)


async def enable(server: Server, asked: Asked) -> Reply:
    worker = await server.engine.workers.enable(asked.path["worker_id"], by=asked.caller.name)
    return await _answer(server, worker.id)


async def revoke(server: Server, asked: Asked) -> Reply:
    """Its keys are good no more, so that it cannot finish what it holds, and it is disabled."""
    await server.engine.workers.revoke(asked.path["worker_id"], by=asked.caller.name)
    return await _answer(server, asked.path["worker_id"])


async def _answer(server: Server, worker_id: str) -> Reply:
    worker = await server.engine.workers.get(worker_id)
    return Reply(200, _view(worker, (await server.engine.workers.holds()).get(worker.id, 0)))


def _view(worker: Worker, holds: int) -> WorkerView:
    return WorkerView(**_told(worker, holds))


def _told(worker: Worker, holds: int) -> dict[str, Any]:
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
