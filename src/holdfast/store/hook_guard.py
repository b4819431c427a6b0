"""Runs a hook of an extension: with a timeout, awaiting only its transaction, and reported if it blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.store.base import OnBlocked, T

BLOCKED_SECONDS = 1.0


def blocking_in_transaction() -> StoreError:
    return StoreError(
        "work inside a transaction may only await that transaction; do slow work before or after it",
        code="blocking_in_transaction",
    )


async def call(
    hook: Coroutine[Any, Any, T], seconds: float, clock: Clock, is_querying: Callable[[], bool], blocked: OnBlocked
) -> T:
    """Run the hook with a timeout. `is_querying`: is a statement of its transaction running?"""
    steps: _HookSteps[T] = _HookSteps(hook, clock, is_querying, blocked)
    if steps.step():  # it awaited nothing
        return steps.answer
    async with asyncio.timeout(seconds):
        return await steps


class _HookSteps(Generic[T]):
    answer: T

    def __init__(
        self, hook: Coroutine[Any, Any, T], clock: Clock, is_querying: Callable[[], bool], blocked: OnBlocked
    ) -> None:
        self._hook, self._clock, self._is_querying, self._blocked = hook, clock, is_querying, blocked
        self._waited: Any = None

    def step(self, error: BaseException | None = None) -> bool:
        """Run one step; True when the hook has returned."""
        began = self._clock.monotonic()
        try:
            self._waited = self._hook.send(None) if error is None else self._hook.throw(error)
        except StopIteration as done:
            self.answer = done.value
            return True
        finally:
            report_blocking(self._clock.monotonic() - began, self._blocked)
        if not self._is_querying():
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
            if self.step(error):
                return self.answer


def report_blocking(seconds: float, blocked: OnBlocked) -> None:
    if seconds > BLOCKED_SECONDS:
        blocked(seconds)
