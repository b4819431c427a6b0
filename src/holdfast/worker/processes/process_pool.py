"""The process pool of a worker, for `isolation="process"`: child processes, started on demand, reused and replaced."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.clock import Clock
from holdfast.model import Lease
from holdfast.model.reports import RAISED
from holdfast.observe.extension_metrics import Declarations
from holdfast.observe.logs import Logs
from holdfast.worker.context import ContextBackend
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Failed, Outcome, Released
from holdfast.worker.processes.child_process import ChildExecution, ChildProcess, NotStarted
from holdfast.worker.processes.child_protocol import Open

__all__ = ["ChildExecution", "ProcessPool"]


class ProcessPool:
    """At most `most` processes, started on demand; one that is idle for `idle_seconds` ends. Each runs one job at a
    time. The worker starts no more than `most` jobs here at once: see `Executor.start_buffered`."""

    def __init__(
        self,
        reference: str,
        *,
        most: int,
        clock: Clock,
        idle_seconds: float | None = None,
        jobs_max: int | None = None,
        rss_max_bytes: int | None = None,
        path: Sequence[str] | None = None,
        settings: dict[str, Any] | None = None,
        logs: Logs | None = None,
        database: bool = True,
        metrics: Declarations | None = None,
    ) -> None:
        self._reference, self._clock = reference, clock
        self._metrics = metrics or Declarations(())
        found = [entry or os.getcwd() for entry in (sys.path if path is None else path)]
        self._first = Open(found, settings, logs, database)  # the first message to each
        self.most, self._idle_seconds = most, idle_seconds
        self._jobs_max, self._rss_max_bytes = jobs_max, rss_max_bytes
        self._slots = asyncio.Semaphore(most)
        self._alive: set[ChildProcess] = set()
        self._idle: dict[
            ChildProcess, asyncio.TimerHandle | None
        ] = {}  # with the timer that ends it; the most recently used one is last
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def run(
        self,
        lease: Lease,
        handler: Handler,
        line: ContextBackend,
        *,
        dedicated: bool,
        on_started: Callable[[ChildExecution], None],
    ) -> Outcome:
        """Run the job and return its outcome. Cancellation kills the child, even before `on_started`."""
        async with self._slots:
            try:
                child = await self._ready(dedicated=dedicated)
            except NotStarted as error:
                if self._closed.is_set():
                    return Released()
                context = {**(error.context or {}), RAISED: "E_CHILD_START"}  # the message names modules and paths
                return Failed("E_CHILD_START", f"no child process for {self._reference}: {error}", context)
            try:
                return await child.run(lease, handler, line, on_started)
            finally:
                self._take_back(child, keep=not dedicated)

    async def close(self) -> None:
        """Idle children end, running ones are killed."""
        self._closed.set()
        for child in list(self._alive):
            if child not in self._idle:
                child.kill()
            self._retire(child)
        await asyncio.gather(*self._ending)

    async def _ready(self, *, dedicated: bool) -> ChildProcess:
        """The most recently used idle child, or a new one, if need be instead of an idle one."""
        self._check_open()
        if self._idle and not dedicated:
            child, timer = self._idle.popitem()
            if timer is not None:
                timer.cancel()
            return child
        if len(self._alive) >= self.most:
            self._retire(next(iter(self._idle)))
        child = await ChildProcess.spawn(self._reference, self._clock, self._metrics)
        self._alive.add(child)
        child.exited.add_done_callback(lambda _: self._retire(child) if child in self._idle else None)
        try:
            self._check_open()
            await child.open(self._first)
        except BaseException:
            child.kill()
            self._retire(child)
            raise
        return child

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise NotStarted("the worker is shutting down")

    def _take_back(self, child: ChildProcess, *, keep: bool) -> None:
        if child.busy:
            child.kill()
        if keep and not self._closed.is_set() and child.fit(self._jobs_max, self._rss_max_bytes):
            self._idle[child] = self._end_later(child)
        else:
            self._retire(child)

    def _end_later(self, child: ChildProcess) -> asyncio.TimerHandle | None:
        if self._idle_seconds is None:
            return None
        return asyncio.get_running_loop().call_later(self._idle_seconds, self._retire, child)

    def _retire(self, child: ChildProcess) -> None:
        if child not in self._alive:
            return
        self._alive.remove(child)
        if (timer := self._idle.pop(child, None)) is not None:
            timer.cancel()
        ending_task = asyncio.create_task(child.leave())
        self._ending.add(ending_task)
        ending_task.add_done_callback(self._ending.discard)
