"""Who ran a job is told by name while its attempts are kept, also when the worker's row is gone (R003-17, C-30)."""

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob
from tests.engine.steps import ask

DAY = 86_400.0


async def ran(engine: Engine, name: str | None, worker: str | None = None) -> str:
    """A job that a worker of this name has run."""
    registered = await engine.workers.register(id=worker, name=name)
    await engine.create(NewJob(type="n"))
    [lease] = await engine.claim(registered.id)
    await engine.complete(registered.id, lease.id, lease.token)
    return lease.id


async def forget(engine: Engine, clock: MovableClock) -> int:
    clock.advance(2 * DAY)
    await ask(engine, "UPDATE holdfast_workers SET liveness = 'offline' WHERE liveness <> 'offline' RETURNING id")
    return await engine.maintenance.forget_workers(DAY)


async def names(engine: Engine, *jobs: str) -> list[str | None]:
    return [attempt.worker_name for job in jobs for attempt in await engine.reads.attempts(job)]


async def test_attempts_name_their_worker_before_and_after_it_is_forgotten(engine: Engine, clock: MovableClock) -> None:
    first, second, nameless = await ran(engine, "press-1"), await ran(engine, "press-2"), await ran(engine, None)
    assert await names(engine, first, second, nameless) == ["press-1", "press-2", None]
    assert await forget(engine, clock) == 3
    alive = await ran(engine, "press-3")
    assert await names(engine, first, second, nameless, alive) == ["press-1", "press-2", None, "press-3"]
    kept = await ask(engine, "SELECT name FROM holdfast_past_workers ORDER BY name")
    assert [row["name"] for row in kept] == ["press-1", "press-2"], "of workers without a name there is nothing to keep"


async def test_a_worker_that_comes_back_under_its_id_is_told_by_its_last_name(
    engine: Engine, clock: MovableClock
) -> None:
    worker = "019b76da-a800-7001-b48f-c209128b2f33"
    job = await ran(engine, "old", worker)
    await forget(engine, clock)
    await engine.workers.register(id=worker, name="new")
    assert await names(engine, job) == ["new"]
    assert await forget(engine, clock) == 1
    assert await names(engine, job) == ["new"]
