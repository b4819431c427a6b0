"""The crash detector: jobs of a crashed process are requeued soon, and a live process keeps its jobs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine, EngineLimits
from holdfast.errors import StoreUnavailable
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.maintenance.crash_detector import CHECK_SECONDS, SETTLE_SECONDS, WINDOW_SECONDS, CrashDetector
from holdfast.maintenance.rotation import Rotation
from holdfast.model import NewJob
from holdfast.model.reports import Fleet
from holdfast.store import open_store
from holdfast.store.migrate import migrate
from holdfast.store.presence import Presence, open_presence
from tests.engine.steps import held, run
from tests.servers.postgres import running
from tests.store.alive import living

PATIENCE_SECONDS = 60.0


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.05)


# -- what it takes to be dead -----------------------------------------------------------------------------------------


class Told(Presence):
    """A presence that sees what the test says."""

    def __init__(self) -> None:
        super().__init__(Ids(), None)
        self.found: set[str] = set()
        self.forgotten: set[str] = set()
        self.cut = False

    async def dead(self, instances: Iterable[str]) -> set[str]:
        if self.cut:
            raise StoreUnavailable("cut")
        return self.found & set(instances)

    def forget(self, instances: Iterable[str]) -> None:
        self.forgotten |= set(instances)


class Steps(MovableClock):
    """Its monotonic time moves too; nobody sleeps."""

    at = 0.0
    with_it: tuple[MovableClock, ...] = ()

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.advance(seconds)
        for clock in self.with_it:
            clock.advance(seconds)
        await asyncio.sleep(0)


class Watching:
    """Moves the watch's time and the database's time together."""

    def __init__(self, engine: Engine) -> None:
        self.presence = Told()
        assert isinstance(engine.ctx.clock, MovableClock)
        self.clock = Steps()
        self.clock.with_it = (engine.ctx.clock,)
        self.rotation = Rotation(self.clock, Ids())
        self.watch = CrashDetector(engine, self.presence, self.clock, Ids(), self.rotation)
        self.looks: list[float] = []
        self.suspicions: list[float] = []

    async def see(self, instances: Iterable[str]) -> set[str]:
        self.looks.append(self.clock.at)
        dead = self.presence.found & set(instances)
        self.suspicions += [self.clock.at] if dead else []
        return dead

    async def look(self, *, after: float = 0.0) -> list[str]:
        await self.clock.sleep(after)
        return await self.watch.check()

    def have_passed(self, seconds: float) -> Callable[[], Awaitable[bool]]:
        async def holds() -> bool:
            return self.clock.at >= seconds

        return holds


@pytest.fixture
async def watching(engine: Engine) -> Watching:
    return Watching(engine)


async def test_dead_is_who_was_dead_at_every_look_for_two_seconds(
    engine: Engine, worker: str, watching: Watching
) -> None:
    job, neighbour = [await run(engine, worker, instance=name) for name in ("killed", "alive")]
    watching.presence.found = {"killed"}
    assert await watching.look() == []
    assert await watching.look(after=WINDOW_SECONDS - 0.1) == []
    assert (await engine.reads.get(job.id)).state is State.RUNNING
    assert await watching.look(after=0.1) == ["killed"]
    lost, kept = await engine.reads.get(job.id), await engine.reads.get(neighbour.id)
    assert (lost.state, lost.reason) == (State.RETRYING, "worker_died")
    assert kept.state is State.RUNNING
    assert len(await engine.claim(worker)) == 1  # at once


async def test_a_worker_that_renews_its_leases_is_never_taken_for_dead(
    engine: Engine, worker: str, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    """It lost its lock and cannot take it again; its heartbeats say that it lives. When they stop, it is dead."""
    job = await run(engine, worker, instance="a")
    watching.presence.found = {"a"}
    for _ in range(60):
        assert await watching.look(after=0.5) == []
        assert await watching.look(after=0.5) == []
        assert (await engine.heartbeat(worker, [held(job)])).lost == []
    assert (await engine.reads.get(job.id)).state is State.RUNNING
    assert "crashed" not in caplog.text
    await watching.look(after=1)
    assert await watching.look(after=WINDOW_SECONDS + 1) == ["a"]
    assert "worker instance a crashed; requeued 1 jobs" in caplog.text


async def test_who_is_seen_alive_in_between_starts_from_the_beginning(
    engine: Engine, worker: str, watching: Watching
) -> None:
    """A session that was cut and came back."""
    await run(engine, worker, instance="a")
    watching.presence.found = {"a"}
    await watching.look()
    watching.presence.found = set()
    await watching.look(after=1)
    watching.presence.found = {"a"}
    assert await watching.look(after=1) == []
    assert await watching.look(after=1.9) == []
    assert await watching.look(after=0.1) == ["a"]


async def test_a_watch_that_was_cut_itself_starts_from_the_beginning_and_lets_all_come_back(
    engine: Engine, worker: str, watching: Watching
) -> None:
    """A restart of the database cuts everybody at once."""
    await run(engine, worker, instance="a")
    watching.presence.found = {"a"}
    await watching.look()
    watching.presence.session_number = 1
    assert await watching.look(after=10) == []
    assert await watching.look(after=SETTLE_SECONDS - 0.1) == []
    assert await watching.look(after=0.1) == []
    assert await watching.look(after=WINDOW_SECONDS) == ["a"]


async def test_an_error_in_between_starts_from_the_beginning(
    engine: Engine, worker: str, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and the watch goes on."""
    await run(engine, worker, instance="a")
    watching.presence.found = {"a"}
    await watching.look()
    watching.presence.cut = True
    running = asyncio.create_task(watching.watch.run())
    await until(watching.have_passed(10))
    assert caplog.text.count("cannot look for crashed workers, retrying") == 1
    running.cancel()
    await asyncio.wait([running])
    watching.presence.cut = False
    assert await watching.look() == []
    assert await watching.look(after=WINDOW_SECONDS + 0.1) == ["a"]


