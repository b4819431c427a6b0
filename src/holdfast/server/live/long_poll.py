"""Where claims wait that found nothing. One host looks for all of them, and calls those that may find something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.maintenance.open_work import READY_MAX, Opening
from holdfast.ids import Ids
from holdfast.model import Lease
from holdfast.outage_log import LoopFailures
from holdfast.server.live.waiting_claims import WaitingClaim, call, enough
from holdfast.store.presence import Presence

FLOOR_SECONDS = 1.0  # the host looks at least so often: hints may be lost, and a connection that is half open is silent
PAUSE_SECONDS = 0.05  # after a look that helped nobody: hints about other queues come in crowds
CALLED_MAX = 8  # at once
SELDOM = 5  # times as long while a broker carries the hints: it says when it does not

log = logging.getLogger(__name__)

Take = Callable[[], Awaitable[list[Lease] | None]]  # None: nothing yet, and worth asking again


class LongPoll:
    """Waiting costs the database nothing: the host asks once for all, when there was a hint and about once a second."""

    def __init__(
        self,
        engine: Engine,
        presence: Presence,
        clock: Clock,
        ids: Ids,
        *,
        hinted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`hinted`: whether a broker brings the hints now."""
        self._engine, self._presence, self._clock, self._ids = engine, presence, clock, ids
        self._hinted = hinted
        self._waiting: dict[WaitingClaim, None] = {}  # whoever waits longest comes first
        self._occupied = asyncio.Event()
        self._failures = LoopFailures("look for jobs for waiting claims", log)
        self._floor_at = 0.0

    async def claim(
        self, take: Take, seat: WaitingClaim, *, seconds: float, disconnected: asyncio.Event
    ) -> list[Lease]:
        """What `take` finds: now, or within so many seconds. Whoever has `gone` takes nothing."""
        if seconds <= 0:
            return [] if disconnected.is_set() else await take() or []
        until = self._clock.monotonic() + seconds
        self._enter(seat)
        leaving = asyncio.create_task(disconnected.wait())
        leaving.add_done_callback(lambda _: seat.stirred.set())
        try:
            found = None if disconnected.is_set() else await take()
            while found is None and await self._is_called(seat, until, disconnected):
                found = await take()
                seat.answer(found=found is not None)
            return found or []
        finally:
            leaving.cancel()
            self._leave(seat)

    async def _is_called(self, seat: WaitingClaim, until: float, disconnected: asyncio.Event) -> bool:
        while not disconnected.is_set():
            left = until - self._clock.monotonic()
            if seat.called or left <= 0:
                return seat.called
            await self._clock.within(seat.stirred, left)
            seat.stirred.clear()
        return False

    def _enter(self, seat: WaitingClaim) -> None:
        """Before the first look: what comes while that is under way must not be missed."""
        self._waiting[seat] = None
        self._occupied.set()

    def _leave(self, seat: WaitingClaim) -> None:
        del self._waiting[seat]
        seat.leave()
        if not self._waiting:
            self._occupied.clear()

    # -- the host ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause = FLOOR_SECONDS
        while True:
            await self._occupied.wait()
            await self._presence.wait(pause)
            try:
                pause = await self._look()
            except Exception as error:
                self._failures.failed(error)
                await self._clock.sleep(FLOOR_SECONDS)

    async def _look(self) -> float:
        """Call those for whom there is something. Answers how long nothing is to be expected but by a hint."""
        if not self._waiting:
            return FLOOR_SECONDS
        seats = list(self._waiting)
        found = await self._engine.polls.open_work(
            _union(seat.queues for seat in seats), _union(seat.types for seat in seats)
        )
        self._failures.succeeded()
        if found.next_in == 0:
            await self._engine.maintenance.requeue_due()  # that is a hint again
        if self._clock.monotonic() >= self._floor_at:
            self._floor_at = self._clock.monotonic() + self._floor()
            await self._look_around(lost=found.lost)
        answers = await self._serve(found.lanes) if found.lanes else []
        if None in answers or (True in answers and any(lane.ready >= READY_MAX for lane in found.lanes)):
            return 0.0  # there may be more, for others
        if True not in answers:
            await self._clock.sleep(PAUSE_SECONDS)
        floor = self._floor() * (0.75 + 0.5 * self._ids.jitter())
        return floor if found.next_in is None else min(floor, found.next_in)

    def _floor(self) -> float:
        return FLOOR_SECONDS * SELDOM if self._hinted() else FLOOR_SECONDS

    async def _look_around(self, *, lost: bool) -> None:
        """What nobody hints at. A worker that was switched off hears so now, and not when its time is up."""
        if lost:
            await self._engine.maintenance.reap()
        known = await self._engine.polls.claimants(list({seat.worker for seat in self._waiting}))
        for seat in self._waiting:
            if seat.worker not in known:
                seat.call()

    async def _serve(self, lanes: list[Opening]) -> list[bool | None]:
        """Call as many as there are jobs for, and hear of each whether it found one; None of whom we heard nothing."""
        answers: list[bool | None] = []
        chosen = enough(await self._in_order(lanes), lanes)
        for start in range(0, len(chosen), CALLED_MAX):
            there = [seat for seat in chosen[start : start + CALLED_MAX] if seat in self._waiting]
            answers += await call(there) if there else []
        return answers

    async def _in_order(self, lanes: list[Opening]) -> dict[WaitingClaim, list[Opening]]:
        """Who may take from which; first those whom a lane prefers, then whoever waits longest."""
        seats = [seat for seat in self._waiting if not seat.called and any(seat.waits_for(lane) for lane in lanes)]
        known = await self._engine.polls.claimants(list({seat.worker for seat in seats})) if seats else {}
        first, then = dict[WaitingClaim, list[Opening]](), dict[WaitingClaim, list[Opening]]()
        for seat in seats:
            if (claimant := known.get(seat.worker)) is not None:
                may_take = [lane for lane in lanes if seat.waits_for(lane) and claimant.may_take(lane)]
                preferred = any(lane.prefers <= claimant.offers for lane in may_take)
                (first if preferred else then)[seat] = may_take
        return first | then


def _union(wishes: Iterable[list[str] | None]) -> list[str] | None:
    """All that anybody wishes; None as soon as one of them wishes anything."""
    found: set[str] = set()
    for wish in wishes:
        if wish is None:
            return None
        found.update(wish)
    return sorted(found)
