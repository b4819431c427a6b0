"""Building blocks of the dispatch tests: a producer of jobs, minimal workers, and checks of the outcome.

A `MiniWorker` has no runtime: it claims, completes at once and waits, with the real source and listener.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from holdfast.assembly.engine import AppParts, OpenEngine, open_all
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch, kind_of_worker
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.model.reports import Complete
from holdfast.settings import Settings
from holdfast.store.notify import queue_waker
from holdfast.store.presence import open_presence
from holdfast.worker.sources.database import DatabaseSource, Hints, NoBroker

SECONDS = 60.0  # the default timeout


async def until(condition: Callable[[], Any], *, seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await Clock().sleep(0.005)


@contextlib.asynccontextmanager
async def producer(settings: Settings) -> AsyncIterator[OpenEngine]:
    """A process that only creates jobs."""
    opened = await open_all(settings, AppParts())
    try:
        yield opened
    finally:
        await opened.close()


class MiniWorker:
    def __init__(self, opened: OpenEngine, source: DatabaseSource, hints: Hints, slots: int) -> None:
        self.opened, self.source, self.hints, self.slots = opened, source, hints, slots
        self.done: list[str] = []
        self.claims = 0  # claims so far, with or without jobs
        self.pause = 0.0  # the duration of a job
        self.free = asyncio.Event()  # cleared: it claims nothing, as if all slots were taken
        self.free.set()

    @property
    def engine(self) -> Engine:
        return self.opened.engine

    @property
    def dispatch(self) -> Dispatch:
        assert self.opened.dispatch is not None
        return self.opened.dispatch

    @property
    def tally(self) -> Counter[tuple[str, str]]:
        return self.dispatch.tally

    async def run(self, queues: list[str] | None, types: list[str] | None) -> None:
        while True:
            try:
                await self.free.wait()
                self.claims += 1
                leases = await self.source.claim(self.slots, queues=queues, types=types)
                if leases:
                    await asyncio.sleep(self.pause)
                    await self.source.settle([Complete(lease.id, lease.token) for lease, _ in leases])
                    self.done += [lease.id for lease, _ in leases]
                else:
                    await self.source.wait(5, queues, types)
            except HoldfastError:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def listening_worker(
    settings: Settings, *, queues: list[str] | None = None, types: list[str] | None = None, live: int = 1
) -> AsyncIterator[tuple[OpenEngine, DatabaseSource, Hints]]:
    """A worker process without its runtime: registered, sending heartbeats, and listening for hints."""
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(producer(settings))
        presence = await open_presence(settings.url, Clock(), Ids(), queues=queues)
        stack.push_async_callback(presence.close)
        opened.engine.ctx.wakers.append(queue_waker(presence.wake))
        worker = (await opened.engine.workers.register()).id
        hints: Any = NoBroker(settings.poll_seconds)
        if opened.dispatch is not None:
            hints = opened.dispatch.listen(
                kind_of_worker(queues, types),
                presence.wake,
                queues=queues,
                types=types,
                poll_seconds=settings.poll_seconds,
                live=lambda: live,
            )
        async with running_beside(hints.run()):
            yield opened, DatabaseSource(opened.engine, presence, Clock(), worker=worker, hints=hints), hints


@contextlib.asynccontextmanager
async def running_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():  # a library may swallow the cancellation
            task.cancel()
            await asyncio.wait([task], timeout=1)


@contextlib.asynccontextmanager
async def mini_worker(
    settings: Settings,
    *,
    queues: list[str] | None = None,
    types: list[str] | None = None,
    slots: int = 10,
    live: int = 1,
) -> AsyncIterator[MiniWorker]:
    async with listening_worker(settings, queues=queues, types=types, live=live) as (opened, source, hints):
        found = MiniWorker(opened, source, hints, slots)
        async with running_beside(found.run(queues, types)):
            yield found


async def wait_until_idle(*workers: MiniWorker) -> None:
    """Wait until each worker listens for hints and its next poll is far away."""
    for one in workers:
        await until(lambda one=one: one.dispatch.up and one.hints._receiving is not None)
        await until(lambda one=one: _polls_rarely(one))
        await until(lambda one=one: one.hints._receiving is not None)


def _polls_rarely(one: MiniWorker) -> bool:
    """Skips the short polling intervals that follow a hint."""
    one.source._poll = one.hints.floor_seconds
    return one.source._pause > one.source._poll / 2


async def create_jobs(engine: Engine, count: int, **fields: Any) -> list[str]:
    new = [NewJob(**{"type": "a", **fields}) for _ in range(count)]
    return [created.id for created in await engine.create_many(new)]


async def final_states(engine: Engine, ids: list[str]) -> Counter[str]:
    """The number of jobs by state and number of executions."""
    found = [await engine.reads.get(job) for job in ids]
    return Counter(f"{job.state} after {job.epoch}" for job in found)


async def assert_each_ran_once(engine: Engine, ids: list[str], *workers: MiniWorker) -> None:
    """These workers have completed all of the jobs, each of them once."""
    await until(lambda: set(ids) <= {job for one in workers for job in one.done})
    assert await final_states(engine, ids) == {"succeeded after 1": len(ids)}
