"""Sends hints to the broker after a commit, in the background; through the database while the broker is unreachable."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.broker import Broker, BrokerError
from holdfast.dispatch.mode import Mode
from holdfast.model.hint import Hint
from holdfast.store.notify import pause_after

WAITING_MAX = 10_000
BATCH_MAX = 500
CLOSE_SECONDS = 2.0

Wake = Callable[[Sequence[Hint]], None]
Tally = Counter[tuple[str, str]]

log = logging.getLogger(__name__)


class HintSender:
    """A waker of the engine. `by_database` sends hints without the broker; None if that is not needed.

    The first hint is sent at once; hints that arrive meanwhile are sent in one batch.
    """

    def __init__(
        self, broker: Broker, breaker: Breaker, clock: Clock, tally: Tally, mode: Mode, by_database: Wake | None
    ) -> None:
        self._broker, self._breaker, self._clock = broker, breaker, clock
        self._tally, self._mode, self._by_database = tally, mode, by_database
        self._waiting: deque[Hint] = deque()
        self._task: asyncio.Task[None] | None = None
        self._opened = False

    def __call__(self, hints: Sequence[Hint]) -> None:
        if self._mode.also_by_database:
            self._send_by_database(hints)
        if not self._breaker.allows:
            self._fall_back(hints)
            return
        room = WAITING_MAX - len(self._waiting)
        self._tally["sent", "dropped"] += max(0, len(hints) - room)
        self._waiting.extend(hints[:room])
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        """Send the pending hints, with a time limit."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        await self._broker.close()

    async def _send_all(self) -> None:
        batch: list[Hint] = []
        try:
            while self._waiting:
                begun, batch = self._clock.monotonic(), self._next()
                await self._send(batch)
                batch = []
                await self._clock.sleep(pause_after(self._clock.monotonic() - begun))
        except asyncio.CancelledError:
            await self._send_last(batch + self._next())
            raise
        finally:
            self._task = None

    async def _send_last(self, hints: list[Hint]) -> None:
        """The event loop ends without `close`, as in a script that creates a job and exits."""
        if hints and self._breaker.closed:
            with suppress(BrokerError):
                await self._broker.send(hints)
                self._tally["sent", "broker"] += len(hints)

    def _next(self) -> list[Hint]:
        """The next batch. Of many hints of a kind, a few: a worker that wakes claims many jobs."""
        batch: list[Hint] = []
        kinds: Counter[tuple[str, str | None]] = Counter()
        while self._waiting and len(batch) < BATCH_MAX:
            hint = self._waiting.popleft()
            kinds[hint.queue, hint.type] += 1
            if kinds[hint.queue, hint.type] <= self._mode.alike:
                batch.append(hint)
        return batch

    async def _send(self, hints: list[Hint]) -> None:
        if not self._breaker.allows:
            self._fall_back(hints)
            return
        try:
            if not self._opened:
                await self._broker.open()
                self._opened = True
            await self._broker.send(hints)
            self._tally["sent", "broker"] += len(hints)
            self._breaker.succeeded()
        except Exception as error:
            self._opened = False
            self._breaker.failed(str(error))
            if not isinstance(error, BrokerError):
                log.warning("cannot send hints: %s", error, exc_info=error)
            self._fall_back(hints)

    def _fall_back(self, hints: Sequence[Hint]) -> None:
        if not self._mode.also_by_database:
            self._send_by_database(hints)

    def _send_by_database(self, hints: Sequence[Hint]) -> None:
        self._tally["sent", "database"] += len(hints)
        if self._by_database is not None:
            self._by_database(hints)
