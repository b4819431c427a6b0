"""`GET /jobs/{jobId}` from the copies in Redis, and the copies kept up with the event log."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from holdfast.batching import Batcher
from holdfast.clock import Clock
from holdfast.dispatch.redis_status import StatusCache
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, NotFound
from holdfast.ids import is_uuid
from holdfast.model.summary import JobSummary
from holdfast.server.live.event_buffer import LogPosition
from holdfast.server.live.feed import EventFeed, FeedWatcher, of_job

COPIES_MAX = 5_000  # that one server keeps up to date
TOGETHER = 200
SWEEP_SECONDS = 1.0
LONGER_SECONDS = 2.0  # than its copy lasts, a job is watched: the copy is made a little later

JobKey = tuple[str, str]  # job, tenant

log = logging.getLogger(__name__)


class CachedJob(FeedWatcher):
    """A copy that this server has made. When something happens to its job, it is made anew."""

    __slots__ = ("_changed", "_rung_any", "asked", "changes", "until")

    def __init__(self, key: JobKey, changed: dict[JobKey, CachedJob], rung: asyncio.Event) -> None:
        super().__init__(of_job(key[0]))
        self.key, self._changed, self._rung_any = key, changed, rung
        self.until = 0.0
        self.changes = 0

    def ring(self, behind: LogPosition) -> None:
        self.changes += 1
        self._changed[self.key] = self
        self._rung_any.set()


class JobCache:
    """Who asks first for a job pays for the copy; who asks next gets it, from whichever server.

    Only what somebody asked for is copied, so that the cost is bounded by what is asked. Whoever makes a copy watches
    its job from before it is read, so no change is missed; and if that server dies, the copy lasts as long as it may.
    """

    def __init__(
        self, cache: StatusCache, engine: Engine, outlines: Batcher[JobKey, JobSummary], feed: EventFeed, clock: Clock
    ) -> None:
        self._cache, self._engine, self._outlines = cache, engine, outlines
        self._feed, self._clock = feed, clock
        self._copies: dict[JobKey, CachedJob] = {}  # those to be let go first stand first
        self._changed: dict[JobKey, CachedJob] = {}
        self._rung = asyncio.Event()
        self._making: set[asyncio.Task[bool]] = set()

    async def look(self, job_id: str, tenant: str) -> JobSummary:
        key = job_id, tenant
        if not is_uuid(job_id):
            return await self._outlines.put(key)
        if key not in self._changed and (copy := await self._cache.get(job_id, tenant)) is not None:
            return copy
        watched = len(self._making) < TOGETHER and await self._watch(key)
        read_at = self._clock.monotonic()
        try:
            outline = await self._outlines.put(key)
        except NotFound:  # for all who ask so: nobody else has made a copy meanwhile
            self._let_go(key)
            raise
        if watched:
            making = asyncio.create_task(self._cache.put([(tenant, outline, self._cache.seconds)], read_at))
            self._making.add(making)  # nobody waits for it
            making.add_done_callback(self._making.discard)
        return outline

    async def refresh(self, job_id: str, tenant: str) -> None:
        """Whoever changed a job through this server finds it changed, if that can be done."""
        with suppress(HoldfastError):
            if await self._watch((job_id, tenant)):
                await self._make([self._copies[job_id, tenant]])

    async def run(self) -> None:
        """Until cancelled: what has changed is copied again, and what was copied long ago is watched no longer."""
        while True:
            if await self._clock.within(self._rung, SWEEP_SECONDS):
                self._rung.clear()
            done = True
            while done and self._changed:
                done = await self._make(list(self._changed.values())[:TOGETHER])
            now = self._clock.monotonic()
            while self._copies and (oldest := next(iter(self._copies.values()))).until < now:
                self._let_go(oldest.key)

    async def close(self) -> None:
        await asyncio.gather(*self._making, return_exceptions=True)

    async def _watch(self, key: JobKey) -> bool:
        """False where this server watches as many as it can."""
        copy = self._copies.pop(key, None)
        if copy is None and len(self._copies) >= COPIES_MAX:
            return False
        new = copy is None
        copy = self._copies[key] = copy or CachedJob(key, self._changed, self._rung)
        copy.until = self._clock.monotonic() + self._cache.seconds + LONGER_SECONDS
        try:
            if new:
                await self._feed.join(copy)
        except BaseException:
            self._copies.pop(key, None)
            raise
        return True

    def _let_go(self, key: JobKey) -> None:
        if (copy := self._copies.pop(key, None)) is not None:
            self._feed.leave(copy)
            self._changed.pop(key, None)

    async def _make(self, copies: list[CachedJob]) -> bool:
        """None lasts longer than its job is watched. Until it is made, its job is among what has changed: no old copy
        answers meanwhile."""
        read_at, before = self._clock.monotonic(), [copy.changes for copy in copies]
        self._changed.update({copy.key: copy for copy in copies if copy.key in self._copies})
        try:
            found = await self._engine.reads.summaries([copy.key for copy in copies])
        except HoldfastError as error:  # the old ones last as long as they may
            log.debug("cannot read what has changed: %s", error)
            return False
        made = [
            (copy.key[1], outline, min(self._cache.seconds, copy.until - read_at))
            for copy, outline in zip(copies, found, strict=True)
            if isinstance(outline, JobSummary) and copy.until > read_at
        ]
        if made and not await self._cache.put(made, read_at):
            return False
        for copy, changes in zip(copies, before, strict=True):
            if copy.changes == changes and self._changed.get(copy.key) is copy:
                self._changed.pop(copy.key, None)
        return True
