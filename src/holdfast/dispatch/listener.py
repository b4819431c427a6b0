"""Listens to the broker for one worker, or for those who wait in a server. A hint only says: look."""

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
GRACE_SECONDS = 0.05  # whoever has looked and is not back by then is busy, and takes no more hints
PAUSE_SECONDS = 0.05  # after hints that led to nothing, several times in a row, and after garbage
USELESS = 3
SETTLE_SECONDS = 0.001  # after the claim: the job starts first
BREATH_SECONDS = 0.005  # of one that hears everything: what comes meanwhile comes together
ROUNDS_MAX = 200  # to read what has piled up while everybody was busy
GIVEN_BACK_MAX = 64

log = logging.getLogger(__name__)


class Listener:
    """One that is `busy` at times receives only while its source waits, so that no hint is stuck with it; what it
    received stays unsettled until the claim that follows. One that is never busy hears everything and keeps nothing.
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
        self._waiting, self._looks = 0 if busy else 1, False
        self._unseen: list[ReceivedHint] = []  # nobody has looked since they came
        self._seen: list[ReceivedHint] = []
        self._for_others: list[ReceivedHint] = []
        self._useless = 0
        self._stirred = asyncio.Event()
        self._receiving: asyncio.Timeout | None = None  # what cuts it short
        breaker.watchers.append(heard)

    @property
    def garbage(self) -> int:
        return self._broker.garbage

    @property
    def up(self) -> bool:
        return self._connected and self._breaker.closed

    @property
    def floor_seconds(self) -> float:
        """How often to look without a hint. All live workers together look as often as one would without a broker."""
        if self._mode.also_by_database or not self.up:
            return self._poll_seconds
        return min(FLOOR_MAX_SECONDS, self._poll_seconds * max(1, self._live()))

    # -- what the source says of itself -----------------------------------------------------------------------

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While somebody waits for a hint."""
        self._waiting += 1
        self._stirred.set()
        try:
            yield
        finally:
            self._waiting -= 1
            self._stirred.set()
            self._let_go_soon()

    @contextmanager
    def looking(self, wanted: int) -> Iterator[list[str]]:
        """A claim of so many, or a look; the jobs that it brings go into the list. It answers what came before it."""
        came_before, claimed = len(self._unseen), list[str]()
        self._looks = True
        try:
            yield claimed
            self._answer(came_before, claimed, full=len(claimed) >= wanted)
        finally:
            self._looks = False
            self._stirred.set()

    def _answer(self, came_before: int, claimed: list[str], *, full: bool) -> None:
        """After a claim that brought all that was wanted there may be more, for others. In a queue that all share, what
        is given back too often becomes a dead letter; there the database tells them."""
        self._claimed.add(claimed)
        answered, self._unseen = self._unseen[:came_before], self._unseen[came_before:]
        self._useless = 0 if claimed else self._useless + bool(answered)
        more = full and not self._mode.shared
        for delivery in answered:
            left = more and delivery.hint.job not in self._claimed and len(self._for_others) < GIVEN_BACK_MAX
            (self._for_others if left else self._seen).append(delivery)

    def given_up(self, jobs: list[str]) -> None:
        """Failed or released: they may come again."""
        self._claimed.remove(jobs)

    def _let_go_soon(self) -> None:
        if self._receiving is not None:
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self._let_go)

    def _let_go(self) -> None:
        """Unless it waits again, or is about to."""
        if self._looks:
            self._let_go_soon()
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
                    log.warning("cannot listen for hints, trying again: %s", error, exc_info=error)
            finally:
                self._connected = False

    async def close(self) -> None:
        """When `run` has ended. What nobody has looked at is for others. May be repeated."""
        with suppress(ValueError):
            self._breaker.watchers.remove(self._heard)
        self._for_others, self._unseen = self._for_others + self._unseen, []
        if self._breaker.closed:
            with suppress(BrokerError):
                await self._settle()
        await self._broker.close()

    async def _listen(self) -> None:
        """Until it fails. Hints may have been lost before: look once."""
        await self._broker.open()
        self._connected = True
        self._breaker.succeeded()
        self._heard()
        while True:
            await self._turn()

    async def _turn(self) -> None:
        self._stirred.clear()
        if self._seen or self._for_others:
            await self._clock.sleep(SETTLE_SECONDS)
            await self._settle()
        elif self._waiting and not self._unseen:
            await self._pause()
            found = await self._receive()
            await self._look_is_over()
            self._sort(found)
        elif self._unseen and not self._waiting and not self._looks:
            if not await self._clock.within(self._stirred, GRACE_SECONDS):
                self._for_others, self._unseen = self._unseen, []
        else:
            await self._stirred.wait()

    async def _look_is_over(self) -> None:
        """What came during a claim may be about a job that it brings."""
        while self._looks:
            self._stirred.clear()
            await self._stirred.wait()

    async def _pause(self) -> None:
        """Whoever can write to the broker must not be able to keep everybody looking."""
        if self._useless >= USELESS:
            await self._clock.sleep(PAUSE_SECONDS)
        elif not self._busy:
            await self._clock.sleep(BREATH_SECONDS)

    async def _settle(self) -> None:
        seen, self._seen = self._seen, []
        others, self._for_others = self._for_others, []
        if others:
            self._tally["received", "given_back"] += len(others)
            await self._broker.give_back(others)
        if seen:
            await self._broker.settle(seen)
        self._breaker.succeeded()

    async def _receive(self) -> list[ReceivedHint]:
        """What has piled up comes together, and costs one look. Cut short when the source is busy."""
        garbage = self._broker.garbage
        found = batch = await self._receive_once(self._mode.patience_seconds)
        rounds = 0 if self._mode.shared else ROUNDS_MAX
        while len(batch) >= self._mode.most and rounds and self._waiting:
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
                found = await self._broker.receive(seconds, self._mode.most)
            self._breaker.succeeded()
            return found
        except TimeoutError:
            if not receiving.expired():
                raise
            return []  # it was let go of
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
                self._seen.append(delivery)
        if news:
            (self._unseen if self._busy else self._seen).extend(news)
            self._heard()

    def _outcome(self, hint: Hint) -> str:
        if self._queues is not None and hint.queue not in self._queues:
            return "others"
        if self._types is not None and hint.type is not None and hint.type not in self._types:
            return "others"
        return "claimed" if hint.job in self._claimed else "woke"
