"""Steps shared by many tests: run a worker of an app until no job is left, and count the jobs of the database."""

import asyncio
from typing import Any

from holdfast import App
from holdfast.store.presence import open_presence
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executor import HandlerResources
from holdfast.worker.runtime import Worker
from holdfast.worker.sources.database import DatabaseSource

NO_BACKOFF = {"backoff_base_seconds": 0}


class StopsWhenIdle(DatabaseSource):
    """A source that stops its worker when there is nothing left to claim."""

    claimed = 0
    idle = False  # at the last look: what ended since then may be there to be claimed again
    worker_of: Worker

    async def claim(self, limit: int, **where: Any) -> Any:
        found = await super().claim(limit, **where)
        self.claimed += len(found)
        self.idle = self.idle and not found
        return found

    async def wait(self, *_: Any, **__: Any) -> bool:
        was_idle, self.idle = self.idle, not self.worker_of.slots.executions
        if was_idle and self.idle:
            self.worker_of.stop()
        await asyncio.sleep(0.005)
        return True


async def drained(app: App, *, capabilities: dict[str, Any] | None = None, **config: Any) -> int:
    """One worker, as it runs in production, works until there is nothing left to claim; how many jobs that were.

    No heartbeats are sent: the leases are long enough.
    """
    engine = await app.engine()
    presence = await open_presence(app.settings.url)
    registered = await engine.workers.register(name="tester", capabilities=capabilities or {})
    source = StopsWhenIdle(engine, presence, app.clock, worker=registered.id)
    try:
        async with app.lifespan_state() as state:
            source.worker_of = Worker(
                source,
                app.handlers,
                config=WorkerConfig(heartbeats=False, **config),
                resources=HandlerResources(middleware=app.middleware_stack, state=state, database=app.handler_database),
            )
            await source.worker_of.run()
            return source.claimed
    finally:
        await presence.close()


async def jobs_in(app: App) -> int:
    return sum(number for *_, number in await (await app.engine()).reads.counts())