async def test_the_watch_goes_on_after_the_error(engine: Engine, worker: str, watching: Watching) -> None:
    await run(engine, worker, instance="a")
    watching.presence.found, watching.presence.cut = {"a"}, True
    running = asyncio.create_task(watching.watch.run())
    await asyncio.sleep(0.05)
    watching.presence.cut = False
    await until(lambda: _holds_nothing(engine))
    running.cancel()
    await asyncio.wait([running])


async def _holds_nothing(engine: Engine) -> bool:
    return await engine.polls.instances() == []


async def test_our_own_process_is_never_judged(engine: Engine, worker: str, watching: Watching) -> None:
    for name in watching.presence.names:
        await run(engine, worker, instance=name)
    watching.presence.found = set(watching.presence.names)
    await watching.look()
    assert await watching.look(after=WINDOW_SECONDS) == []


async def test_many_jobs_of_a_dead_process_are_taken_in_bounded_steps(store_url: str, clock: MovableClock) -> None:
    engine = Engine(await open_store(store_url, clock), clock=clock, limits=EngineLimits(sweep_batch=10))
    worker = (await engine.workers.register()).id
    await engine.create_many([NewJob(type="echo") for _ in range(25)])
    await engine.claim(worker, limit=25, instance="a")
    watching = Watching(engine)
    watching.presence.found = {"a"}
    await watching.look()
    await watching.look(after=WINDOW_SECONDS)
    assert await engine.polls.instances() == []
    await engine.close()


async def test_what_is_left_of_the_dead_goes_when_they_hold_nothing(
    engine: Engine, worker: str, watching: Watching
) -> None:
    await run(engine, worker, instance="a")
    watching.presence.found = {"a"}
    await watching.look()
    await watching.look(after=WINDOW_SECONDS)
    assert watching.presence.forgotten == set()  # not before somebody has seen that it worked
    await watching.look(after=1)
    assert watching.presence.forgotten == {"a"}


# -- many who watch ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def among_fifty(watching: Watching) -> AsyncIterator[Watching]:
    """One of fifty watches, and its looks are written down."""
    watching.presence.dead = watching.see  # type: ignore[method-assign]
    watching.rotation.update(Fleet(50, 20))
    running = asyncio.create_task(watching.watch.run())
    yield watching
    running.cancel()
    await asyncio.wait([running])


