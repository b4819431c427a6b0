"""Runs a hook of an extension: with a timeout, awaiting only its transaction, and reported if it blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.store.base import Blocked, T

BLOCKED_SECONDS = 1.0


def blocking_in_transaction() -> StoreError:
    return StoreError(
        "work inside a transaction may only await that transaction; do slow work before or after it",
        code="blocking_in_transaction",
    )


async def call(
    hook: Coroutine[Any, Any, T], seconds: float, clock: Clock, asking: Callable[[], bool], blocked: Blocked
) -> T:
    """Run the hook with a timeout. `asking`: is a statement of its transaction running?"""
    steps: _Steps[T] = _Steps(hook, clock, asking, blocked)
    if steps.is_over():  # it awaited nothing
        return steps.answer
    async with asyncio.timeout(seconds):
        return await steps


class _Steps(Generic[T]):
    answer: T

    def __init__(
        self, hook: Coroutine[Any, Any, T], clock: Clock, asking: Callable[[], bool], blocked: Blocked
    ) -> None:
        self._hook, self._clock, self._asking, self._blocked = hook, clock, asking, blocked
        self._waited: Any = None

    def is_over(self, error: BaseException | None = None) -> bool:
        """Run one step; True when the hook has returned."""
        began = self._clock.monotonic()
        try:
            self._waited = self._hook.send(None) if error is None else self._hook.throw(error)
        except StopIteration as done:
            self.answer = done.value
            return True
        finally:
            tell_blocked(self._clock.monotonic() - began, self._blocked)
        if not self._asking():
            self._hook.close()
            raise blocking_in_transaction()
        return False

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            try:
                yield self._waited
                error = None
            except BaseException as raised:
                error = raised
            if self.is_over(error):
                return self.answer


def tell_blocked(seconds: float, blocked: Blocked) -> None:
    if seconds > BLOCKED_SECONDS:
        blocked(seconds)
