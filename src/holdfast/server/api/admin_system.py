"""Admin routes for lifecycles, settings and the audit log."""

from __future__ import annotations

from holdfast.errors import NotFound, UnknownName
from holdfast.lifecycle import Machine
from holdfast.lifecycle.render import mermaid, to_data
from holdfast.server.api.admin_views import camel_keys
from holdfast.server.http.route import HttpRequest, Reply
from holdfast.server.state import ServerState
from holdfast.settings import shown
from holdfast.wire import (
    AuditLine,
    AuditResponse,
    LifecyclesResponse,
    LifecycleView,
    SettingsResponse,
    SettingView,
    VerifyResponse,
)


async def lifecycles(server: ServerState, request: HttpRequest) -> Reply:
    return Reply(200, LifecyclesResponse([_view(machine) for machine in await server.engine.reads.lifecycles()]))


async def lifecycle(server: ServerState, request: HttpRequest) -> Reply:
    try:
        return Reply(200, _view((await server.engine.reads.lifecycles())[request.path["name"]]))
    except UnknownName as error:
        raise NotFound(error.message, code=error.code) from None


def _view(machine: Machine) -> LifecycleView:
    data = to_data(machine)
    return LifecycleView(**{**data, "policy": camel_keys(data["policy"])}, mermaid=mermaid(machine))


async def settings(server: ServerState, request: HttpRequest) -> Reply:
    rows = [*shown(server.settings), *server.extension_settings()]
    return Reply(200, SettingsResponse([SettingView(*setting) for setting in rows]))


async def audit(server: ServerState, request: HttpRequest) -> Reply:
    page = await server.engine.audit.page(before=request.query.cursor, limit=request.query.limit)
    return Reply(200, AuditResponse([AuditLine.of(line) for line in page.lines], page.next))


async def verify(server: ServerState, request: HttpRequest) -> Reply:
    found = await server.engine.audit.verify(seq=request.query.seq, digest=request.query.digest)
    return Reply(200, VerifyResponse.of(found, valid=found.wrong is None, seq=found.last))
