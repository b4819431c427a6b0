"""The event feed: one poller reads the event log for all streams of the server and notifies them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.engine import Cursor, Engine
from holdfast.lifecycle import State
from holdfast.model import Event
from holdfast.outage_log import LoopFailures
from holdfast.server.live.event_buffer import BufferedEvent, EventBuffer
from holdfast.store import Tx, q

IDLE_SECONDS = 0.25  # between two polls while there are no events
BUSY_SECONDS = 0.05  # and while there are
PAGE = 1000
PULL = 100  # events for one stream at once
CONCURRENT_PAGES = 3  # read for streams that lag: many reconnecting clients must not take all connections
JOB_INFO_MAX = 20_000

log = logging.getLogger(__name__)

Key = tuple[str, str]
EVERYTHING: Key = ("", "")


def of_job(job_id: str) -> Key:
    return ("job", job_id)


def of_tenant(tenant: str) -> Key:
    return ("tenant", tenant)


class FeedWatcher:
    """A subscription to the events of a job, of a tenant, or of all jobs."""

    __slots__ = ("_notified", "key", "since")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.since: Cursor | None = None  # unread events come after this position
        self._notified = asyncio.Event()

    def notify(self, since: Cursor) -> None:
        if self.since is None:
            self.since = since
            self._notified.set()

    def take(self) -> Cursor | None:
        since, self.since = self.since, None
        self._notified.clear()
        return since

    async def wait(self, clock: Clock, seconds: float) -> bool:
        return await clock.within(self._notified, max(0.0, seconds))


class FeedPage(NamedTuple):
    entries: list[BufferedEvent]
    position: Cursor  # to continue from
    at_end: bool


class JobInfo(NamedTuple):
    """Properties of a job that its events do not contain."""

    type: str
    queue: str
    words: Mapping[State, str]
    subject: str | None


class EventFeed:
    """Polls the log only while there are subscriptions, into one buffer."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._buffer = EventBuffer(Cursor())
        self._watchers: dict[Key, set[FeedWatcher]] = {}
        self._reading, self._hinted = asyncio.Event(), asyncio.Event()
        self._starting, self._asking = asyncio.Lock(), asyncio.Lock()
        self._pages = asyncio.Semaphore(CONCURRENT_PAGES)
        self._job_info: dict[str, JobInfo] = {}
        self._failures = LoopFailures("read the event log", log)
        self._restore_suspected = False
        self.replaced = 0  # number of detected database restores
        engine.store.identity.on_change.append(self._suspect_restore)

    # -- reading ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._reading.wait()
            came = await self._poll()
            if not self._watchers:
                self._reading.clear()
            elif came:
                await self._clock.sleep(BUSY_SECONDS)
            elif await self._clock.within(self._hinted, IDLE_SECONDS):
                self._hinted.clear()

    def wake(self) -> None:
        """A hint that there may be new events; without it they are found a little later."""
        self._hinted.set()

    def _suspect_restore(self) -> None:
        """The database may have been restored: its log may end before the events that were read."""
        self._restore_suspected = True

    async def _check_end(self) -> None:
        self._restore_suspected = False  # first: a change during the check is checked next time
        try:
            await self._compare_end()
        except BaseException:
            self._restore_suspected = True
            raise

    async def _compare_end(self) -> None:
        beyond = (await self._engine.reads.log_extent()).beyond
        if self._buffer.end.pos >= beyond:
            log.warning("the database was restored to a time before events that were sent: event streams are reset")
            self._buffer, self._job_info = EventBuffer(await self.end()), {}
            self.replaced += 1
            for watches in self._watchers.values():
                for watch in watches:
                    watch.notify(self._buffer.begin)

    @property
    def last(self) -> Cursor:
        """The end of the part of the log that was read."""
        return self._buffer.end

    async def _poll(self) -> bool:
        """True if there were new events. Errors are logged and retried."""
        came = full = False
        try:
            if self._restore_suspected:
                await self._check_end()
            while not came or full:
                events, end = await self._engine.reads.feed(self._buffer.end, limit=PAGE)
                if not events:
                    break
                self._notify_watchers([BufferedEvent(event) for event in events], end)
                came, full = True, len(events) == PAGE
            self._failures.succeeded()
        except Exception as error:
            self._failures.failed(error)
        return came

    def _notify_watchers(self, entries: list[BufferedEvent], end: Cursor) -> None:
        since = self._buffer.end
        self._buffer.add(entries, end)
        for entry in entries:
            for key in (of_job(entry.event.job_id), of_tenant(entry.event.tenant), EVERYTHING):
                for watch in self._watchers.get(key, ()):
                    watch.notify(since)

    # -- watching ---------------------------------------------------------------------------------------------

    async def watch(self, key: Key) -> FeedWatcher:
        """Subscribe to events from now on. End the subscription with `leave`."""
        watch = FeedWatcher(key)
        await self.join(watch)
        return watch

    async def join(self, watch: FeedWatcher) -> None:
        self._watchers.setdefault(watch.key, set()).add(watch)
        try:
            async with self._starting:
                if not self._reading.is_set():
                    self._buffer = EventBuffer(await self.end())
                    self._reading.set()
        except BaseException:
            self.leave(watch)
            raise

    def leave(self, watch: FeedWatcher) -> None:
        if watches := self._watchers.get(watch.key):
            watches.discard(watch)
            if not watches:
                del self._watchers[watch.key]

    async def changed(self, job_id: str, seconds: float, *, seen: int) -> bool:
        """Whether the job has events after `seen`, or gets one within the time."""
        watch = await self.watch(of_job(job_id))
        try:
            return bool(await self._history(job_id, seen, 1)) or await watch.wait(self._clock, seconds)
        finally:
            self.leave(watch)

    # -- reading ----------------------------------------------------------------------------------------------

    async def end(self) -> Cursor:
        """The current end of the log."""
        return await self._engine.reads.feed_end()

    async def read_after(self, position: Cursor, key: Key) -> FeedPage:
        """The next events for a key: from the buffer, or from the database for a stream that lags."""
        begin = self._buffer.begin
        if self._buffer.holds(position):
            return self._from_ring(position, key)
        async with self._pages:
            events, after = await self._engine.reads.feed(position, limit=PAGE)
        entries = [BufferedEvent(event) for event in events if _is_for(event, key)]
        # A page that is not full is complete up to its read, and so at least up to `begin`.
        return FeedPage(entries, after if len(events) == PAGE else max(after, begin), at_end=False)

    def _from_ring(self, position: Cursor, key: Key) -> FeedPage:
        found: list[BufferedEvent] = []
        for entry in self._buffer.after(position):
            if len(found) == PULL:
                return FeedPage(found, position, at_end=False)
            position = entry.position
            if _is_for(entry.event, key):
                found.append(entry)
        return FeedPage(found, position, at_end=True)

    def quiet_until(self, watch: FeedWatcher, position: Cursor) -> Cursor:
        """For a stream that has read everything: the position up to which there is nothing more for it."""
        return position if watch.since is not None else max(position, self._buffer.end)

    async def of_job(self, job_id: str, after: int, since: Cursor | None) -> list[Event]:
        """Events of a job after that number. `since`: the buffer has them after this position, if it still has."""
        if since is not None and self._buffer.holds(since):
            found = [entry.event for entry in self._buffer.after(since) if entry.event.job_id == job_id]
            fresh = [event for event in found if event.seq > after]
            if [event.seq for event in fresh] == list(range(after + 1, after + 1 + len(fresh))):
                return fresh
        return await self._history(job_id, after, PULL)

    async def _history(self, job_id: str, after: int, limit: int) -> list[Event]:
        async with self._pages:
            return await self._engine.reads.history(job_id, after=after, limit=limit)

    # -- jobs -------------------------------------------------------------------------------------------------

    async def about(self, job_ids: Collection[str]) -> Mapping[str, JobInfo]:
        """Properties of these jobs, loaded once for all streams. A pruned job is missing."""
        if all(job_id in self._job_info for job_id in job_ids):
            return self._cached_info(job_ids)
        async with self._asking:
            unknown = [job_id for job_id in job_ids if job_id not in self._job_info]
            found = await self._engine.store.read(lambda tx: self._ask(tx, unknown)) if unknown else {}
            if len(self._job_info) > JOB_INFO_MAX:
                self._job_info = self._cached_info(job_ids)
            self._job_info.update(found)
            return self._cached_info(job_ids)

    def _cached_info(self, job_ids: Collection[str]) -> dict[str, JobInfo]:
        return {job_id: self._job_info[job_id] for job_id in job_ids if job_id in self._job_info}

    async def _ask(self, tx: Tx, job_ids: list[str]) -> dict[str, JobInfo]:
        found: dict[str, JobInfo] = {}
        for row in await tx.all(q.event_jobs, ids=job_ids):
            machine = (await self._engine.ctx.registry.snapshot(tx, row["policy"])).machine
            found[row["id"]] = JobInfo(row["type"], row["queue"], machine.words, row["subject"])
        return found


def _is_for(event: Event, key: Key) -> bool:
    kind, name = key
    return (event.tenant if kind == "tenant" else event.job_id if kind == "job" else "") == name


def before_all_of(position: Cursor) -> Cursor:
    """The start of the events of its transaction; safe for all clients, because it contains no job id."""
    return Cursor(position.pos)


def after_all_of(position: Cursor) -> Cursor:
    """Where the events of its transaction have ended. Only if that one is over: it is when the log ends there."""
    return Cursor(position.pos + 1)
