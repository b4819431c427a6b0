"""The long poll of claims: one poller watches the queues and notifies the waiting claims that may get a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.polls.open_work import READY_MAX, OpenLane
from holdfast.ids import Ids
from holdfast.model import Lease
from holdfast.outage_log import LoopFailures
from holdfast.server.live.waiting_claims import WaitingClaim, choose, notify_all
from holdfast.store.presence import Presence

POLL_SECONDS = 1.0  # maximum poll interval: hints may be lost, and a half-open connection is silent
PAUSE_SECONDS = 0.05  # after a poll that found nothing: hints about other queues come in bursts
NOTIFY_BATCH = 8  # at once
BROKER_FACTOR = 5  # longer poll interval while a broker delivers the hints

log = logging.getLogger(__name__)

Take = Callable[[], Awaitable[list[Lease] | None]]  # None: no jobs yet


class LongPoll:
    """Waiting claims do not query the database: one poller does it for all, on a hint and about once a second."""

    def __init__(
        self,
        engine: Engine,
        presence: Presence,
        clock: Clock,
        ids: Ids,
        *,
        hinted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`hinted`: whether a broker delivers the hints now."""
        self._engine, self._presence, self._clock, self._ids = engine, presence, clock, ids
        self._hinted = hinted
        self._waiting: dict[WaitingClaim, None] = {}  # the longest wait first
        self._nonempty = asyncio.Event()
        self._failures = LoopFailures("look for jobs for waiting claims", log)
        self._poll_at = 0.0

    async def claim(
        self, take: Take, claim: WaitingClaim, *, seconds: float, disconnected: asyncio.Event
    ) -> list[Lease]:
        """What `take` finds now or within so many seconds. A disconnected client gets nothing."""
        if seconds <= 0:
            return [] if disconnected.is_set() else await take() or []
        until = self._clock.monotonic() + seconds
        self._add(claim)
        leaving = asyncio.create_task(disconnected.wait())
        leaving.add_done_callback(lambda _: claim.signaled.set())
        try:
            found = None if disconnected.is_set() else await take()
            while found is None and await self._wait_until_notified(claim, until, disconnected):
                found = await take()
                claim.resolve(found=found is not None)
            return found or []
        finally:
            leaving.cancel()
            self._remove(claim)

    async def _wait_until_notified(self, claim: WaitingClaim, until: float, disconnected: asyncio.Event) -> bool:
        while not disconnected.is_set():
            left = until - self._clock.monotonic()
            if claim.notified or left <= 0:
                return claim.notified
            await self._clock.within(claim.signaled, left)
            claim.signaled.clear()
        return False

    def _add(self, claim: WaitingClaim) -> None:
        """Before the first attempt, so that jobs that arrive meanwhile are not missed."""
        self._waiting[claim] = None
        self._nonempty.set()

    def _remove(self, claim: WaitingClaim) -> None:
        del self._waiting[claim]
        claim.cancel()
        if not self._waiting:
            self._nonempty.clear()

    # -- the poller -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause = POLL_SECONDS
        while True:
            await self._nonempty.wait()
            await self._presence.wait(pause)
            try:
                pause = await self._poll()
            except Exception as error:
                self._failures.failed(error)
                await self._clock.sleep(POLL_SECONDS)

    async def _poll(self) -> float:
        """Notify the claims that may get a job. Returns the seconds until the next poll, unless a hint comes first."""
        if not self._waiting:
            return POLL_SECONDS
        claims = list(self._waiting)
        found = await self._engine.polls.open_work(
            _union(claim.queues for claim in claims), _union(claim.types for claim in claims)
        )
        self._failures.succeeded()
        if found.next_in == 0:
            await self._engine.maintenance.requeue_due()  # which sends a hint
        if self._clock.monotonic() >= self._poll_at:
            self._poll_at = self._clock.monotonic() + self._poll_seconds()
            await self._poll_rest(lost=found.lost)
        answers = await self._notify(found.lanes) if found.lanes else []
        if None in answers or (True in answers and any(lane.ready >= READY_MAX for lane in found.lanes)):
            return 0.0  # there may be more jobs
        if True not in answers:
            await self._clock.sleep(PAUSE_SECONDS)
        floor = self._poll_seconds() * (0.75 + 0.5 * self._ids.jitter())
        return floor if found.next_in is None else min(floor, found.next_in)

    def _poll_seconds(self) -> float:
        return POLL_SECONDS * BROKER_FACTOR if self._hinted() else POLL_SECONDS

    async def _poll_rest(self, *, lost: bool) -> None:
        """Changes without hints. The claims of a disabled worker end now, not at their timeout."""
        if lost:
            await self._engine.maintenance.reap()
        known = await self._engine.polls.claimants(list({claim.worker for claim in self._waiting}))
        for claim in self._waiting:
            if claim.worker not in known:
                claim.notify()

    async def _notify(self, lanes: list[OpenLane]) -> list[bool | None]:
        """Notify as many claims as there are jobs; whether each got one, or None if it is not known yet."""
        answers: list[bool | None] = []
        chosen = choose(await self._candidates(lanes), lanes)
        for start in range(0, len(chosen), NOTIFY_BATCH):
            there = [claim for claim in chosen[start : start + NOTIFY_BATCH] if claim in self._waiting]
            answers += await notify_all(there) if there else []
        return answers

    async def _candidates(self, lanes: list[OpenLane]) -> dict[WaitingClaim, list[OpenLane]]:
        """The lanes that each claim may take from; preferred workers first, then the longest wait."""
        claims = [
            claim for claim in self._waiting if not claim.notified and any(claim.waits_for(lane) for lane in lanes)
        ]
        known = await self._engine.polls.claimants(list({claim.worker for claim in claims})) if claims else {}
        first, then = dict[WaitingClaim, list[OpenLane]](), dict[WaitingClaim, list[OpenLane]]()
        for claim in claims:
            if (claimant := known.get(claim.worker)) is not None:
                may_take = [lane for lane in lanes if claim.waits_for(lane) and claimant.may_take(lane)]
                preferred = any(lane.prefers <= claimant.offers for lane in may_take)
                (first if preferred else then)[claim] = may_take
        return first | then


def _union(wanted: Iterable[list[str] | None]) -> list[str] | None:
    """The union of the names; None if one claim accepts all."""
    found: set[str] = set()
    for names in wanted:
        if names is None:
            return None
        found.update(names)
    return sorted(found)
