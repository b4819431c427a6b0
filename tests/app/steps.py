"""Steps that many stories share: let a worker of an app do what there is, and count what the database holds."""

from typing import Any

from holdfast import App
from holdfast.direct import DirectSource
from holdfast.store.presence import open_presence
from holdfast.worker.runtime import Plan, Worker


async def drained(app: App, *, capabilities: dict[str, Any] | None = None, **plan: Any) -> int:
    """One worker, as it runs in production, works until there is nothing left to claim; how many jobs that were.

    Nobody renews its leases: they are long enough.
    """
    engine = await app.engine()
    presence = await open_presence(app.settings.url)
    registered = await engine.register(name="tester", capabilities=capabilities or {})
    source = DirectSource(engine, presence, app.clock, worker=registered.id)
    try:
        async with app.lifespan_state() as state:
            worker = Worker(source, app.handlers, plan=Plan(kept=False, **plan), around=app.surroundings, state=state)
            return await worker.drain()
    finally:
        await presence.close()


async def jobs_in(app: App) -> int:
    return sum(number for *_, number in await (await app.engine()).counts())