async def test_of_many_one_looks_at_a_time_and_whoever_is_left_looks_as_often_as_one_alone(
    among_fifty: Watching,
) -> None:
    """K10."""
    await until(among_fifty.have_passed(200))
    _, first, second, *_ = among_fifty.looks
    assert second - first == pytest.approx(50 * CHECK_SECONDS, abs=1)
    among_fifty.rotation.update(Fleet(1, 0))
    left, before = among_fifty.clock.at, len(among_fifty.looks)
    await until(among_fifty.have_passed(left + 10))
    assert among_fifty.looks[before] - left <= 1.25 * CHECK_SECONDS
    assert len(among_fifty.looks) - before >= 5


async def test_whoever_suspects_a_death_looks_closer_at_once_however_many_there_are(
    engine: Engine, worker: str, among_fifty: Watching
) -> None:
    await run(engine, worker, instance="a")
    await until(among_fifty.have_passed(among_fifty.clock.at + 1))  # its last heartbeat is older than the suspicion
    among_fifty.presence.found = {"a"}
    await until(lambda: _holds_nothing(engine))
    first, *_, last = among_fifty.suspicions
    assert WINDOW_SECONDS <= last - first <= WINDOW_SECONDS + 1


async def test_where_nobody_holds_a_job_nobody_looks_until_that_changes(among_fifty: Watching) -> None:
    among_fifty.rotation.update(Fleet(50, 20, busy=False))
    await until(among_fifty.have_passed(100))
    before = len(among_fifty.looks)
    await until(among_fifty.have_passed(1000))
    assert len(among_fifty.looks) == before
    among_fifty.rotation.update(Fleet(50, 20, busy=True))
    heard = among_fifty.clock.at
    await until(among_fifty.have_passed(heard + 10))
    assert among_fifty.looks[before] - heard <= CHECK_SECONDS


async def test_a_few_look_on_though_nobody_holds_a_job(among_fifty: Watching) -> None:
    """What they know of each other is up to half a minute old."""
    among_fifty.rotation.update(Fleet(4, 2, busy=False))
    before = len(among_fifty.looks)
    await until(among_fifty.have_passed(among_fifty.clock.at + 30))
    assert len(among_fifty.looks) - before >= 15


# -- with real processes ----------------------------------------------------------------------------------------------


@pytest.fixture
async def real(store_url: str) -> AsyncIterator[Engine]:
    """An engine on real time."""
    engine = Engine(await open_store(store_url))
    yield engine
    await engine.close()


@pytest.mark.slow
async def test_the_job_of_a_killed_process_can_be_claimed_again_soon(store_url: str, real: Engine) -> None:
    """F1: long before its lease of 10 minutes is over."""
    job = await real.create(NewJob(type="long", policy={"lease_seconds": 600}))
    presence = await open_presence(store_url)
    watching = asyncio.create_task(CrashDetector(real, presence, Clock(), Ids()).run())
    async with living(store_url, "claim") as other:
        assert await real.polls.instances() == [other.instance]
        await other.kill()
        await until(lambda: _is_lost(real, job.id))
    watching.cancel()
    await asyncio.wait([watching])
    await presence.close()


async def _is_lost(engine: Engine, job_id: str) -> bool:
    return (await engine.reads.get(job_id)).reason == "worker_died"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("kill", [False, True])
async def test_nobody_dies_of_a_restart_of_the_server(kill: bool) -> None:
    """Nor of a crash, after which every session is gone and every lock with it."""
    with running(durable=True) as server:
        await migrate(server.dsn())
        engine = Engine(await open_store(server.dsn()))
        job = await engine.create(NewJob(type="long", policy={"lease_seconds": 600}))
        presence = await open_presence(server.dsn())
        watching = asyncio.create_task(CrashDetector(engine, presence, Clock(), Ids()).run())
        async with living(server.dsn(), "claim") as other:
            await asyncio.to_thread(server.restart, kill=kill)
            await asyncio.sleep(SETTLE_SECONDS + 2 * WINDOW_SECONDS)
            assert not await _is_lost(engine, job.id)
            assert not watching.done()
            await other.kill()  # and the watch still sees
            await until(lambda: _is_lost(engine, job.id))
        watching.cancel()
        await asyncio.wait([watching])
        await presence.close()
        await engine.close()
