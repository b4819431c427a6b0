"""Workers, for operators: who may claim, who is alive, and what each holds."""

from __future__ import annotations

from typing import Any

from holdfast.engine import keys, workers
from holdfast.engine.rules import Rules
from holdfast.model import Worker
from holdfast.server.admin import deed, operate
from holdfast.server.route import Asked, Reply
from holdfast.server.server import Server
from holdfast.store import Row, Tx
from holdfast.wire import HeldJob, WorkersAnswer, WorkerView, WorkerWhole

_SAME = (
    *("kind", "status", "enabled", "liveness", "registered_at", "heartbeat_seconds", "offline_seconds", "name"),
    *("tenants", "capabilities", "offers", "metadata", "job_types", "slots", "last_heartbeat_at"),
)


async def page(server: Server, asked: Asked) -> Reply:
    held = await server.engine.holds()
    found = await server.engine.workers()
    return Reply(200, WorkersAnswer([_view(worker, held.get(worker.id, 0)) for worker in found]))


async def get(server: Server, asked: Asked) -> Reply:
    worker = await server.engine.worker(asked.path["worker_id"])
    held = await server.engine.held_jobs(worker.id)
    number = (await server.engine.holds()).get(worker.id, 0)
    return Reply(200, WorkerWhole(**_told(worker, number), jobs=[_held(row) for row in held]))


async def disable(server: Server, asked: Asked) -> Reply:
    """It claims nothing more; what it holds it may finish."""
    return await _switch(server, asked, "worker.disable", enabled=False)


async def enable(server: Server, asked: Asked) -> Reply:
    return await _switch(server, asked, "worker.enable", enabled=True)


async def _switch(server: Server, asked: Asked, action: str, *, enabled: bool) -> Reply:
    worker_id = asked.path["worker_id"]
    told = deed(asked, action, worker_id)
    worker = await operate(server, told, lambda tx, _: workers.set_enabled(tx, worker_id, enabled=enabled))
    return await _answer(server, worker)


async def revoke(server: Server, asked: Asked) -> Reply:
    """Its keys are good no more, so that it cannot finish what it holds, and it is disabled."""
    worker_id = asked.path["worker_id"]

    async def work(tx: Tx, rules: Rules) -> tuple[Worker, list[str]]:
        taken = await keys.revoke_of_worker(tx, worker_id)
        return await workers.set_enabled(tx, worker_id, enabled=False), [key.id for key in taken]

    told = deed(asked, "worker.revoke", worker_id)
    worker, _ = await operate(server, told, work, keys=lambda done: done[1])
    return await _answer(server, worker)


async def _answer(server: Server, worker: Worker) -> Reply:
    return Reply(200, _view(worker, (await server.engine.holds()).get(worker.id, 0)))


def _view(worker: Worker, holds: int) -> WorkerView:
    return WorkerView(**_told(worker, holds))


def _told(worker: Worker, holds: int) -> dict[str, Any]:
    return {**{name: getattr(worker, name) for name in _SAME}, "worker_id": worker.id, "holds": holds}


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
