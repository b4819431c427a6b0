"""`engine.results`: callers wait for jobs to end. All of an event loop share one listener, its reads and its poll."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from holdfast.batching import Batcher
from holdfast.engine.component import Component
from holdfast.engine.context import EngineContext
from holdfast.engine.reads import read as _read
from holdfast.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.ids import is_uuid
from holdfast.model import Job
from holdfast.store import PostgresStore, SqliteStore, q
from holdfast.store.result_signals import ResultSignals, end_of

POLL_SECONDS = 1.0  # while signals arrive; they can be lost
FIRST_SECONDS, GROWTH = 0.005, 1.5  # the pauses between polls without signals, up to POLL_SECONDS
LINGER_SECONDS = 10.0  # after the last wait, signals are still received: another wait may begin soon

Waiter = asyncio.Future[Job]

_polling: set[int] = set()  # of this process, one for each event loop: together they poll as often as one
os.register_at_fork(after_in_child=_polling.clear)


class ResultWaits(Component):
    """`signals`: from and to other processes. What this engine ends itself it learns from its own commits."""

    signals: ResultSignals | None = None

    def __init__(self, store: PostgresStore | SqliteStore, ctx: EngineContext) -> None:
        super().__init__(store, ctx)
        self._reads: Batcher[str, Job] = Batcher(self._read, answers_each=True)
        self._waiting: dict[str, set[Waiter]] = {}  # by job
        self._by_end: dict[str, set[str]] = {}  # the same jobs, as signals name them
        self._found: set[str] = set()  # of these, those to be read
        self._poll_now = False
        self._changed = asyncio.Event()
        self._pause, self._polled_at = FIRST_SECONDS, 0.0
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job when it has ended; the job as it is if that takes longer than `timeout` seconds."""
        if self._closed or (timeout is not None and timeout <= 0):
            return await self._reads.put(job_id)
        waiter = self._add(job_id)
        try:
            async with asyncio.timeout(timeout):
                job = await self._reads.put(job_id)  # after `_add`: from here on no signal is missed
                if job.final:
                    return job
                self._start()
                return await waiter
        except TimeoutError:
            return await self._reads.put(job_id)
        finally:
            self._remove(job_id, waiter)

    async def close(self) -> None:
        """Callers that still wait get an error."""
        self._closed = True
        with suppress(RuntimeError, ValueError):  # their event loop has ended
            self._fail(StoreUnavailable("the store is closed", code="store_closed"))
            for task in (self._task, self._listening):
                if task is not None and not task.done():
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        if self.signals is not None:
            await self.signals.close()

    def _add(self, job_id: str) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(waiter)
        self._by_end.setdefault(end_of(job_id), set()).add(job_id)
        return waiter

    def _remove(self, job_id: str, waiter: Waiter) -> None:
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # or asyncio logs that it was never retrieved
        self._waiting[job_id].remove(waiter)
        if not self._waiting[job_id]:
            del self._waiting[job_id]
            end = end_of(job_id)
            self._by_end[end].discard(job_id)
            if not self._by_end[end]:
                del self._by_end[end]
        if not self._waiting:
            self._changed.set()

    # -- signals ----------------------------------------------------------------------------------------------

    def ended(self, job_ids: Collection[str]) -> None:
        """These jobs have ended, and it is committed."""
        if self._waiting:
            self._look_at(job_ids)
        if self.signals is not None:
            self.signals.ended(job_ids)

    def _hear(self, ends: Sequence[str] | None) -> None:
        """Jobs whose ids end so have ended; None: any may have."""
        if ends is None:
            self._poll_now = True
            self._changed.set()
        else:
            self._look_at(job_id for end in ends for job_id in self._by_end.get(end, ()))

    def _look_at(self, job_ids: Iterable[str]) -> None:
        if found := [job_id for job_id in job_ids if job_id in self._waiting]:
            self._found.update(found)
            self._changed.set()

    # -- in the background, while callers wait ----------------------------------------------------------------

    def _start(self) -> None:
        self._pause = FIRST_SECONDS
        self._changed.set()
        if self._task is None or self._task.done():
            self._polled_at = self.ctx.clock.monotonic()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            _polling.add(id(self))
            while await self._is_needed():
                await self._turn()
        finally:
            _polling.discard(id(self))

    async def _is_needed(self) -> bool:
        while not self._waiting:
            self._changed.clear()
            if not await self.ctx.clock.within(self._changed, LINGER_SECONDS):
                await self._rest()
                return bool(self._waiting)
            self._polled_at = self.ctx.clock.monotonic()  # a new caller has just read its job
        return True

    async def _turn(self) -> None:
        """Wait for signals until the next poll."""
        self._listen()
        await self.ctx.clock.within(self._changed, max(0.0, self._until_poll()))
        self._changed.clear()
        try:
            found, self._found = self._found, set()
            if self._poll_now or self._until_poll() <= 0:
                self._poll_now = False
                found |= await self._poll()
            await self._settle(found)
        except Exception as error:
            self._fail(error)

    def _until_poll(self) -> float:
        with_signals = self.signals is not None and self.signals.listening
        pause = POLL_SECONDS * len(_polling) if with_signals else self._pause
        return self._polled_at + pause - self.ctx.clock.monotonic()

    def _listen(self) -> None:
        """Begin to receive signals, or begin again, while polling goes on."""
        is_idle = self._listening is None or self._listening.done()
        if self.signals is not None and not self.signals.listening and is_idle:
            self._listening = asyncio.get_running_loop().create_task(self._open(self.signals))

    async def _open(self, signals: ResultSignals) -> None:
        with suppress(StoreError):  # then polling has to do
            await signals.listen(self._hear)
            if signals.listening:
                self._hear(None)  # what ended before

    async def _rest(self) -> None:
        if self.signals is not None:
            with suppress(StoreError):
                await self.signals.rest()

    # -- reading ----------------------------------------------------------------------------------------------

    async def _read(self, job_ids: list[str]) -> list[Job | HoldfastError]:
        return await self.store.read(lambda tx: _read.jobs(tx, job_ids))

    async def _poll(self) -> set[str]:
        """In one statement, of all jobs that are waited for."""
        self._polled_at, self._pause = self.ctx.clock.monotonic(), min(self._pause * GROWTH, POLL_SECONDS)
        wanted = [(job_id,) for job_id in self._waiting if is_uuid(job_id)]
        rows = await self.store.read(lambda tx: tx.all(q.ended_jobs, wanted=wanted)) if wanted else []
        return {row["job"] for row in rows}

    async def _settle(self, job_ids: Iterable[str]) -> None:
        """All in one statement."""
        wanted = [job_id for job_id in job_ids if job_id in self._waiting]
        for job_id, job in zip(wanted, await self._read(wanted) if wanted else (), strict=True):
            for waiter in self._waiting.get(job_id, ()):
                if waiter.done():
                    continue
                if isinstance(job, HoldfastError):
                    waiter.set_exception(job)
                elif job.final:
                    waiter.set_result(job)

    def _fail(self, error: Exception) -> None:
        for waiter in [each for waiters in self._waiting.values() for each in waiters]:
            if not waiter.done():
                waiter.set_exception(error)
