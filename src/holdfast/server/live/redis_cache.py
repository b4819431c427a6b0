"""A cache of job status in Redis for `GET /jobs/{jobId}`, kept up to date from the event feed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from holdfast.batching import Batcher
from holdfast.clock import Clock
from holdfast.dispatch.redis_status import StatusCache
from holdfast.engine import Cursor, Engine
from holdfast.errors import HoldfastError, NotFound
from holdfast.ids import is_uuid
from holdfast.model.summary import JobSummary
from holdfast.server.live.feed import EventFeed, FeedWatcher, of_job

JOBS_MAX = 5_000  # kept up to date by one server
BATCH_MAX = 200
SWEEP_SECONDS = 1.0
LONGER_SECONDS = 2.0  # a job is watched this much longer than its cache entry lives

JobKey = tuple[str, str]  # job, tenant

log = logging.getLogger(__name__)


class CachedJob(FeedWatcher):
    """A job that this server has cached; an event of the job refreshes the entry."""

    __slots__ = ("_any_notified", "_changed", "changes", "job_key", "until")

    def __init__(self, job_key: JobKey, changed: dict[JobKey, CachedJob], any_notified: asyncio.Event) -> None:
        super().__init__(of_job(job_key[0]))
        self.job_key, self._changed, self._any_notified = job_key, changed, any_notified
        self.until = 0.0
        self.changes = 0

    def notify(self, since: Cursor) -> None:
        self.changes += 1
        self._changed[self.job_key] = self
        self._any_notified.set()


class JobCache:
    """The first request for a job stores an entry; later requests to any server read it.

    The server that stores an entry subscribes to the events of the job before it reads the job, so no change is missed.
    If that server dies, the entry expires.
    """

    def __init__(
        self, cache: StatusCache, engine: Engine, summaries: Batcher[JobKey, JobSummary], feed: EventFeed, clock: Clock
    ) -> None:
        self._cache, self._engine, self._summaries = cache, engine, summaries
        self._feed, self._clock = feed, clock
        self._jobs: dict[JobKey, CachedJob] = {}  # ordered by expiry
        self._changed: dict[JobKey, CachedJob] = {}
        self._notified = asyncio.Event()
        self._storing: set[asyncio.Task[bool]] = set()

    async def get(self, job_id: str, tenant: str) -> JobSummary:
        key = job_id, tenant
        if not is_uuid(job_id):
            return await self._summaries.put(key)
        if key not in self._changed and (copy := await self._cache.get(job_id, tenant)) is not None:
            return copy
        watched = len(self._storing) < BATCH_MAX and await self._watch(key)
        read_at = self._clock.monotonic()
        try:
            outline = await self._summaries.put(key)
        except NotFound:  # there is no entry to keep
            self._unwatch(key)
            raise
        if watched:
            making = asyncio.create_task(self._cache.put([(tenant, outline, self._cache.seconds)], read_at))
            self._storing.add(making)  # in the background
            making.add_done_callback(self._storing.discard)
        return outline

    async def refresh(self, job_id: str, tenant: str) -> None:
        """Refresh the entry of a job that was changed through this server, if possible."""
        with suppress(HoldfastError):
            if await self._watch((job_id, tenant)):
                await self._store([self._jobs[job_id, tenant]])

    async def run(self) -> None:
        """Until cancelled: refresh changed entries, and unwatch expired ones."""
        while True:
            if await self._clock.within(self._notified, SWEEP_SECONDS):
                self._notified.clear()
            done = True
            while done and self._changed:
                done = await self._store(list(self._changed.values())[:BATCH_MAX])
            now = self._clock.monotonic()
            while self._jobs and (oldest := next(iter(self._jobs.values()))).until < now:
                self._unwatch(oldest.job_key)

    async def close(self) -> None:
        await asyncio.gather(*self._storing, return_exceptions=True)

    async def _watch(self, key: JobKey) -> bool:
        """False if this server watches the maximum number of jobs."""
        copy = self._jobs.pop(key, None)
        if copy is None and len(self._jobs) >= JOBS_MAX:
            return False
        new = copy is None
        copy = self._jobs[key] = copy or CachedJob(key, self._changed, self._notified)
        copy.until = self._clock.monotonic() + self._cache.seconds + LONGER_SECONDS
        try:
            if new:
                await self._feed.join(copy)
        except BaseException:
            self._jobs.pop(key, None)
            raise
        return True

    def _unwatch(self, key: JobKey) -> None:
        if (copy := self._jobs.pop(key, None)) is not None:
            self._feed.leave(copy)
            self._changed.pop(key, None)

    async def _store(self, copies: list[CachedJob]) -> bool:
        """No entry outlives the watch of its job. A job counts as changed until its entry is stored, so that no stale
        entry is read."""
        read_at, before = self._clock.monotonic(), [copy.changes for copy in copies]
        self._changed.update({copy.job_key: copy for copy in copies if copy.job_key in self._jobs})
        try:
            found = await self._engine.reads.summaries([copy.job_key for copy in copies])
        except HoldfastError as error:  # the old entries expire
            log.debug("cannot refresh cached jobs: %s", error)
            return False
        made = [
            (copy.job_key[1], outline, min(self._cache.seconds, copy.until - read_at))
            for copy, outline in zip(copies, found, strict=True)
            if isinstance(outline, JobSummary) and copy.until > read_at
        ]
        if made and not await self._cache.put(made, read_at):
            return False
        for copy, changes in zip(copies, before, strict=True):
            if copy.changes == changes and self._changed.get(copy.job_key) is copy:
                self._changed.pop(copy.job_key, None)
        return True
