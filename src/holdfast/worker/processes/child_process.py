"""One child process, as its worker sees it: started, given a job, interrupted, killed, and its exit explained."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, Invalid
from holdfast.model import Lease
from holdfast.model.reports import Progress
from holdfast.observe.extension_metrics import Declarations
from holdfast.worker.context import ContextBackend
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Failed, Outcome, Recorded
from holdfast.worker.processes.child_protocol import (
    CallResult,
    Channel,
    ChildReady,
    ContextFlag,
    Done,
    Ended,
    GetParts,
    MalformedMessage,
    MetricsUpdate,
    Open,
    Refusal,
    ReportProgress,
    RunJob,
    SetFlag,
    StartFailed,
    Withdraw,
    to_child,
)
from holdfast.worker.processes.signal_mask import signals_blocked

START_SECONDS = 60.0  # to import the app and enter its lifespan
GOODBYE_SECONDS = 2.0  # to leave the lifespan
DRAIN_SECONDS = 1.0  # to read what a child sent before it died

_T = TypeVar("_T")
_OUTCOME: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


class ChildExecution:
    """One job in a child process, for the worker to stop. Does nothing once the job has ended."""

    def __init__(self, child: ChildProcess) -> None:
        self.pid = child.pid
        self.seconds: float | None = None  # how long the handler ran, once it has returned
        self._child: ChildProcess | None = child

    def cancel(self) -> None:
        self._tell(ContextFlag.CANCEL)

    def lose(self) -> None:
        self._tell(ContextFlag.LOSE)

    def stopping(self) -> None:
        self._tell(ContextFlag.STOPPING)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def over(self) -> None:
        self._child = None  # it may already run another job

    def _tell(self, word: ContextFlag) -> None:
        if self._child is not None:
            self._child.channel.post(SetFlag(word))


class NotStarted(Exception):
    def __init__(self, reason: str, context: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.context = context


class ChildProcess:
    def __init__(
        self, process: asyncio.subprocess.Process, channel: Channel[Any], clock: Clock, metrics: Declarations
    ) -> None:
        self._process, self.channel, self._clock, self._metrics = process, channel, clock, metrics
        self.pid = process.pid
        self.exited = asyncio.create_task(self._wait())
        self.busy = False
        self._jobs = self._rss_bytes = 0

    @classmethod
    async def spawn(cls, reference: str, clock: Clock, metrics: Declarations) -> ChildProcess:
        """A new interpreter in its own session: processes that a handler starts are killed with it."""
        try:
            ours, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as undo:
                undo.enter_context(ours)
                process = await _interpreter(theirs.fileno(), reference)
                undo.pop_all()
        except OSError as error:
            raise NotStarted(str(error)) from error
        return cls(process, await to_child(ours), clock, metrics)

    async def open(self, first: Open) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                await self.channel.send(first)
                message = await self._until_exit(self.channel.receive())
        except TimeoutError:
            raise NotStarted(f"it was not ready within {START_SECONDS:g} s") from None
        except MalformedMessage as error:
            raise NotStarted(f"it sent {error}") from None
        match message:
            case ChildReady(rss_bytes):
                self._rss_bytes = rss_bytes
            case StartFailed(reason, traceback):
                raise NotStarted(reason, {"traceback": traceback})
            case _:
                raise NotStarted(f"it {_ending(await self._exit_code())[0]}")

    async def run(
        self, lease: Lease, handler: Handler, backend: ContextBackend, on_started: Callable[[ChildExecution], None]
    ) -> Outcome:
        execution = ChildExecution(self)
        self.busy, since = True, self._clock.monotonic()
        try:
            await self.channel.send(RunJob(lease))
            on_started(execution)
            ended = await self._until_exit(self._serve(backend))
        except MalformedMessage as error:
            return Failed("E_CRASHED", f"the child process sent {error}", {"rssBytes": self._rss_bytes})
        finally:
            execution.over()
        if ended is None:
            return await self._crashed(handler, since)
        self.busy = False
        self._jobs += 1
        execution.seconds = ended.seconds
        return _outcome(ended)

    def fit(self, jobs_max: int | None, rss_max_bytes: int | None) -> bool:
        """Whether it can run another job."""
        return (
            not self.busy
            and not self.exited.done()
            and (jobs_max is None or self._jobs < jobs_max)
            and (rss_max_bytes is None or self._rss_bytes <= rss_max_bytes)
        )

    def kill(self) -> None:
        if not self.exited.done():
            self._kill_group()

    async def leave(self) -> None:
        if not self.busy:
            self.channel.finish()
        await asyncio.wait({self.exited}, timeout=GOODBYE_SECONDS)
        self.kill()
        await self.exited
        self.channel.close()

    async def _wait(self) -> int:
        code = await self._process.wait()
        self._metrics.forget(self)
        self._kill_group()  # processes that the handler has left behind
        return code

    async def _exit_code(self) -> int:
        """A child that has only closed its socket is killed."""
        await asyncio.wait({self.exited}, timeout=DRAIN_SECONDS)
        self.kill()
        return await self.exited

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _until_exit(self, talk: Coroutine[Any, Any, _T]) -> _T | None:
        """Watches its exit, not only the end of the socket: a process that it forked may hold that open."""
        talking = asyncio.create_task(talk)
        try:
            await asyncio.wait({talking, self.exited}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({talking}, timeout=DRAIN_SECONDS)
            return talking.result() if talking.done() else None
        finally:
            talking.cancel()

    async def _serve(self, backend: ContextBackend) -> Ended | None:
        while (message := await self.channel.receive()) is not None:
            match message:
                case ReportProgress() | GetParts() | Withdraw() | Done():
                    self._rss_bytes = message.rss_bytes
                    await self.channel.send(await _answer(message, backend))
                case MetricsUpdate():
                    self._metrics.merge(self, message.metrics)
                    if self.exited.done():  # its counters stay, its gauges do not
                        self._metrics.forget(self)
                case Ended():
                    self._rss_bytes = message.rss_bytes
                    return message
                case _:
                    raise MalformedMessage(f"an unexpected {type(message).__name__}")
        return None

    async def _crashed(self, handler: Handler, since: float) -> Failed:
        how, context = _ending(await self._exit_code())
        code = "E_CPU_LIMIT" if context.get("signal") == "SIGXCPU" else "E_CRASHED"
        message = f"the child process {how} after {self._clock.monotonic() - since:.1f} s; {_limits(handler)}"
        return Failed(code, message, {**context, "rssBytes": self._rss_bytes})


async def _interpreter(fd: int, reference: str) -> asyncio.subprocess.Process:
    """It inherits nothing of the worker: no memory, and no file but its socket and the output."""
    with signals_blocked():
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast.worker.processes.child_main", str(fd), str(os.getpid()), reference),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,
        )


async def _answer(request: ReportProgress | GetParts | Withdraw | Done, backend: ContextBackend) -> CallResult:
    try:
        if isinstance(request, GetParts):
            return CallResult(request.number, await backend.parts(request.job_id))
        if isinstance(request, Withdraw):
            return CallResult(request.number, withdrawn=await backend.withdraw(request.asked))
        if isinstance(request, Done):
            await backend.recorded(msgspec.json.decode(request.outcome, type=Recorded))
            return CallResult(request.number)
        await backend.progress(msgspec.json.decode(request.progress, type=Progress))
        return CallResult(request.number)
    except msgspec.ValidationError as error:
        refused: HoldfastError = Invalid(f"progress cannot be stored: {error}", code="invalid_progress")
    except HoldfastError as error:
        refused = error
    return CallResult(request.number, refusal=Refusal(type(refused).__name__, refused.code, refused.message))


def _outcome(ended: Ended) -> Outcome:
    try:
        return _OUTCOME.decode(ended.outcome)
    except msgspec.ValidationError as error:
        return Failed("invalid_outcome", f"what the handler raised or returned cannot be stored: {error}", None, True)


def _ending(code: int) -> tuple[str, dict[str, Any]]:
    if code >= 0:
        return f"ended with exit code {code}", {"exitcode": code}
    name = _signal_name(-code)
    return f"was killed by {name}", {"signal": name}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name of their own
        return f"signal {number}"


def _limits(handler: Handler) -> str:
    limits = []
    if handler.memory_bytes is not None:
        limits.append(f"memory {handler.memory_bytes} bytes")
    if handler.cpu_seconds is not None:
        limits.append(f"CPU time {handler.cpu_seconds:g} s")
    return f"its limits: {', '.join(limits)}" if limits else "it ran without limits"
