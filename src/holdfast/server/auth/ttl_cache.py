"""What the database said a moment ago: asked once for all who want to know, and not believed for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from holdfast.clock import Clock

ASK_AGAIN_SECONDS = 1.0  # beside the requests, so that none of them waits for the answer
BELIEVED_SECONDS = 2.0
REMEMBERED_MAX = 10_000
STRANGERS_AT_ONCE = 2  # whoever invents names takes no more connections than this from those who work

T = TypeVar("T")


class _Cached(NamedTuple, Generic[T]):
    answer: T
    at: float


class TtlCache(Generic[T]):
    """Answers by name. None is an answer too: there is nothing of that name."""

    def __init__(self, ask: Callable[[str], Awaitable[T]], clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._said: dict[str, _Cached[T]] = {}
        self._asking: dict[str, asyncio.Task[T]] = {}
        self._strangers = asyncio.Semaphore(STRANGERS_AT_ONCE)

    def forget(self, name: str) -> None:
        """What is said next is asked for anew; an answer that is on its way may be older, and is not kept."""
        self._said.pop(name, None)
        self._asking.pop(name, None)

    async def get(self, name: str) -> T:
        said = self._said.get(name)
        age = BELIEVED_SECONDS if said is None else self._clock.monotonic() - said.at
        if said is not None and age < BELIEVED_SECONDS:
            if age >= ASK_AGAIN_SECONDS and said.answer is not None:
                self._begin(name)
            return said.answer
        return await asyncio.shield(self._begin(name))  # others may wait for it too

    def _begin(self, name: str) -> asyncio.Task[T]:
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._find_out(name))
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waits hears of it
        return asking

    async def _find_out(self, name: str) -> T:
        try:
            said = self._said.get(name)
            if said is not None and said.answer is not None:
                return await self._hear(name)
            async with self._strangers:
                return await self._hear(name)
        finally:
            if self._asking.get(name) is asyncio.current_task():
                del self._asking[name]

    async def _hear(self, name: str) -> T:
        at = self._clock.monotonic()  # before the question: the answer may be as old as that
        answer = await self._ask(name)
        if self._asking.get(name) is not asyncio.current_task():
            return answer
        self._said.pop(name, None)
        self._said[name] = _Cached(answer, at)
        while len(self._said) > REMEMBERED_MAX:
            self._said.pop(next(iter(self._said)))
        return answer
