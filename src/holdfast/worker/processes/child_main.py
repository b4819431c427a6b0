"""The program of a child process, for `isolation="process"`: loads the app, then runs one job after the other."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast import errors
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, Invalid
from holdfast.model import Part
from holdfast.model.json import encode, readable
from holdfast.model.reports import Progress, Withdrawal, Withdrawn
from holdfast.observe.logs import configure
from holdfast.observe.tracing import exported
from holdfast.worker.context import Context
from holdfast.worker.handler import Handler, MiddlewareStack, invoke
from holdfast.worker.outcomes import (
    TRACEBACK_CHARS_MAX,
    Abandoned,
    Failed,
    Outcome,
    Recorded,
    Rejected,
    Released,
    of_error,
)
from holdfast.worker.processes.app_loader import load
from holdfast.worker.processes.child_protocol import (
    FROM_CHILD_BYTES_MAX,
    CallResult,
    Channel,
    ChildReady,
    ContextFlag,
    Done,
    Ended,
    GetParts,
    MetricsUpdate,
    Open,
    Refusal,
    ReportProgress,
    RunJob,
    SetFlag,
    StartFailed,
    Withdraw,
    pack,
    to_worker,
)
from holdfast.worker.processes.parent_death import die_with_parent
from holdfast.worker.processes.rlimits import limited, rss_bytes
from holdfast.worker.processes.signal_mask import STOPS, unblock_signals
from holdfast.worker.transactions import Database

if TYPE_CHECKING:
    from holdfast.observe.extension_metrics import Declarations
    from holdfast.observe.traces import Traces

REPORT_BYTES_MAX = FROM_CHILD_BYTES_MAX - 1024  # fits into one message with its envelope
METRICS_SECONDS = 5.0  # between two updates of metrics, while a handler reports nothing
TEXT_CHARS_MAX = 50_000  # of an error: truncated here; the engine keeps less


class ChildApp(Protocol):
    """The part of an app that a child needs."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    @property
    def middleware_stack(self) -> MiddlewareStack: ...

    def lifespan_state(self) -> AbstractAsyncContextManager[Any]: ...

    @property
    def handler_database(self) -> Database: ...

    def configure(self, settings: dict[str, Any]) -> None: ...

    async def close(self) -> None: ...

    def declarations(self) -> Declarations: ...


def main() -> None:
    fd, parent, reference = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.set_inheritable(fd, False)  # processes that the handler starts must not hold the socket open
    die_with_parent(fd, parent=parent)
    faulthandler.enable()
    for stop in STOPS:  # the worker decides what happens to the job
        signal.signal(stop, lambda *_: None)  # not SIG_IGN, which processes of the handler would inherit
    unblock_signals()
    asyncio.run(_serve(socket.socket(fileno=fd), reference))


async def _serve(sock: socket.socket, reference: str) -> None:
    worker = await to_worker(sock)
    first = await worker.receive()
    if not isinstance(first, Open):
        return
    if first.logs is not None:
        configure(first.logs)
    settings = first.settings
    try:
        app: ChildApp = load(reference, first.path)
        if settings is not None:
            app.configure(settings)
        lifespan = app.lifespan_state()
        state = await lifespan.__aenter__()
    except BaseException as error:  # also SystemExit, which an app may raise when it is imported
        reason = "".join(traceback.format_exception_only(error)).strip()
        await worker.send(StartFailed(_text(reason), _text(traceback.format_exc()[-TRACEBACK_CHARS_MAX:])))
        return
    async with exported("holdfast-worker", wanted=bool(settings and settings.get("traces"))) as traces:
        try:
            await _JobRunner(app, state, worker, traces, app.handler_database if first.database else None).work()
        finally:
            await app.close()
            await lifespan.__aexit__(None, None, None)


