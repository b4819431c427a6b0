"""Processes in one: some that create jobs, and workers of two kinds, each with connections of its own to everything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from holdfast.assembly.engine import OpenEngine
from holdfast.dispatch.dispatch import Dispatch
from holdfast.engine import Engine
from holdfast.lifecycle import FINAL
from holdfast.model import Job
from holdfast.settings import Settings
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executor import HandlerResources
from holdfast.worker.runtime import Worker
from tests.dispatch.errands import QUEUES, app
from tests.dispatch.stories import creating, jobs, listening, until
from tests.worker.stories.stage import Stage, eventually

BACK_SECONDS = 50.0  # five times what is promised


class Crew:
    def __init__(self) -> None:
        self.creators: list[OpenEngine] = []
        self.workers: dict[str, list[Dispatch]] = {queue: [] for queue in QUEUES}

    @property
    def engine(self) -> Engine:
        return self.creators[0].engine

    @property
    def listeners(self) -> list[Dispatch]:
        return [dispatch for dispatches in self.workers.values() for dispatch in dispatches]

    @property
    def dispatches(self) -> list[Dispatch]:
        return self.listeners + [opened.dispatch for opened in self.creators if opened.dispatch is not None]

    async def is_back_on_the_broker(self) -> list[str]:
        """Each kind of worker hears through it; the jobs with which that was found out."""
        probes: list[str] = []
        async with asyncio.timeout(BACK_SECONDS):
            await until(lambda: all(dispatch.up for dispatch in self.listeners), seconds=BACK_SECONDS)
            for queue, dispatches in self.workers.items():
                before = heard(*dispatches)
                while heard(*dispatches) == before:
                    probes += await jobs(self.engine, 1, type="works", queue=queue)
                    await asyncio.sleep(0.1)
        return probes


@asynccontextmanager
async def crew_at(*wires: Settings) -> AsyncIterator[Crew]:
    """On each wire one that creates, and one worker of each kind."""
    crew = Crew()
    async with AsyncExitStack() as stack:
        for settings in wires:
            crew.creators.append(await stack.enter_async_context(creating(settings)))
            for queue in QUEUES:
                opened = await stack.enter_async_context(_working(settings, queue))
                if opened.dispatch is not None:
                    crew.workers[queue].append(opened.dispatch)
        await until(lambda: all(dispatch.up for dispatch in crew.listeners))
        yield crew


@asynccontextmanager
async def _working(settings: Settings, queue: str) -> AsyncIterator[OpenEngine]:
    async with listening(settings, queues=[queue], types=sorted(app.handlers), live=4) as (opened, source, _):
        config = WorkerConfig(concurrency=4, queues=[queue], heartbeats=False, stop_grace_seconds=5)
        worker = Worker(
            source, app.handlers, config=config, resources=HandlerResources(middleware=app.middleware_stack)
        )
        running = asyncio.create_task(worker.run())
        try:
            yield opened
        finally:
            worker.stop()
            await running


def heard(*dispatches: Dispatch) -> int:
    return sum(dispatch.tally["received", how] for dispatch in dispatches for how in ("woke", "claimed"))


async def all_ended(engine: Engine) -> None:
    async def ended() -> bool:
        return all(state in FINAL for *_, state, _ in await engine.reads.counts())

    await eventually(ended)


class Books(Stage):
    """What a run leaves, and whether it keeps the promises."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder, Settings())
        self._engine = engine

    async def engine(self) -> Engine:
        return self._engine

    async def all_truthful(self, ids: list[str]) -> list[Job]:
        """Each has ended, once, and ran at its time."""
        found = [await self.truthful(await self._engine.reads.get(job)) for job in ids]
        for job in found:
            if job.epoch:
                assert await self.claimed_at(job, job.epoch) >= job.run_at.timestamp(), "S9"
        return found
