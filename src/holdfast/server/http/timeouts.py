"""Timeouts of many requests with few timers."""

from __future__ import annotations

import asyncio
from types import TracebackType

SHARING = 20  # requests that begin within this fraction of the timeout share a timer


class Timeouts:
    """`with timeouts.begin():` raises `TimeoutError` after these seconds, up to a twentieth later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: set[_Timeout] = set()  # those that share the latest timer
        self._shared_until = float("-inf")

    def begin(self) -> _Timeout:
        loop = asyncio.get_running_loop()
        if (now := loop.time()) >= self._shared_until:
            self._running, self._shared_until = set(), now + self.seconds / SHARING
            loop.call_at(self._shared_until + self.seconds, _expire, self._running)
        return _Timeout(self._running)


def _expire(running: set[_Timeout]) -> None:
    for each in running:
        each.expire()


class _Timeout:
    """As `asyncio.timeout`, which has a timer of its own."""

    __slots__ = ("_cancelling", "_expired", "_running", "_task")

    def __init__(self, running: set[_Timeout]) -> None:
        self._running, self._expired = running, False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._task, self._cancelling = task, task.cancelling()
        self._running.add(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._running.discard(self)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()
