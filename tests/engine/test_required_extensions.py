"""Which extensions a job type needs, which app may declare them, and that its jobs follow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import asyncpg
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine, Retention
from holdfast.engine import declare as _declare
from holdfast.engine.hooks.hooks import Hooks
from holdfast.errors import ExtensionMissing
from holdfast.ids import Ids
from holdfast.maintenance.maintainer import Maintainer
from holdfast.model import Job, JobType, NewJob
from holdfast.store import Tx, open_store, q
from holdfast.store.queries import Query

OpenApp = Callable[..., Awaitable[Engine]]


async def nothing(_tx: Tx, _verb: str, _job: Job) -> None:
    pass


@pytest.fixture
async def open_app(store_url: str, clock: MovableClock) -> AsyncIterator[OpenApp]:
    """Opens a process of an app: its engine, with a hook of each of these extensions on the type."""
    engines: list[Engine] = []

    async def opened(*extensions: str, app: str | None = None, other: bool = False) -> Engine:
        hooks = Hooks()
        for name in extensions:
            hooks.effect(name, ["claim", "complete", "prune"], ["n"], nothing)
        engine = Engine(await open_store(store_url, clock), clock=clock, hooks=hooks)
        engines.append(engine)
        if app is not None:
            await engine.job_types.declare(JobType(name="n", queue="other" if other else "default"), app=app)
        return engine

    yield opened
    for engine in engines:
        await engine.close()


async def needs(engine: Engine) -> tuple[list[str] | None, list[list[str] | None]]:
    """Those of the type, and those of each job."""
    return (await engine.reads.job_types())["n"].needs, [
        job.needs for job in reversed((await engine.reads.page()).jobs)
    ]


async def test_existing_jobs_need_the_hooks_of_an_app_that_starts_later(open_app: OpenApp) -> None:
    plain = await open_app()
    for _ in range(3):
        await plain.create(NewJob(type="n"))
    worker = (await plain.workers.register(name="w")).id
    [first] = await plain.claim(worker)
    app = await open_app("toy", app="a")
    assert await needs(app) == (["toy"], [["toy"]] * 3)
    with pytest.raises(ExtensionMissing):
        await plain.complete(worker, first.id, first.token)


async def test_hooks_on_one_job_type_are_not_needed_by_others(open_app: OpenApp) -> None:
    app = await open_app("toy")
    await app.job_types.declare(JobType(name="m"), JobType(name="n"), app="a")
    assert {name: declared.needs for name, declared in (await app.reads.job_types()).items()} == {
        "m": None,
        "n": ["toy"],
    }
    app.ctx.hooks.effect("pay", ["claim"], ["m"], nothing)
    await app.job_types.declare(JobType(name="m"), app="a")
    job = await app.create(NewJob(type="n"))
    assert await app.store.write(partial(_declare.free, job_types=["m", "n"], limit=10)) == 0
    assert (await app.reads.get(job.id)).needs == ["toy"]


async def test_put_needs_does_not_overwrite_a_concurrent_declaration(open_app: OpenApp) -> None:
    app = await open_app("toy", app="a")
    told = {"name": "n", "needs": None, "needs_by": None}
    for before in (None, '{"b":["toy"]}'):
        assert await app.store.write(lambda tx, before=before: tx.one(q.put_needs, before=before, **told)) is None
    assert await needs(app) == (["toy"], [])


async def test_an_app_without_a_hook_does_not_remove_the_need_of_another_app(open_app: OpenApp) -> None:
    first = await open_app("toy", app="a")
    await first.create(NewJob(type="n"))
    other = await open_app(app="b")
    assert await needs(other) == (["toy"], [["toy"]])
    third = await open_app("pay", app="c", other=True)
    assert await needs(third) == (["pay", "toy"], [["pay", "toy"]])
    with pytest.raises(ExtensionMissing, match="pay"):
        await first.create(NewJob(type="n"))


async def test_a_job_type_declared_by_two_apps_needs_the_hooks_of_both(open_app: OpenApp) -> None:
    first = await open_app("toy", app="a")
    await first.workers.register(name="w", metadata={"app": "a"})
    job = await first.create(NewJob(type="n"))
    other = await open_app("pay", app="b", other=True)
    assert (await other.reads.job_types())["n"].queue == "default", "the word of the app in use stays"
    assert (await other.reads.get(job.id)).needs == ["pay", "toy"]
    with pytest.raises(ExtensionMissing, match="toy"):
        await other.cancel(job.id)


async def test_a_new_version_without_the_hook_frees_the_jobs(open_app: OpenApp, clock: MovableClock) -> None:
    old = await open_app("toy", app="a")
    worker = (await old.workers.register(name="w")).id
    open_ = (await old.create_many([NewJob(type="n"), NewJob(type="n")]))[1]
    [lease] = await old.claim(worker)
    await old.complete(worker, lease.id, lease.token)
    plain = await open_app()
    clock.advance(1000)
    assert await plain.maintenance.prune(Retention(succeeded=1)) == 0, "its hooks are in force"

    new = await open_app(app="a")
    assert (await new.reads.job_types())["n"].needs is None
    assert (await plain.reads.get(open_.id)).needs is None
    assert (await plain.cancel(open_.id)).canceled
    assert await plain.maintenance.prune(Retention(succeeded=1)) == 1, (
        "a finished job keeps its row, and what it needed is over"
    )
    assert [job.id for job in (await plain.reads.page()).jobs] == [open_.id]


async def test_removing_one_of_two_extensions_keeps_the_need_for_the_other(
    open_app: OpenApp, clock: MovableClock
) -> None:
    old = await open_app("pay", "toy", app="a")
    worker = (await old.workers.register(name="w")).id
    await old.create_many([NewJob(type="n"), NewJob(type="n")])
    [lease] = await old.claim(worker)
    await old.complete(worker, lease.id, lease.token)
    new, plain = await open_app("toy", app="a"), await open_app()
    clock.advance(1000)
    assert await plain.maintenance.prune(Retention(succeeded=1)) == 0
    assert await new.maintenance.prune(Retention(succeeded=1)) == 1
    assert await needs(new) == (["toy"], [["toy"]])


async def forget_needs(engine: Engine) -> None:
    """As if a process that had looked at the type before it had hooks has just committed."""
    await engine.store.write(lambda tx: tx.all(Query("forget", "UPDATE holdfast_jobs SET needs = NULL RETURNING id")))


async def test_a_job_committed_after_the_adoption_is_claimed_with_hooks(open_app: OpenApp) -> None:
    seen: list[str] = []
    app = await open_app("toy", app="a")

    async def follow(_tx: Tx, verb: str, _job: Job) -> None:
        seen.append(verb)

    app.ctx.hooks.effect("toy", ["claim"], ["n"], follow)
    await app.create(NewJob(type="n"))
    await forget_needs(app)
    [lease] = await app.claim((await app.workers.register(name="w")).id)
    assert seen == ["claim"]
    assert (await app.reads.get(lease.id)).needs == ["toy"]


async def test_maintenance_adopts_jobs_committed_after_the_declaration(open_app: OpenApp, clock: MovableClock) -> None:
    app = await open_app("toy", app="a")
    maintenance = Maintainer(app, clock, Ids(), every=10, retention=Retention())
    await app.create(NewJob(type="n"))
    await forget_needs(app)
    await maintenance.sweep()
    assert await needs(app) == (["toy"], [["toy"]])


@pytest.mark.postgres
async def test_maintenance_adopts_a_job_whose_create_committed_after_the_declaration(fresh_postgres_url: str) -> None:
    """Its transaction read the type before the app with the hooks started, and commits afterwards."""
    plain = Engine(await open_store(fresh_postgres_url))
    hooks = Hooks()
    hooks.effect("toy", ["complete"], ["n"], nothing)
    app = Engine(await open_store(fresh_postgres_url), clock=Clock(), hooks=hooks)
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        await app.job_types.declare(JobType(name="other"), app="a")
        async with connection.transaction():
            late = await plain.create(NewJob(type="n"), connection=connection)
            await app.job_types.declare(JobType(name="n"), app="a")
        assert (await app.reads.get(late.id)).needs is None
        await Maintainer(app, Clock(), Ids(), every=10, retention=Retention()).sweep()
        assert (await app.reads.get(late.id)).needs == ["toy"]
        with pytest.raises(ExtensionMissing):
            await plain.cancel(late.id)
    finally:
        await connection.close()
        await plain.close()
        await app.close()


async def test_concurrent_declarations_of_two_apps_are_both_kept(open_app: OpenApp) -> None:
    apps = [await open_app(name) for name in ("pay", "toy")]
    await apps[0].job_types.declare(JobType(name="n"), app="first")
    await asyncio.gather(*(app.job_types.declare(JobType(name="n"), app=str(n)) for n, app in enumerate(apps)))
    assert (await apps[0].reads.job_types())["n"].needs == ["pay", "toy"]


async def unfinished(engine: Engine, job_type: str) -> list[str]:
    """One that has ended, and after it one in each state that has not: due, delayed, running, created."""
    worker = (await engine.workers.register(name="w")).id
    ended = await engine.create(NewJob(type=job_type))
    await engine.cancel(ended.id)
    running = await engine.create(NewJob(type=job_type))
    await engine.claim(worker, types=[job_type])
    others = await engine.create_many([NewJob(type=job_type), NewJob(type=job_type, delay_seconds=60)])
    created = await engine.create(NewJob(type=job_type, lifecycle="orchestration"), accept=False)
    return [running.id, *(job.id for job in others), created.id]


async def one_at_a_time(engine: Engine, step: Callable[..., Awaitable[int]], **what: object) -> int:
    for calls in range(20):
        if not await engine.store.write(lambda tx: step(tx, limit=1, **what)):
            return calls
    raise AssertionError("it does not terminate")


async def test_jobs_in_every_unfinished_state_are_adopted_and_freed(open_app: OpenApp) -> None:
    plain, app = await open_app(), await open_app("toy")
    await plain.job_types.declare(JobType(name="n"), JobType(name="m"))
    others, ours = await unfinished(plain, "m"), await unfinished(plain, "n")
    await plain.store.write(
        lambda tx: tx.all(Query("need", "UPDATE holdfast_job_types SET needs = '[]' RETURNING name"))
    )
    assert await one_at_a_time(app, _declare.adopt, job_type="n") == 4
    needing = {job.id for job in (await app.reads.page()).jobs if job.needs is not None}
    assert needing == set(ours)

    await plain.store.write(
        lambda tx: tx.all(Query("free", "UPDATE holdfast_job_types SET needs = NULL RETURNING name"))
    )
    await plain.store.write(
        lambda tx: tx.all(
            Query("need", "UPDATE holdfast_jobs SET needs = '[1]' WHERE finished_at IS NULL RETURNING id")
        )
    )
    assert await one_at_a_time(app, _declare.free, job_types=["n"]) == 4
    needing = {job.id for job in (await app.reads.page()).jobs if job.needs is not None}
    assert needing == set(others)


async def test_adopt_lane_adopts_only_claimable_jobs_of_the_lane(open_app: OpenApp) -> None:
    plain = await open_app()
    await unfinished(plain, "n")
    await unfinished(plain, "m")
    [lane] = {job.lane for job in (await plain.reads.page()).jobs if job.type == "n"}
    await plain.store.write(lambda tx: _declare.adopt_lane(tx, "n", lane, ["toy"]))
    [adopted] = [job for job in (await plain.reads.page()).jobs if job.needs is not None]
    assert (adopted.type, adopted.due, adopted.needs) == ("n", True, ["toy"])
    await plain.store.write(lambda tx: _declare.adopt_lane(tx, "n", lane, ["pay"]))
    assert (await plain.reads.get(adopted.id)).needs == ["toy"]


@pytest.mark.parametrize("free", [False, True])
async def test_a_job_that_ends_during_adoption_is_not_changed(fresh_postgres_url: str, free: bool) -> None:
    engine = Engine(await open_store(fresh_postgres_url))
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        await engine.job_types.declare(JobType(name="n"))
        job = await engine.create(NewJob(type="n"))
        await connection.execute("UPDATE holdfast_jobs SET needs = $1", "[1]" if free else None)
        await connection.execute("UPDATE holdfast_job_types SET needs = $1", None if free else '["toy"]')
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE holdfast_jobs SET state = 'canceled', due = NULL, finished_at = now()")
        step = partial(_declare.free, job_types=["n"]) if free else partial(_declare.adopt, job_type="n")
        waiting = asyncio.create_task(engine.store.write(lambda tx: step(tx, limit=10)))
        async with asyncio.timeout(60):
            while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await transaction.commit()
        assert await waiting == 0
        assert (await engine.reads.get(job.id)).needs == ([1] if free else None)
    finally:
        await connection.close()
        await engine.close()
