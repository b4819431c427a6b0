"""The worker's side of `isolation="process"`: child processes that are started when needed, reused and replaced."""

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
    """At most `most` processes, started when needed; one that has been idle for `idle_seconds` ends. Each runs one job
    at a time. A job for which there is none waits: a worker starts no more than `most` at once, see `Worker._fill`."""

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
        self._first = Open(found, settings, logs, database)  # what each of them is told first
        self.most, self._idle_seconds = most, idle_seconds
        self._jobs_max, self._rss_max_bytes = jobs_max, rss_max_bytes
        self._turns = asyncio.Semaphore(most)
        self._alive: set[ChildProcess] = set()
        self._idle: dict[ChildProcess, asyncio.TimerHandle | None] = {}  # with what ends it; the last was used last
        self._leaving: set[asyncio.Task[None]] = set()
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
        """Run the job to its end, whatever that is. Cancelling this kills the child, also before `on_started`."""
        async with self._turns:
            try:
                child = await self._ready(dedicated=dedicated)
            except NotStarted as error:
                if self._closed.is_set():
                    return Released()
                context = {**(error.context or {}), RAISED: "E_CHILD_START"}  # it names modules and paths
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
        await asyncio.gather(*self._leaving)

    async def _ready(self, *, dedicated: bool) -> ChildProcess:
        """An idle child, the one used last; or a new one, if need be in the place of an idle one."""
        self._check_open()
        if self._idle and not dedicated:
            child, ending = self._idle.popitem()
            if ending is not None:
                ending.cancel()
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
            raise NotStarted("the worker stops")

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
        if (ending := self._idle.pop(child, None)) is not None:
            ending.cancel()
        leaving = asyncio.create_task(child.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
