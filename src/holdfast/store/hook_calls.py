"""A hook, watched step by step: it may await its transaction and nothing else, and must not hold up others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.store.base import Blocked, T

BLOCKED_SECONDS = 1.0


def work_waits() -> StoreError:
    return StoreError(
        "work inside a transaction may only await that transaction; do slow things before or after it",
        code="work_waits",
    )


async def call(
    hook: Coroutine[Any, Any, T], seconds: float, clock: Clock, asking: Callable[[], bool], blocked: Blocked
) -> T:
    """For so long at most. `asking`: does its transaction wait for the database right now?"""
    async with asyncio.timeout(seconds):
        return await _Steps(hook, clock, asking, blocked)


class _Steps(Generic[T]):
    def __init__(
        self, hook: Coroutine[Any, Any, T], clock: Clock, asking: Callable[[], bool], blocked: Blocked
    ) -> None:
        self._hook, self._clock, self._asking, self._blocked = hook, clock, asking, blocked

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._step(error)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if not self._asking():
                self._hook.close()
                raise work_waits()
            try:
                yield waited
                error = None
            except BaseException as raised:
                error = raised

    def _step(self, error: BaseException | None) -> Any:
        began = self._clock.monotonic()
        try:
            return self._hook.send(None) if error is None else self._hook.throw(error)
        finally:
            tell_blocked(self._clock.monotonic() - began, self._blocked)


def tell_blocked(seconds: float, blocked: Blocked) -> None:
    if seconds > BLOCKED_SECONDS:
        blocked(seconds)
