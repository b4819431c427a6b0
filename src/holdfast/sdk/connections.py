"""The database connections of an app: each event loop and each forked process has its own."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar
from weakref import WeakSet

from holdfast.assembly.engine import OpenEngine

FLUSH_SECONDS = 2.0  # for pending hints, when the process exits

T = TypeVar("T")


class EnginesByLoop:
    """`open_one` opens the engine of one event loop. Several threads may call it, each from its own loop."""

    def __init__(self, open_one: Callable[[], Coroutine[Any, Any, OpenEngine]]) -> None:
        self._open_one = open_one
        self._inherited: Any = None
        self._start()
        _all.add(self)

    def _start(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[OpenEngine]] = {}
        self._sync_loop: _SyncLoop | None = None
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """In the child. What the parent opened is kept, unused: closing it would break it in the parent."""
        self._inherited = (self._inherited, self._by_loop, self._sync_loop)
        self._start()

    async def get(self) -> OpenEngine:
        loop = asyncio.get_running_loop()
        opening = self._by_loop.get(loop)
        if opening is not None and opening.done():
            if not opening.cancelled() and opening.exception() is None:
                return opening.result()
            opening = None  # it failed: retry
        if opening is None:
            opening = self._by_loop[loop] = loop.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> OpenEngine:
        await self._discard([loop for loop in list(self._by_loop) if loop.is_closed()])
        return await self._open_one()

    async def _discard(self, loops: Iterable[asyncio.AbstractEventLoop]) -> None:
        for loop in loops:
            if (left := self._by_loop.pop(loop, None)) is not None:
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    await left.result().discard()

    async def close(self) -> None:
        """Close the engine of the running event loop."""
        opening = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            with contextlib.suppress(Exception):
                await (await opening).close()

    # -- from sync code ---------------------------------------------------------------------------------------

    def run_sync(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run async work on an event loop in its own thread, started when first needed."""
        with self._lock:
            sync_loop = self._sync_loop = self._sync_loop or _SyncLoop()
        return sync_loop.run(work)

    def close_sync(self) -> None:
        with self._lock:
            sync_loop, self._sync_loop = self._sync_loop, None
        if sync_loop is not None:
            sync_loop.run(self.close)
            sync_loop.stop()

    def flush(self) -> None:
        """The process exits without `close`: send the pending hints."""
        if self._sync_loop is not None:
            with contextlib.suppress(Exception):
                self._sync_loop.run(self._flush_here, FLUSH_SECONDS)

    async def _flush_here(self) -> None:
        if (opening := self._by_loop.get(asyncio.get_running_loop())) is not None and opening.done():
            await opening.result().send_hints()

    def discard(self) -> None:
        """Close everything, also what other event loops have opened, whether they still run or not."""
        others = [loop for loop in self._by_loop if self._sync_loop is None or loop is not self._sync_loop.loop]
        for loop in others:
            opening = self._by_loop[loop]
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().abandon()
        self.run_sync(lambda: self._discard(others))
        self.close_sync()


class _SyncLoop:
    """The event loop of sync code, in its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], seconds: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(seconds)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


_all: WeakSet[EnginesByLoop] = WeakSet()


def _after_fork() -> None:
    for opened in _all:
        opened.after_fork()


def _flush_all() -> None:
    for opened in list(_all):
        opened.flush()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_flush_all)
