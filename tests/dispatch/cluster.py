"""Several producers and workers in one process, each with its own connections to the database and the broker."""

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
from tests.dispatch.harness import create_jobs, listening_worker, producer, until
from tests.dispatch.sample_jobs import QUEUES, app
from tests.worker.real_processes.harness import WorkerHarness, eventually

RECONNECT_SECONDS = 50.0  # five times the documented bound


class Cluster:
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

    async def wait_for_broker(self) -> list[str]:
        """Wait until each kind of worker receives hints through the broker; returns the jobs created to check that."""
        probes: list[str] = []
        async with asyncio.timeout(RECONNECT_SECONDS):
            await until(lambda: all(dispatch.up for dispatch in self.listeners), seconds=RECONNECT_SECONDS)
            for queue, dispatches in self.workers.items():
                before = received_hints(*dispatches)
                while received_hints(*dispatches) == before:
                    probes += await create_jobs(self.engine, 1, type="succeeds", queue=queue)
                    await asyncio.sleep(0.1)
        return probes


@asynccontextmanager
async def open_cluster(*configurations: Settings) -> AsyncIterator[Cluster]:
    """With each of the settings, one producer and one worker of each kind."""
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        for settings in configurations:
            cluster.creators.append(await stack.enter_async_context(producer(settings)))
            for queue in QUEUES:
                opened = await stack.enter_async_context(_worker(settings, queue))
                if opened.dispatch is not None:
                    cluster.workers[queue].append(opened.dispatch)
        await until(lambda: all(dispatch.up for dispatch in cluster.listeners))
        yield cluster


@asynccontextmanager
async def _worker(settings: Settings, queue: str) -> AsyncIterator[OpenEngine]:
    async with listening_worker(settings, queues=[queue], types=sorted(app.handlers), live=4) as (opened, source, _):
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


def received_hints(*dispatches: Dispatch) -> int:
    return sum(dispatch.tally["received", how] for dispatch in dispatches for how in ("woke", "claimed"))


async def wait_until_all_final(engine: Engine) -> None:
    async def all_final() -> bool:
        return all(state in FINAL for *_, state, _ in await engine.reads.counts())

    await eventually(all_final)


class RunChecker(WorkerHarness):
    """Checks the jobs and the handler log of a finished run."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder, Settings())
        self._engine = engine

    async def engine(self) -> Engine:
        return self._engine

    async def check_all(self, ids: list[str]) -> list[Job]:
        """Each job is final, completed once, and started no earlier than its `run_at`."""
        found = [await self.truthful(await self._engine.reads.get(job)) for job in ids]
        for job in found:
            if job.epoch:
                assert await self.claimed_at(job, job.epoch) >= job.run_at.timestamp(), "S9"
        return found
