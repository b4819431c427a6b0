"""Queues, for operators: what waits where, and holding it back."""

from __future__ import annotations

from holdfast.engine.admin import queues
from holdfast.engine.admin.queues import Queue
from holdfast.model.hint import Hint
from holdfast.server.api.admin import deed, operate
from holdfast.server.http.route import Asked, Reply
from holdfast.server.state import Server
from holdfast.wire import QueueMoved, QueuesAnswer, QueueView


async def page(server: Server, asked: Asked) -> Reply:
    return Reply(200, QueuesAnswer([_view(queue) for queue in await server.engine.queues.all()]))


def _view(queue: Queue) -> QueueView:
    return QueueView(
        tenant=queue.tenant,
        queue=queue.name,
        jobs={state.value: number for state, number in queue.jobs.items()},
        paused=queue.paused_at is not None,
        oldest_waiting_at=queue.oldest_waiting_at,
        paused_at=queue.paused_at,
        paused_by=queue.paused_by,
    )


async def pause(server: Server, asked: Asked) -> Reply:
    """Nothing more is claimed from it; what runs goes on, and new jobs may be created."""
    name, tenant, by = asked.path["queue"], asked.query.tenant, asked.caller.name
    told = deed(asked, "queue.pause", name, tenant=tenant)
    await operate(server, told, lambda tx, _: queues.pause(tx, name, tenant=tenant, by=by))
    return Reply(200, QueueMoved(tenant, name, paused=True))


async def resume(server: Server, asked: Asked) -> Reply:
    name, tenant = asked.path["queue"], asked.query.tenant
    told = deed(asked, "queue.resume", name, tenant=tenant)
    await operate(server, told, lambda tx, _: queues.resume(tx, name, tenant=tenant))
    server.engine.ctx.hint([Hint(name)])
    return Reply(200, QueueMoved(tenant, name, paused=False))
