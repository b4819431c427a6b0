"""Receives hints from the broker for one worker, or for the long polls of a server. A hint triggers a poll."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from holdfast.clock import Clock
from holdfast.dispatch.breaker import Breaker
from holdfast.dispatch.broker import Broker, BrokerError, ReceivedHint
from holdfast.dispatch.mode import Mode
from holdfast.dispatch.recent_claims import RecentClaims
from holdfast.dispatch.sender import Tally
from holdfast.model.hint import Hint

FLOOR_MAX_SECONDS = 60.0
GRACE_SECONDS = 0.05  # a worker that does not wait again by then is busy and takes no more hints
PAUSE_SECONDS = 0.05  # after several hints in a row that led to no job, and after garbage
USELESS_MAX = 3
ACK_DELAY_SECONDS = 0.001  # after the claim, so that the job starts first
BATCH_SECONDS = 0.005  # of a listener that is never busy: collects hints into one batch
ROUNDS_MAX = 200  # to read a backlog that built up while all workers were busy
GIVEN_BACK_MAX = 64

log = logging.getLogger(__name__)


class Listener:
    """`busy`: the listener of a worker receives only while the worker waits, so that no hint is stuck with it; hints
    stay unacknowledged until the claim that follows. The listener of a server is never busy, and acknowledges at once.
    """

    def __init__(
        self,
        broker: Broker,
        breaker: Breaker,
        clock: Clock,
        tally: Tally,
        mode: Mode,
        *,
        heard: Callable[[], None],
        busy: bool = True,
        queues: Collection[str] | None = None,
        types: Collection[str] | None = None,
        poll_seconds: float = 1.5,
        live: Callable[[], int] = lambda: 1,
    ) -> None:
        self._broker, self._breaker, self._clock, self._tally, self._mode = broker, breaker, clock, tally, mode
        self._heard, self._busy = heard, busy
        self._queues = None if queues is None else frozenset(queues)
        self._types = None if types is None else frozenset(types)
        self._poll_seconds, self._live = poll_seconds, live
        self._claimed = RecentClaims(clock)
        self._connected = False
        self._waiting, self._claiming = 0 if busy else 1, False
        self._pending: list[ReceivedHint] = []  # received since the last claim
        self._done: list[ReceivedHint] = []
        self._for_others: list[ReceivedHint] = []
        self._useless = 0
        self._changed = asyncio.Event()
        self._receiving: asyncio.Timeout | None = None  # interrupts it
        breaker.watchers.append(heard)

    @property
    def garbage(self) -> int:
        return self._broker.garbage

    @property
    def up(self) -> bool:
        return self._connected and self._breaker.closed

    @property
    def floor_seconds(self) -> float:
        """The poll interval without hints. All live workers together poll as often as one would without a broker."""
        if self._mode.also_by_database or not self.up:
            return self._poll_seconds
        return min(FLOOR_MAX_SECONDS, self._poll_seconds * max(1, self._live()))

    # -- called by the worker's source ------------------------------------------------------------------------

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the worker waits for a hint."""
        self._waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self._waiting -= 1
            self._changed.set()
            self._interrupt_soon()

    @contextmanager
    def looking(self, wanted: int) -> Iterator[list[str]]:
        """Around a claim of up to `wanted` jobs, or a poll; the claimed jobs go into the list. The claim covers the
        hints that arrived before it."""
        covered, claimed = len(self._pending), list[str]()
        self._claiming = True
        try:
            yield claimed
            self._covered(covered, claimed, full=len(claimed) >= wanted)
        finally:
            self._claiming = False
            self._changed.set()

    def _covered(self, covered: int, claimed: list[str], *, full: bool) -> None:
        """After a full claim there may be more jobs, so hints are passed to other workers. Not in a shared queue, where
        a message that is returned too often becomes a dead letter."""
        self._claimed.add(claimed)
        processed, self._pending = self._pending[:covered], self._pending[covered:]
        self._useless = 0 if claimed else self._useless + bool(processed)
        more = full and not self._mode.shared
        for delivery in processed:
            left = more and delivery.hint.job not in self._claimed and len(self._for_others) < GIVEN_BACK_MAX
            (self._for_others if left else self._done).append(delivery)

    def given_up(self, jobs: list[str]) -> None:
        """Failed or released: hints about these jobs count again."""
        self._claimed.remove(jobs)

    def _interrupt_soon(self) -> None:
        if self._receiving is not None:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self._interrupt)

    def _interrupt(self) -> None:
        """Stop receiving, unless the worker waits again or is about to."""
        if self._claiming:
            self._interrupt_soon()
        elif not self._waiting and self._receiving is not None and not self._receiving.expired():
            self._receiving.reschedule(0)

    # -- the broker -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(self._breaker.pause)
            try:
                await self._listen()
            except Exception as error:
                self._breaker.failed(str(error))
                if not isinstance(error, BrokerError):
                    log.warning("cannot receive hints, retrying: %s", error, exc_info=error)
            finally:
                self._connected = False

    async def close(self) -> None:
        """After `run` has ended. Hints without a claim are passed to other workers. Can be repeated."""
        with suppress(ValueError):
            self._breaker.watchers.remove(self._heard)
        self._for_others, self._pending = self._for_others + self._pending, []
        if self._breaker.closed:
            with suppress(BrokerError):
                await self._acknowledge()
        await self._broker.close()

    async def _listen(self) -> None:
        """Until it fails. Hints may have been lost before, so poll once."""
        await self._broker.open()
        self._connected = True
        self._breaker.succeeded()
        self._heard()
        while True:
            await self._step()

    async def _step(self) -> None:
        self._changed.clear()
        if self._done or self._for_others:
            await self._clock.sleep(ACK_DELAY_SECONDS)
            await self._acknowledge()
        elif self._waiting and not self._pending:
            await self._pause()
            found = await self._receive()
            await self._claim_done()
            self._sort(found)
        elif self._pending and not self._waiting and not self._claiming:
            if not await self._clock.within(self._changed, GRACE_SECONDS):
                self._for_others, self._pending = self._pending, []
        else:
            await self._changed.wait()

    async def _claim_done(self) -> None:
        """Wait until a running claim is done: a hint may be about a job that it claims."""
        while self._claiming:
            self._changed.clear()
            await self._changed.wait()

    async def _pause(self) -> None:
        """Limits how often invalid or useless messages can make workers poll."""
        if self._useless >= USELESS_MAX:
            await self._clock.sleep(PAUSE_SECONDS)
        elif not self._busy:
            await self._clock.sleep(BATCH_SECONDS)

    async def _acknowledge(self) -> None:
        done, self._done = self._done, []
        others, self._for_others = self._for_others, []
        if others:
            self._tally["received", "given_back"] += len(others)
            await self._broker.nack(others)
        if done:
            await self._broker.ack(done)
        self._breaker.succeeded()

    async def _receive(self) -> list[ReceivedHint]:
        """A backlog is received in one batch and costs one poll. Interrupted when the worker is busy."""
        garbage = self._broker.garbage
        found = batch = await self._receive_once(self._mode.wait_seconds)
        rounds = 0 if self._mode.shared else ROUNDS_MAX
        while len(batch) >= self._mode.batch_max and rounds and self._waiting:
            batch = await self._receive_once(0)
            found = found + batch
            rounds -= 1
        if self._broker.garbage > garbage:
            await self._clock.sleep(PAUSE_SECONDS)
        return found

    async def _receive_once(self, seconds: float) -> list[ReceivedHint]:
        self._receiving = receiving = asyncio.timeout(None)
        try:
            async with receiving:
                found = await self._broker.receive(seconds, self._mode.batch_max)
            self._breaker.succeeded()
            return found
        except TimeoutError:
            if not receiving.expired():
                raise
            return []  # interrupted
        finally:
            self._receiving = None

    def _sort(self, found: list[ReceivedHint]) -> None:
        news = []
        for delivery in found:
            outcome = self._outcome(delivery.hint)
            self._tally["received", outcome] += 1
            if outcome == "woke":
                news.append(delivery)
            elif outcome == "others" and self._mode.shared:
                self._for_others.append(delivery)
            else:
                self._done.append(delivery)
        if news:
            (self._pending if self._busy else self._done).extend(news)
            self._heard()

    def _outcome(self, hint: Hint) -> str:
        if self._queues is not None and hint.queue not in self._queues:
            return "others"
        if self._types is not None and hint.type is not None and hint.type not in self._types:
            return "others"
        return "claimed" if hint.job in self._claimed else "woke"
