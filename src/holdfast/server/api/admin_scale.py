"""The admin route for autoscalers: backlog, busy slots and slots wanted."""

from __future__ import annotations

from holdfast.engine.reads.queue_stats import QueueDepth
from holdfast.errors import StoreUnavailable
from holdfast.model.names import check_name
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import LoadView, ScaleResponse


async def scale(server: ServerState, request: HttpRequest) -> Reply:
    """Of all tenants. A requested queue without jobs is returned with zeros."""
    depths = await server.engine.reads.queue_stats()
    if depths.counted_at is None:  # zeros would stop needed workers
        raise StoreUnavailable("the jobs are being counted for the first time: ask again", code="not_ready")
    found = depths.queues
    if (listed := request.query.queue) is not None:
        names = [check_name(name, "queue") for name in listed.split(",")]
        found = {name: found.get(name, QueueDepth()) for name in names}
    total = sum(found.values(), QueueDepth())
    queues = {name: _load(depth) for name, depth in found.items()}
    return Reply(200, ScaleResponse(depths.counted_at, depths.slots, _load(total), queues))


def _load(depth: QueueDepth) -> LoadView:
    return LoadView(
        oldest_wait_seconds=depth.oldest_seconds,
        backlog=depth.waiting,
        later=depth.later,
        busy_slots=depth.running,
        slots_wanted=depth.waiting + depth.running,
    )
