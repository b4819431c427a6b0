"""Hints about jobs in a caller's own transaction: we never learn of its commit, so they go out later, several times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.store.base import tell

LATER_SECONDS = (0.02, 0.2, 1.0)  # after our part of the transaction

Callbacks = list[Callable[[], None]]


class LaterHints:
    """Most callers commit soon. A hint that is sent before the commit is lost, and then polling finds the job.

    The timers belong to the event loop in which this object was made: the wakers use connections of that loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: dict[asyncio.TimerHandle, Callbacks] = {}
        self._closed = False

    def add(self, callbacks: Callbacks) -> None:
        """May be called from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it every connection that could send a hint
            self._loop.call_soon_threadsafe(self._schedule, callbacks)

    def flush(self) -> None:
        """Send what is scheduled now, once, and nothing after that: the connections are about to be closed."""
        waiting = {id(each): each for each in self._timers.values()}
        self.drop()
        for callbacks in waiting.values():
            tell(callbacks)

    def drop(self) -> None:
        """Send nothing more."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _schedule(self, callbacks: Callbacks) -> None:
        if self._closed:
            return
        for seconds in LATER_SECONDS:
            self._start(seconds, callbacks)

    def _start(self, seconds: float, callbacks: Callbacks) -> None:
        def send() -> None:
            del self._timers[timer]
            tell(callbacks)

        timer = self._loop.call_later(seconds, send)
        self._timers[timer] = callbacks
