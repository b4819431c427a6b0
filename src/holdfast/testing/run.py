"""`drain`: runs a real worker in a test until nothing is due."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model import Lease
from holdfast.model.reports import Complete, Fail, Rejection
from holdfast.sdk.handle import failure_of
from holdfast.testing.child import reference_for
from holdfast.testing.source import MOVES_MAX, DrainSource
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.config import WorkerConfig
from holdfast.worker.context import Context, ErrorHook
from holdfast.worker.execution import Execution
from holdfast.worker.executor import HandlerResources
from holdfast.worker.handler import MiddlewareStack
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.outcomes import Outcome, Recorded
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.worker.runtime import Worker
from holdfast.worker.source import VERBS, Answers, Report

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.sdk.app import App
    from holdfast.testing.clock import SharedClock


@dataclass(frozen=True)
class Ran:
    """One execution of a job. `verb` is how it ended: complete, fail, reject, or release if it was snoozed."""

    job_id: str
    type: str
    payload: dict[str, Any]
    attempt: int
    verb: str
    result: Any = None
    error: Exception | None = None


async def drain(app: App, clock: SharedClock, *, until_done: bool) -> list[Ran]:
    engine, slots, errors = await app.engine(), app.settings.concurrency, _Errors(app.middleware_stack.on_error)
    registered = await engine.workers.register(name="test", capabilities=_all_capabilities(app), slots=slots)
    source = DrainSource(engine, clock, app.ids, worker=registered.id, until_done=until_done)
    table, child = LeaseTable.create(), reference_for(app, clock)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(table.close)
        source.runtime = Worker(
            source,
            app.handlers,
            config=WorkerConfig(concurrency=slots, heartbeats=False),
            resources=HandlerResources(
                middleware=MiddlewareStack(app.middleware_stack.middleware, errors),
                state=await stack.enter_async_context(app.lifespan_state()),
                pool=None if child is None else ProcessPool(child, most=slots, clock=clock),
                database=app.handler_database,
            ),
            lease_table=table,
            clock=clock,
            ids=app.ids,
            attempt_log=_CompletedLog(source),
        )
        await source.runtime.run()
    ran = [await _ran(engine, lease, report, errors) for lease, report in source.ended]
    if source.endless:
        raise _did_not_finish(ran)
    return ran


class _CompletedLog(AttemptLog):
    """Records jobs that their handlers complete in a transaction: there is no report for them."""

    def __init__(self, source: DrainSource) -> None:
        super().__init__()
        self._source = source

    def ended(self, group: Sequence[tuple[Execution, Outcome]], answers: Answers) -> None:
        for run, outcome in group:
            if isinstance(outcome, Recorded):
                self._source.ended.append((run.lease, Complete(run.lease.id, run.lease.token, outcome.result)))
        super().ended(group, answers)


def _all_capabilities(app: App) -> dict[str, bool]:
    """Everything that the job types require or prefer."""
    declared = [handler.job_type for handler in app.handlers.values()]
    return {name: True for one in declared for name in (*one.requires, *one.prefers)}


def _did_not_finish(ran: list[Ran]) -> HoldfastError:
    often = Counter(each.type for each in ran).most_common(3)
    named = ", ".join(f"{name} ({times} times)" for name, times in often)
    return HoldfastError(
        f"jobs are still waiting after {MOVES_MAX} moves of the clock; ran {named}", code="drain_did_not_finish"
    )


class _Errors(dict[str, BaseException]):
    """By lease token: calls the app's error hook and keeps the errors."""

    def __init__(self, hook: ErrorHook | None) -> None:
        self._hook = hook

    async def __call__(self, context: Context, error: BaseException) -> None:
        self[context.lease_token] = error
        if self._hook is not None:
            told = self._hook(context, error)
            if inspect.isawaitable(told):
                await told


async def _ran(engine: Engine, lease: Lease, report: Report, errors: _Errors) -> Ran:
    result = report.result if isinstance(report, Complete) else None
    error = await _error(engine, report, errors) if isinstance(report, Fail | Rejection) else None
    return Ran(lease.id, lease.type, lease.payload, lease.attempt, VERBS[type(report)], result, error)


async def _error(engine: Engine, report: Fail | Rejection, errors: _Errors) -> Exception:
    """What the handler raised. `JobFailed` if that is not available, as after a timeout or from a child process, and
    for errors that would end the test run, such as `SystemExit`."""
    cause = errors.get(report.token)
    if isinstance(cause, Exception):
        return cause
    job = await engine.reads.get(report.id)
    failed = failure_of(msgspec.structs.replace(job, error={"code": report.code, "message": report.message}))
    failed.__cause__ = cause
    if report.context and "traceback" in report.context:
        failed.add_note(report.context["traceback"])
    return failed