class _JobRunner:
    def __init__(
        self, app: ChildApp, state: Any, worker: Channel[Any], traces: Traces | None, database: Database | None
    ) -> None:
        self._database = database
        self._app, self._state, self._worker, self._traces = app, state, worker, traces
        self._declarations = app.declarations()
        self._backend, self._clock = _SocketBackend(worker, self._send_metrics), Clock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-job")
        self._threads.submit(int).result()  # start the thread before memory is limited
        self._context: Context | None = None
        self._task: asyncio.Task[Outcome] | None = None

    async def work(self) -> None:
        await self._worker.send(ChildReady(rss_bytes()))
        reports = set()
        while (message := await self._worker.receive()) is not None:
            match message:
                case RunJob(lease):
                    self._context = Context(lease, self._backend, self._state, self._database)
                    self._task = asyncio.create_task(self._run(self._context))
                    reports = {asyncio.create_task(self._report(self._context, self._task))}
                case SetFlag(word):
                    self._set_flag(word)
                case CallResult():
                    self._backend.on_result(message)
        await asyncio.gather(*reports)

    async def _run(self, context: Context) -> Outcome:
        handler = self._app.handlers.get(context.job_type)
        if handler is None:
            return Failed("E_CHILD_START", f"the app in the child process has no job type {context.job_type!r}")
        if self._traces is not None:
            self._traces.inside(context.lease)
        with limited(handler.memory_bytes, handler.cpu_seconds):
            return await invoke(handler, context, context.lease.payload, self._app.middleware_stack, self._threads)

    async def _report(self, context: Context, task: asyncio.Task[Outcome]) -> None:
        since = self._clock.monotonic()
        while not (await asyncio.wait({task}, timeout=METRICS_SECONDS))[0]:
            self._send_metrics()
        seconds = self._clock.monotonic() - since
        self._context = self._task = None
        self._send_metrics()
        await self._worker.send(Ended(rss_bytes(), _packed_outcome(_readable(_outcome(context, task))), seconds))

    def _send_metrics(self) -> None:
        """The metrics that handlers have updated."""
        for snapshot in self._declarations.take():
            self._worker.post(MetricsUpdate(msgspec.Raw(pack(snapshot))))

    def _set_flag(self, word: ContextFlag) -> None:
        """Set the flag in the context; async handlers are interrupted too, except by a warning of the shutdown."""
        if self._context is None or self._task is None:  # the job has ended meanwhile
            return
        setattr(self._context, word, True)
        handler = self._app.handlers.get(self._context.job_type)
        if word is not ContextFlag.STOPPING and handler is not None and handler.is_async:
            self._task.cancel()


class _SocketBackend:
    """Implements `ContextBackend` over the socket to the worker."""

    def __init__(self, worker: Channel[Any], send_metrics: Callable[[], None]) -> None:
        self._worker, self._send_metrics = worker, send_metrics
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[CallResult]] = {}

    async def progress(self, report: Progress) -> None:
        await self._request(ReportProgress(next(self._numbers), rss_bytes(), _packed_report(report)))

    async def parts(self, job_id: str) -> list[Part]:
        return (await self._request(GetParts(next(self._numbers), rss_bytes(), job_id))).parts

    async def withdraw(self, pending: Withdrawal) -> Withdrawn:
        answer = await self._request(Withdraw(next(self._numbers), rss_bytes(), pending))
        assert answer.withdrawn is not None  # noqa: S101
        return answer.withdrawn

    async def recorded(self, outcome: Recorded) -> None:
        await self._request(Done(next(self._numbers), rss_bytes(), msgspec.Raw(pack(outcome))))

    async def _request(self, request: ReportProgress | GetParts | Withdraw | Done) -> CallResult:
        pending: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()
        self._pending[request.number] = pending
        try:
            self._send_metrics()
            await self._worker.send(request)
            answer = await pending
        finally:
            del self._pending[request.number]
        if answer.refusal is not None:
            raise _error(answer.refusal)
        return answer

    def on_result(self, answer: CallResult) -> None:
        if (pending := self._pending.get(answer.number)) is not None and not pending.done():
            pending.set_result(answer)


def _packed_report(report: Progress) -> msgspec.Raw:
    """Validated here: JSON would silently turn NaN into null and a date into text."""
    told = {"percent": report.percent, "counters": report.counters, "checkpoint": report.checkpoint}
    for what, value in (*told.items(), *(("part", part.data) for part in report.parts)):
        encode(value, what, max_bytes=REPORT_BYTES_MAX)
    try:
        packed = pack(report)
    except (TypeError, ValueError) as error:
        raise Invalid(f"progress cannot be stored: {error}", code="progress_not_json") from None
    if len(packed) > REPORT_BYTES_MAX:
        raise Invalid(f"progress is {len(packed)} bytes, the limit is {REPORT_BYTES_MAX}", code="progress_too_large")
    return msgspec.Raw(packed)


def _outcome(context: Context, task: asyncio.Task[Outcome]) -> Outcome:
    if not task.cancelled():
        error = task.exception()
        return task.result() if error is None else of_error(error, {})
    if context.lost:
        return Abandoned()
    if context.cancel_requested:
        return Released()
    return Failed("E_CANCELLED", "the handler was cancelled from inside")


def _packed_outcome(outcome: Outcome) -> msgspec.Raw:
    try:
        return msgspec.Raw(pack(outcome))
    except (TypeError, ValueError) as error:
        return msgspec.Raw(pack(Failed("invalid_outcome", _text(error), permanent=True)))


def _readable(outcome: Outcome) -> Outcome:
    """An error message may contain anything, such as file names that are not valid text."""
    if not isinstance(outcome, Failed | Rejected):
        return outcome
    context = outcome.context and {
        name: _text(value) if isinstance(value, str) else value for name, value in outcome.context.items()
    }
    return msgspec.structs.replace(outcome, message=_text(outcome.message), context=context)


def _text(value: Any) -> str:
    return readable(str(value)[:TEXT_CHARS_MAX])


def _error(refusal: Refusal) -> HoldfastError:
    kind: type[HoldfastError] = getattr(errors, refusal.kind, HoldfastError)
    return kind(refusal.message, code=refusal.code)


if __name__ == "__main__":
    main()
