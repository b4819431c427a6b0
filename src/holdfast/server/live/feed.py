"""The end of the event log, read once for all who watch: no watcher holds a connection, or a queue of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.engine import Cursor, Engine
from holdfast.engine.reads.read import NOWHERE
from holdfast.lifecycle import State
from holdfast.model import Event
from holdfast.outage_log import LoopFailures
from holdfast.server.live.event_buffer import BufferedEvent, EventBuffer, LogPosition
from holdfast.store import Tx, q

QUIET_SECONDS = 0.25  # between two looks while nothing happens
BUSY_SECONDS = 0.05  # and while something does
PAGE = 1000
PULL = 100  # lines for one watcher at once
PAGES_AT_ONCE = 3  # read for those who are behind: a crowd that comes back must not take every connection
KNOWN_MAX = 20_000

log = logging.getLogger(__name__)

Key = tuple[str, str]
EVERYTHING: Key = ("", "")


def of_job(job_id: str) -> Key:
    return ("job", job_id)


def of_tenant(tenant: str) -> Key:
    return ("tenant", tenant)


class FeedWatcher:
    """Somebody who wants to know of a job, of a tenant's jobs, or of everything."""

    __slots__ = ("_rung", "behind", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.behind: LogPosition | None = None  # the first event for it since it last looked comes behind this
        self._rung = asyncio.Event()

    def ring(self, behind: LogPosition) -> None:
        if self.behind is None:
            self.behind = behind
            self._rung.set()

    def take(self) -> LogPosition | None:
        behind, self.behind = self.behind, None
        self._rung.clear()
        return behind

    async def rung(self, clock: Clock, seconds: float) -> bool:
        return await clock.within(self._rung, max(0.0, seconds))


class FeedPage(NamedTuple):
    lines: list[BufferedEvent]
    place: LogPosition  # to go on from
    at_end: bool


class JobInfo(NamedTuple):
    """What the events of a job do not say themselves."""

    type: str
    queue: str
    words: Mapping[State, str]
    subject: str | None


class EventFeed:
    """It reads only while somebody watches, and then into one ring for all of them."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._ring = EventBuffer(_place(Cursor()))
        self._watches: dict[Key, set[FeedWatcher]] = {}
        self._reading, self._hinted = asyncio.Event(), asyncio.Event()
        self._starting, self._asking = asyncio.Lock(), asyncio.Lock()
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)
        self._known: dict[str, JobInfo] = {}
        self._failures = LoopFailures("read the events", log)
        self._doubted = False
        self.replaced = 0  # times that the log ended before what had been read of it
        engine.store.identities.changed.append(self._doubt)

    # -- reading ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._reading.wait()
            came = await self._look()
            if not self._watches:
                self._reading.clear()
            elif came:
                await self._clock.sleep(BUSY_SECONDS)
            elif await self._clock.within(self._hinted, QUIET_SECONDS):
                self._hinted.clear()

    def look_soon(self) -> None:
        """Something may be new: a hint, without which it is found a little later."""
        self._hinted.set()

    def _doubt(self) -> None:
        """The database was restored or replaced: its log may end before what we have read."""
        self._doubted = True

    async def _check_end(self) -> None:
        self._doubted = False  # first: a change that comes during the check is checked next time
        try:
            await self._compare_end()
        except BaseException:
            self._doubted = True
            raise

    async def _compare_end(self) -> None:
        beyond = (await self._engine.reads.log_extent()).beyond
        if self._ring.end[0] >= beyond:
            log.warning("the database has gone back behind events that were told from it: streams are told so")
            self._ring, self._known = EventBuffer(await self.end()), {}
            self.replaced += 1
            for watches in self._watches.values():
                for watch in watches:
                    watch.ring(self._ring.begin)

    @property
    def last(self) -> LogPosition:
        """Where the part of the log ends that was read."""
        return self._ring.end

    async def _look(self) -> bool:
        """True if something was new. What goes wrong is tried again: the watchers' own limits go on meanwhile."""
        came = full = False
        try:
            if self._doubted:
                await self._check_end()
            while not came or full:
                events, end = await self._engine.reads.feed(Cursor(*self._ring.end), limit=PAGE)
                if not events:
                    break
                self._spread([BufferedEvent(event) for event in events], _place(end))
                came, full = True, len(events) == PAGE
            self._failures.succeeded()
        except Exception as error:
            self._failures.failed(error)
        return came

    def _spread(self, lines: list[BufferedEvent], end: LogPosition) -> None:
        behind = self._ring.end
        self._ring.add(lines, end)
        for line in lines:
            for key in (of_job(line.event.job_id), of_tenant(line.event.tenant), EVERYTHING):
                for watch in self._watches.get(key, ()):
                    watch.ring(behind)

    # -- watching ---------------------------------------------------------------------------------------------

    async def watch(self, key: Key) -> FeedWatcher:
        """Whatever is not yet in the log, it will be told of. Give it back with `leave`."""
        watch = FeedWatcher(key)
        await self.join(watch)
        return watch

    async def join(self, watch: FeedWatcher) -> None:
        self._watches.setdefault(watch.key, set()).add(watch)
        try:
            async with self._starting:
                if not self._reading.is_set():
                    self._ring = EventBuffer(await self.end())
                    self._reading.set()
        except BaseException:
            self.leave(watch)
            raise

    def leave(self, watch: FeedWatcher) -> None:
        if watches := self._watches.get(watch.key):
            watches.discard(watch)
            if not watches:
                del self._watches[watch.key]

    async def changed(self, job_id: str, seconds: float, *, seen: int) -> bool:
        """Does the job have more events than the caller has seen, or does one come to our ears within that time?"""
        watch = await self.watch(of_job(job_id))
        try:
            return bool(await self._history(job_id, seen, 1)) or await watch.rung(self._clock, seconds)
        finally:
            self.leave(watch)

    # -- pulling ----------------------------------------------------------------------------------------------

    async def end(self) -> LogPosition:
        """Where the log ends now."""
        return _place(await self._engine.reads.feed_end())

    async def behind(self, place: LogPosition, key: Key) -> FeedPage:
        """The next lines for a key: from the ring, or from the database for whoever is further behind."""
        begin = self._ring.begin
        if self._ring.holds(place):
            return self._from_ring(place, key)
        async with self._pages:
            events, after = await self._engine.reads.feed(Cursor(*place), limit=PAGE)
        lines = [BufferedEvent(event) for event in events if _is_for(event, key)]
        # A page that is not full has all that was there when it was read, and that is all up to `begin` at least.
        return FeedPage(lines, _place(after) if len(events) == PAGE else max(_place(after), begin), at_end=False)

    def _from_ring(self, place: LogPosition, key: Key) -> FeedPage:
        found: list[BufferedEvent] = []
        for line in self._ring.behind(place):
            if len(found) == PULL:
                return FeedPage(found, place, at_end=False)
            place = line.place
            if _is_for(line.event, key):
                found.append(line)
        return FeedPage(found, place, at_end=True)

    def quiet_until(self, watch: FeedWatcher, place: LogPosition) -> LogPosition:
        """For whoever has pulled all there was: up to here nothing more has come for it."""
        return place if watch.behind is not None else max(place, self._ring.end)

    async def of_job(self, job_id: str, after: int, behind: LogPosition | None) -> list[Event]:
        """A job's events behind that number. `behind`: the ring has them behind this place, if it still has."""
        if behind is not None and self._ring.holds(behind):
            found = [line.event for line in self._ring.behind(behind) if line.event.job_id == job_id]
            fresh = [event for event in found if event.seq > after]
            if [event.seq for event in fresh] == list(range(after + 1, after + 1 + len(fresh))):
                return fresh
        return await self._history(job_id, after, PULL)

    async def _history(self, job_id: str, after: int, limit: int) -> list[Event]:
        async with self._pages:
            return await self._engine.reads.history(job_id, after=after, limit=limit)

    # -- jobs -------------------------------------------------------------------------------------------------

    async def about(self, job_ids: Collection[str]) -> Mapping[str, JobInfo]:
        """What is known of these jobs; asked once, however many watch them. A job that was pruned is missing."""
        if all(job_id in self._known for job_id in job_ids):
            return self._recalled(job_ids)
        async with self._asking:
            unknown = [job_id for job_id in job_ids if job_id not in self._known]
            found = await self._engine.store.read(lambda tx: self._ask(tx, unknown)) if unknown else {}
            if len(self._known) > KNOWN_MAX:
                self._known = self._recalled(job_ids)
            self._known.update(found)
            return self._recalled(job_ids)

    def _recalled(self, job_ids: Collection[str]) -> dict[str, JobInfo]:
        return {job_id: self._known[job_id] for job_id in job_ids if job_id in self._known}

    async def _ask(self, tx: Tx, job_ids: list[str]) -> dict[str, JobInfo]:
        found: dict[str, JobInfo] = {}
        for row in await tx.all(q.kinds_of_jobs, ids=job_ids):
            machine = (await self._engine.ctx.registry.snapshot(tx, row["policy"])).machine
            found[row["id"]] = JobInfo(row["type"], row["queue"], machine.words, row["subject"])
        return found


def _is_for(event: Event, key: Key) -> bool:
    kind, name = key
    return (event.tenant if kind == "tenant" else event.job_id if kind == "job" else "") == name


def before_all_of(place: LogPosition) -> LogPosition:
    """Where the events of its transaction begin: to be told to anybody, as it names no job."""
    return place[0], NOWHERE, 0


def behind_all_of(place: LogPosition) -> LogPosition:
    """Where the events of its transaction have ended. Only if that one is over: it is when the log ends there."""
    return place[0] + 1, NOWHERE, 0


def _place(cursor: Cursor) -> LogPosition:
    pos, job_id, seq = msgspec.structs.astuple(cursor)
    return pos, job_id, seq
