"""What stories about dispatch are made of: somebody who creates jobs, hands that do them, and a look at the end.

A hand is a worker without a runtime: it claims, completes at once and waits, with the real source and listener.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from holdfast.assembly.engine import OpenEngine, open_all, open_presence
from holdfast.clock import Clock
from holdfast.dispatch.dispatch import Dispatch, kind_of_worker
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.lifecycle import Lifecycles
from holdfast.model import NewJob
from holdfast.model.reports import Complete
from holdfast.settings import Settings
from holdfast.store.notify import queue_waker
from holdfast.worker.sources.database import DatabaseSource, Hints, NoBroker

SECONDS = 60.0  # for whatever must happen in the end


async def until(condition: Callable[[], Any], *, seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await Clock().sleep(0.005)


@contextlib.asynccontextmanager
async def creating(settings: Settings) -> AsyncIterator[OpenEngine]:
    """A process that creates jobs and does nothing else."""
    opened = await open_all(settings, lifecycles=Lifecycles(), clock=Clock(), ids=Ids())
    try:
        yield opened
    finally:
        await opened.close()


class Hand:
    def __init__(self, opened: OpenEngine, source: DatabaseSource, hints: Hints, slots: int) -> None:
        self.opened, self.source, self.hints, self.slots = opened, source, hints, slots
        self.done: list[str] = []
        self.claims = 0  # that were made, with or without success
        self.pause = 0.0  # how long a job takes
        self.busy = asyncio.Event()  # clear: it does nothing, as if all slots were taken
        self.busy.set()

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
                await self.busy.wait()
                self.claims += 1
                leases = await self.source.claim(self.slots, queues=queues, types=types)
                if leases:
                    await asyncio.sleep(self.pause)
                    await self.source.complete([Complete(lease.id, lease.token) for lease, _ in leases])
                    self.done += [lease.id for lease, _ in leases]
                else:
                    await self.source.wait(5, queues, types)
            except HoldfastError:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def listening(
    settings: Settings, *, queues: list[str] | None = None, types: list[str] | None = None, live: int = 1
) -> AsyncIterator[tuple[OpenEngine, DatabaseSource, Hints]]:
    """A worker process without its worker: registered, present, and hearing hints."""
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(creating(settings))
        presence = await open_presence(settings, Clock(), Ids(), queues=queues)
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
        async with beside(hints.run()):
            yield opened, DatabaseSource(opened.engine, presence, Clock(), worker=worker, hints=hints), hints


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():  # now and then a library swallows it
            task.cancel()
            await asyncio.wait([task], timeout=1)


@contextlib.asynccontextmanager
async def hand(
    settings: Settings,
    *,
    queues: list[str] | None = None,
    types: list[str] | None = None,
    slots: int = 10,
    live: int = 1,
) -> AsyncIterator[Hand]:
    async with listening(settings, queues=queues, types=types, live=live) as (opened, source, hints):
        found = Hand(opened, source, hints, slots)
        async with beside(found.run(queues, types)):
            yield found


async def idle(*hands: Hand) -> None:
    """Each listens, and would not look by itself for long."""
    for one in hands:
        await until(lambda one=one: one.dispatch.up and one.hints._receiving is not None)
        await until(lambda one=one: _is_calm(one))
        await until(lambda one=one: one.hints._receiving is not None)


def _is_calm(one: Hand) -> bool:
    """After a hint it would look often for a while; that is left out here, also when one comes just now."""
    one.source._poll = one.hints.floor_seconds
    return one.source._pause > one.source._poll / 2


async def jobs(engine: Engine, count: int, **fields: Any) -> list[str]:
    new = [NewJob(**{"type": "a", **fields}) for _ in range(count)]
    return [created.id for created in await engine.create_many(new)]


async def ended(engine: Engine, ids: list[str]) -> Counter[str]:
    """How many are in each state, each after how many executions."""
    found = [await engine.reads.get(job) for job in ids]
    return Counter(f"{job.state} after {job.epoch}" for job in found)


async def all_done(engine: Engine, ids: list[str], *hands: Hand) -> None:
    """By these hands, and each once."""
    await until(lambda: set(ids) <= {job for one in hands for job in one.done})
    assert await ended(engine, ids) == {"succeeded after 1": len(ids)}
