"""What an app has opened: connections belong to an event loop and to a process, so each loop has its own."""

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

LAST_WORDS_SECONDS = 2.0  # a hint is not worth more at the end of a process

T = TypeVar("T")


class EnginesByLoop:
    """`open_one` opens what one event loop needs. Several threads may ask at once, each from a loop of its own."""

    def __init__(self, open_one: Callable[[], Coroutine[Any, Any, OpenEngine]]) -> None:
        self._open_one = open_one
        self._inherited: Any = None
        self._start()
        _all.add(self)

    def _start(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[OpenEngine]] = {}
        self._beside: _SyncLoop | None = None
        self._starting = threading.Lock()

    def start_anew(self) -> None:
        """In a forked child. What the parent opened is kept, unused: to close it here would do harm there."""
        self._inherited = (self._inherited, self._by_loop, self._beside)
        self._start()

    async def here(self) -> OpenEngine:
        loop = asyncio.get_running_loop()
        opening = self._by_loop.get(loop)
        if opening is not None and opening.done():
            if not opening.cancelled() and opening.exception() is None:
                return opening.result()
            opening = None  # it failed: try again
        if opening is None:
            opening = self._by_loop[loop] = loop.create_task(self._open())
        return await asyncio.shield(opening)

    async def _open(self) -> OpenEngine:
        await self._let_go([loop for loop in list(self._by_loop) if loop.is_closed()])
        return await self._open_one()

    async def _let_go(self, loops: Iterable[asyncio.AbstractEventLoop]) -> None:
        for loop in loops:
            if (left := self._by_loop.pop(loop, None)) is not None:
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    await left.result().let_go()

    async def close(self) -> None:
        """What the running event loop has opened."""
        opening = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            with contextlib.suppress(Exception):
                await (await opening).close()

    # -- from sync code ---------------------------------------------------------------------------------------

    def run_sync(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run async work on an event loop in a thread of its own, started when first needed."""
        with self._starting:
            beside = self._beside = self._beside or _SyncLoop()
        return beside.run(work)

    def close_sync(self) -> None:
        with self._starting:
            beside, self._beside = self._beside, None
        if beside is not None:
            beside.run(self.close)
            beside.stop()

    def tell(self) -> None:
        """The process ends, and nobody has closed us: what was created is told to those who wait for it."""
        if self._beside is not None:
            with contextlib.suppress(Exception):
                self._beside.run(self._tell_here, LAST_WORDS_SECONDS)

    async def _tell_here(self) -> None:
        if (opening := self._by_loop.get(asyncio.get_running_loop())) is not None and opening.done():
            await opening.result().tell()

    def let_go(self) -> None:
        """Of everything, also what other event loops have opened, whether they still run or not."""
        others = [loop for loop in self._by_loop if self._beside is None or loop is not self._beside.loop]
        for loop in others:
            opening = self._by_loop[loop]
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().abandon()
        self.run_sync(lambda: self._let_go(others))
        self.close_sync()


class _SyncLoop:
    """An event loop beside sync code."""

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


def _start_all_anew() -> None:
    for opened in _all:
        opened.start_anew()


def _tell_all() -> None:
    for opened in list(_all):
        opened.tell()


os.register_at_fork(after_in_child=_start_all_anew)
atexit.register(_tell_all)
