"""Admin routes for queues: list, pause, resume."""

from __future__ import annotations

from holdfast.engine.admin import queues
from holdfast.engine.admin.queues import Queue
from holdfast.server.api.admin import audited, operate
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import QueueMoved, QueuesResponse, QueueView


async def page(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, QueuesResponse([_view(queue) for queue in await server.engine.queues.all()]))


def _view(queue: Queue) -> QueueView:
    jobs = {state.value: number for state, number in queue.jobs.items()}
    return QueueView.of(queue, queue=queue.name, jobs=jobs, paused=queue.paused_at is not None)


async def pause(server: ServerState, request: HttpRequest) -> Reply:
    """No more jobs are claimed from it; running jobs continue, and jobs can be created."""
    name, tenant, by = request.path["queue"], request.query.tenant, request.caller.name
    action = audited(request, "queue.pause", name, tenant=tenant)
    await operate(server, action, lambda tx, _: queues.pause(tx, name, tenant=tenant, by=by))
    return Reply(200, QueueMoved(tenant, name, paused=True))


async def resume(server: ServerState, request: HttpRequest) -> Reply:
    name, tenant = request.path["queue"], request.query.tenant
    action = audited(request, "queue.resume", name, tenant=tenant)
    await operate(server, action, lambda tx, ctx: queues.resume(tx, ctx, name, tenant=tenant))
    return Reply(200, QueueMoved(tenant, name, paused=False))
