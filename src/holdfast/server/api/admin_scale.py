"""How many workers are wanted: what waits and what is busy, for whoever starts and stops them."""

from __future__ import annotations

from holdfast.engine.reads.queue_stats import Depth
from holdfast.errors import StoreUnavailable
from holdfast.model.names import check_name
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import LoadView, ScaleResponse


async def scale(server: ServerState, request: HttpRequest) -> Reply:
    """All tenants together: workers serve all of them. A queue that was asked for and holds no job has zeros."""
    depths = await server.engine.reads.queue_stats()
    if depths.counted_at is None:  # zeros would stop workers that are needed
        raise StoreUnavailable("the jobs are being counted for the first time: ask again", code="not_ready")
    found = depths.queues
    if (listed := request.query.queue) is not None:
        found = {name: found.get(name, Depth()) for name in _names(listed)}
    total = sum(found.values(), Depth())
    queues = {name: _load(depth) for name, depth in found.items()}
    return Reply(200, ScaleResponse(depths.counted_at, depths.slots, _load(total), queues))


def _names(listed: str) -> list[str]:
    return [check_name(name, "queue") for name in listed.split(",")]


def _load(depth: Depth) -> LoadView:
    return LoadView(
        oldest_wait_seconds=depth.oldest_seconds,
        backlog=depth.waiting,
        later=depth.later,
        busy_slots=depth.running,
        slots_wanted=depth.waiting + depth.running,
    )
