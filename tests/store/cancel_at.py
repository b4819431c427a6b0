"""A caller that is cancelled at a chosen await (F42)."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class CancelAt:
    """Runs a coroutine and cancels its task for real at its n-th pause, and at `again` pauses right after that."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], pause: int, *, again: int = 0) -> None:
        self._coroutine, self._pause, self._again = coroutine, pause, again
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task
        steps = self._coroutine.__await__()
        paused = 0
        value: Any = None
        try:
            waited = steps.send(None)
            while True:
                paused += 1
                if self._pause <= paused <= self._pause + self._again:
                    self.reached = True
                    task.cancel()
                try:
                    value = yield waited
                except BaseException as error:
                    waited = steps.throw(error)
                else:
                    waited = steps.send(value)
        except StopIteration as done:
            return done.value
