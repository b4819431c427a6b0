"""Admin routes for limits and the weights of tenants: list, set, reset."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from holdfast.engine.admin import limits
from holdfast.errors import InvalidField
from holdfast.model.limits import TENANT, Limit, is_for_each_key
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.wire import AdminLimit, LimitBody, LimitsResponse, LimitValues


async def page(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, LimitsResponse([_view(each) for each in await server.engine.job_limits.all()]))


async def put(server: ServerState, request: HttpRequest) -> Reply:
    """In force from the next claim on, over what the app declares. The engine writes it to the audit log."""
    name, given = request.path["limit"], _given(request.body)
    limit = Limit.of(given.get("concurrency"), given.get("rate"), given.get("burst"))
    weight = given.get("weight")
    if weight is None and name.startswith(TENANT):
        weight = 1
    view = await server.engine.job_limits.set(name, limit, by=request.caller.name, weight=weight)
    return Reply(200, AdminLimit(name) if view is None else _view(view))


async def reset(server: ServerState, request: HttpRequest) -> Reply:
    name = request.path["limit"]
    view = await server.engine.job_limits.reset(name, by=request.caller.name)
    return Reply(200, AdminLimit(name) if view is None else _view(view))


def _given(body: LimitBody) -> dict[str, Any]:
    """An empty body is no request to lift the limit."""
    given = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    if not given:
        raise InvalidField(
            "give concurrency, rate, burst or weight; null lifts a limit, DELETE returns to what the app declares",
            field="concurrency",
        )
    return given


def _view(view: limits.LimitView) -> AdminLimit:
    return AdminLimit(
        view.name,
        *_parts(view.limit),
        weight=view.weight,
        used=None if is_for_each_key(view.name) else view.used,
        declared=None if view.declared is None else LimitValues(*_parts(view.declared)),
        set_by=view.set_by,
        updated_at=view.updated_at,
    )


def _parts(limit: Limit) -> tuple[int | None, float | None, float | None]:
    return limit.concurrency, limit.rate, limit.burst
