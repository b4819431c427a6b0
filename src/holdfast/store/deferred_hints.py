"""Hints about jobs created in a caller's own transaction: sent later, several times, because its commit is not seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.store.base import run_callbacks

DELAYS_SECONDS = (0.02, 0.2, 1.0)  # after the jobs were created

Callbacks = list[Callable[[], None]]


class DeferredHints:
    """Most callers commit soon. A hint before the commit has no effect, and then polling finds the job.

    The timers run in the event loop that created this object, whose connections the wakers use.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: dict[asyncio.TimerHandle, Callbacks] = {}
        self._closed = False

    def add(self, callbacks: Callbacks) -> None:
        """Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed, and its connections too
            self._loop.call_soon_threadsafe(self._schedule, callbacks)

    def flush(self) -> None:
        """Send scheduled hints now, once, before the connections are closed."""
        waiting = {id(each): each for each in self._timers.values()}
        self.drop()
        for callbacks in waiting.values():
            run_callbacks(callbacks)

    def drop(self) -> None:
        """Discard scheduled and later hints."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _schedule(self, callbacks: Callbacks) -> None:
        if self._closed:
            return
        for seconds in DELAYS_SECONDS:
            self._start(seconds, callbacks)

    def _start(self, seconds: float, callbacks: Callbacks) -> None:
        def send() -> None:
            del self._timers[timer]
            run_callbacks(callbacks)

        timer = self._loop.call_later(seconds, send)
        self._timers[timer] = callbacks
