"""Whether a worker's source, the database or a server, is reachable: judged by the calls to it."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import count
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StoreError

SLOW_SECONDS = 0.5  # a call that takes longer counts as an outage

_T = TypeVar("_T")


class Connectivity:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing = False
        self._pending: dict[int, float] = {}  # when each call under way began
        self._numbers = count()

    @property
    def away(self) -> bool:
        """The last call failed by an outage, or one takes too long."""
        if self._failing or not self._pending:
            return self._failing
        return self._clock.monotonic() - min(self._pending.values()) > SLOW_SECONDS

    async def call(self, call: Awaitable[_T]) -> _T:
        number = next(self._numbers)
        self._pending[number] = self._clock.monotonic()
        try:
            result = await call
        except HoldfastError as error:
            self._failing = isinstance(error, StoreError)
            raise
        else:
            self._failing = False
            return result
        finally:
            del self._pending[number]
