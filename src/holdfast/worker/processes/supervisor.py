"""The supervisor of worker processes: starts them, restarts them when they crash, and shuts them down.

It tells them to stop over a socket, not by a signal: a service manager signals every process of a service, and a worker
must not take the supervisor's request for the second signal, which means "at once".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Callable

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.worker.processes.signal_mask import signals_blocked
from holdfast.worker.processes.supervisor_protocol import NOW, STOP, ProcessStatus, SupervisorLink

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.2, 10.0
HEALTHY_SECONDS = 30.0
LAST_STATUS_SECONDS = 1.0

log = logging.getLogger("holdfast.worker")


class Supervisor:
    def __init__(self, command: list[str], processes: int, *, grace_seconds: float, clock: Clock | None = None) -> None:
        """`grace_seconds`: after the request to stop, until a worker process that has not ended is killed."""
        self._command, self.processes = command, processes
        self._grace_seconds = grace_seconds
        self._clock = clock or Clock()
        self._stopping = asyncio.Event()
        self.lines: set[SupervisorLink] = set()  # one to each process
        self.on_end: Callable[[ProcessStatus], None] | None = (
            None  # called with the last status of a process that ended
        )
        self._running: set[Process] = set()
        self._signaled = False  # the first signal
        self.interrupted = False  # a second Ctrl-C
        self._failed: int | None = None  # the exit code of a worker process that could not start

    async def run(self) -> int:
        """Until a signal, or until a worker process cannot start. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.processes):
                group.create_task(self._keep_running())
        return self._failed or 0

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _signalled(self, number: signal.Signals) -> None:
        """The first signal: when the running jobs have finished. The second: at once."""
        if not self._signaled:
            self._signaled = True
            self.stop()
            return
        if not self.interrupted:
            log.warning("second signal: exiting without waiting for running jobs")
        self.interrupted = self.interrupted or number is signal.SIGINT
        self._say(NOW)

    def stop(self) -> None:
        """When the running jobs have finished."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._failed is None:  # else the reason was logged
            log.info("stopping: waiting for running jobs; a second signal exits at once")
        self._say(STOP)
        asyncio.get_running_loop().call_later(self._grace_seconds, self._kill)

    def _kill(self) -> None:
        """They should have ended by themselves: something, perhaps the app's lifespan, blocks them."""
        for process in self._running:
            log.error("worker process %d did not stop in time; killing it", process.pid)
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def _say(self, word: bytes) -> None:
        for line in self.lines:
            line.say(word)

    async def _keep_running(self) -> None:
        backoff, started_once = Backoff(Ids(), PAUSE_SECONDS, PAUSE_MAX_SECONDS), False
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            try:
                code, ready = await self._run_one()
            except OSError as error:  # out of memory, processes or descriptors
                log.error("cannot start a worker process: %s", error)
                code, ready = 1, False
            started_once = started_once or ready
            if self._stopping.is_set():
                return
            if not started_once:  # no job crashed it: the app, the settings or the database are wrong
                self._failed = code
                self.stop()
                return
            log.warning("worker process exited with %s; restarting it", _ended(code))
            if self._clock.monotonic() - started > HEALTHY_SECONDS:
                backoff.reset()
            await self._clock.within(self._stopping, backoff.next())

    async def _run_one(self) -> tuple[int, bool]:
        ours, theirs = socket.socketpair()
        line = await SupervisorLink.open(ours)
        try:
            with signals_blocked():  # a signal may arrive before it has installed its handlers
                process = await asyncio.create_subprocess_exec(*self._command, stdin=theirs.fileno())
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        listening = asyncio.create_task(line.listen())
        self.lines.add(line)
        self._running.add(process)
        try:
            if self._stopping.is_set():  # requested while the process was starting
                line.say(STOP)
            code = await process.wait()
            await asyncio.wait(
                {listening}, timeout=LAST_STATUS_SECONDS
            )  # a process that it forked may hold the socket open
            return code, line.begun
        finally:
            listening.cancel()
            self._running.discard(process)
            self.lines.discard(line)
            line.close()
            if self.on_end is not None and line.status is not None:
                self.on_end(line.status)


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
