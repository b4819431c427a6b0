"""Shared by the admin routes: job filters, and changes that are written to the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.engine import Filter
from holdfast.engine.admin.audit import AuditedAction
from holdfast.engine.context import EngineContext
from holdfast.engine.reads.states import state_filter
from holdfast.lifecycle import State
from holdfast.server.http.route import HttpRequest
from holdfast.server.state import ServerState
from holdfast.store import Tx
from holdfast.wire import JobFilter

T = TypeVar("T")


def audited(request: HttpRequest, action: str, subject: str | None = None, **detail: Any) -> AuditedAction:
    return AuditedAction(request.caller.name, action, subject, detail)


async def operate(server: ServerState, action: AuditedAction, work: Callable[[Tx, EngineContext], Awaitable[T]]) -> T:
    """Run a change and write it to the audit log in one transaction."""
    engine = server.engine
    return await engine.audit.record(lambda tx: work(tx, engine.ctx), lambda _: action)


async def filter_of(server: ServerState, asked_for: JobFilter, otherwise: tuple[State, ...] = ()) -> Filter:
    """`otherwise`: the states if neither state nor status is given."""
    machines = await server.engine.reads.lifecycles()
    return Filter(
        tenant=asked_for.tenant,
        **state_filter(machines, state=asked_for.state, status=asked_for.status, otherwise=otherwise),
        types=None if asked_for.job_type is None else [asked_for.job_type],
        queues=None if asked_for.queue is None else [asked_for.queue],
        tag=asked_for.tag,
        subject=asked_for.subject,
        parent_id=asked_for.parent_id,
        created_after=asked_for.created_after,
        created_before=asked_for.created_before,
        error_code=asked_for.error_code,
    )
