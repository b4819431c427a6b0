"""A worker in the test's own process: the real runtime on the real engine, with a source that a test may break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.sdk.app import App
from holdfast.store.notify import queue_waker
from holdfast.store.presence import open_presence
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executor import HandlerResources
from holdfast.worker.handler import NO_MIDDLEWARE, MiddlewareStack
from holdfast.worker.metrics import WorkerCounters
from holdfast.worker.processes.process_pool import ProcessPool
from holdfast.worker.runtime import Worker
from holdfast.worker.source import VERBS
from holdfast.worker.sources.database import DatabaseSource


class BreakableSource(DatabaseSource):
    """A source whose verbs fail, hang, or lose their answers, for as long as a test says so."""

    broken: dict[str, Exception]
    lost_answers: set[str]
    hanging: dict[str, asyncio.Event]  # until it is set

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.broken, self.lost_answers, self.hanging, self.calls = {}, set(), {}, []

    async def claim(self, limit: int, **where: Any) -> Any:
        return await self._do("claim", super().claim(limit, **where), limit)

    async def settle(self, reports: Any) -> Any:
        return await self._do(VERBS[type(reports[0])], super().settle(reports), len(reports))

    async def progress(self, reports: Any) -> Any:
        return await self._do("progress", super().progress(reports), len(reports))

    async def recover_claims(self, known: Any) -> Any:
        return await self._do("recover_claims", super().recover_claims(known), 1)

    async def parts(self, job_id: str) -> Any:
        return await self._do("parts", super().parts(job_id), 1)

    async def _do(self, verb: str, work: Any, size: int) -> Any:
        self.calls.append((verb, size))
        if (hanging := self.hanging.get(verb)) is not None:
            try:
                await hanging.wait()
            except BaseException:
                work.close()
                raise
        if (error := self.broken.get(verb)) is not None:
            work.close()
            raise error
        answer = await work
        if verb in self.lost_answers:
            from holdfast.errors import OutcomeUnknown

            self.lost_answers.discard(verb)
            raise OutcomeUnknown("the answer was lost, on purpose")
        return answer


class AtWork:
    def __init__(self, worker: Worker, source: BreakableSource, running: asyncio.Task[None]) -> None:
        self.worker, self.source, self.running = worker, source, running

    async def stop(self) -> None:
        self.worker.stop()
        await self.running


@asynccontextmanager
async def working(
    app: App,
    *,
    figures: WorkerCounters | None = None,
    children: ProcessPool | None = None,
    middleware: MiddlewareStack = NO_MIDDLEWARE,
    clock: Clock | None = None,
    **config: Any,
) -> AsyncIterator[AtWork]:
    """No heartbeats are sent unless a test does: the leases are long enough."""
    engine = await app.engine()
    presence = await open_presence(app.settings.url, Clock(), Ids())
    waker = queue_waker(presence.wake)
    engine.ctx.wakers.append(waker)
    registered = await engine.workers.register(name="in-process")
    source = BreakableSource(engine, presence, Clock(), worker=registered.id)
    worker = Worker(
        source,
        app.handlers,
        config=WorkerConfig(**{"heartbeats": False, "stop_grace_seconds": 5, **config}),
        resources=HandlerResources(
            middleware=middleware,
            metrics=figures,
            pool=children,
            database=app.handler_database,
        ),
        clock=clock,
    )
    if figures is not None:
        figures.of(worker)
    at_work = AtWork(worker, source, asyncio.create_task(worker.run()))
    try:
        yield at_work
        await at_work.stop()
    finally:
        at_work.running.cancel()
        await asyncio.gather(at_work.running, return_exceptions=True)
        engine.ctx.wakers.remove(waker)
        await presence.close()


async def until(condition: Any, *, seconds: float = 60) -> None:
    """Poll until the condition is true; fail after the timeout."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)


async def verbs(app: App, job_id: str) -> list[str]:
    return [event.verb for event in await (await app.engine()).reads.history(job_id)]


async def is_done(app: App, job_id: str) -> bool:
    return (await (await app.engine()).reads.get(job_id)).final


async def everything_done(app: App) -> bool:
    return {state for _, _, state, _ in await (await app.engine()).reads.counts()} <= {State.SUCCEEDED}
