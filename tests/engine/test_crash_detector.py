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


# -- when a process counts as crashed ---------------------------------------------------------------------------------


class FakePresence(Presence):
    """A presence whose dead processes the test sets."""

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


class SleepMovesClock(MovableClock):
    """A clock that sleeping moves, without waiting."""

    at = 0.0
    follower_clocks: tuple[MovableClock, ...] = ()

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.advance(seconds)
        for clock in self.follower_clocks:
            clock.advance(seconds)
        await asyncio.sleep(0)


class DetectorUnderTest:
    """A crash detector with a fake presence; its clock also moves the clock of the database."""

    def __init__(self, engine: Engine) -> None:
        self.presence = FakePresence()
        assert isinstance(engine.ctx.clock, MovableClock)
        self.clock = SleepMovesClock()
        self.clock.follower_clocks = (engine.ctx.clock,)
        self.rotation = Rotation(self.clock, Ids())
        self.crash_detector = CrashDetector(engine, self.presence, self.clock, Ids(), self.rotation)
        self.engine = engine
        self.checks: list[float] = []
        self.suspicions: list[float] = []

    async def record_check(self, instances: Iterable[str]) -> set[str]:
        self.checks.append(self.clock.at)
        dead = self.presence.found & set(instances)
        self.suspicions += [self.clock.at] if dead & set(await self.engine.polls.instances()) else []
        return dead

    async def check(self, *, after: float = 0.0) -> list[str]:
        await self.clock.sleep(after)
        return await self.crash_detector.check()

    def have_passed(self, seconds: float) -> Callable[[], Awaitable[bool]]:
        async def holds() -> bool:
            return self.clock.at >= seconds

        return holds


@pytest.fixture
async def detector(engine: Engine) -> DetectorUnderTest:
    return DetectorUnderTest(engine)


async def test_a_process_is_dead_only_after_two_seconds_of_failed_checks(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    job, neighbour = [await run(engine, worker, instance=name) for name in ("killed", "alive")]
    detector.presence.found = {"killed"}
    assert await detector.check() == []
    assert await detector.check(after=WINDOW_SECONDS - 0.1) == []
    assert (await engine.reads.get(job.id)).state is State.RUNNING
    assert await detector.check(after=0.1) == ["killed"]
    lost, kept = await engine.reads.get(job.id), await engine.reads.get(neighbour.id)
    assert (lost.state, lost.reason) == (State.RETRYING, "worker_died")
    assert kept.state is State.RUNNING
    assert len(await engine.claim(worker)) == 1  # immediately


async def test_a_worker_that_renews_its_leases_is_never_reported_as_crashed(
    engine: Engine, worker: str, detector: DetectorUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """It lost its advisory lock; its heartbeats show that it lives. When they stop, it counts as crashed."""
    job = await run(engine, worker, instance="a")
    detector.presence.found = {"a"}
    for _ in range(60):
        assert await detector.check(after=0.5) == []
        assert await detector.check(after=0.5) == []
        assert (await engine.heartbeat(worker, [held(job)])).lost == []
    assert (await engine.reads.get(job.id)).state is State.RUNNING
    assert "crashed" not in caplog.text
    await detector.check(after=1)
    assert await detector.check(after=WINDOW_SECONDS + 1) == ["a"]
    assert "worker instance a crashed; requeued 1 job\n" in caplog.text


async def test_a_process_seen_alive_between_checks_restarts_the_two_seconds(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    """Its connection was lost and came back."""
    await run(engine, worker, instance="a")
    detector.presence.found = {"a"}
    await detector.check()
    detector.presence.found = set()
    await detector.check(after=1)
    detector.presence.found = {"a"}
    assert await detector.check(after=1) == []
    assert await detector.check(after=1.9) == []
    assert await detector.check(after=0.1) == ["a"]


async def test_a_detector_that_lost_its_own_connection_restarts_and_lets_all_processes_reconnect(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    """A restart of the database disconnects every process at once."""
    await run(engine, worker, instance="a")
    detector.presence.found = {"a"}
    await detector.check()
    detector.presence.session_number = 1
    assert await detector.check(after=10) == []
    assert await detector.check(after=SETTLE_SECONDS - 0.1) == []
    assert await detector.check(after=0.1) == []
    assert await detector.check(after=WINDOW_SECONDS) == ["a"]


async def test_a_database_error_between_checks_restarts_the_two_seconds(
    engine: Engine, worker: str, detector: DetectorUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the detector continues."""
    await run(engine, worker, instance="a")
    detector.presence.found = {"a"}
    await detector.check()
    detector.presence.cut = True
    running = asyncio.create_task(detector.crash_detector.run())
    await until(detector.have_passed(10))
    assert caplog.text.count("cannot look for crashed workers, retrying") == 1
    running.cancel()
    await asyncio.wait([running])
    detector.presence.cut = False
    assert await detector.check() == []
    assert await detector.check(after=WINDOW_SECONDS + 0.1) == ["a"]


async def test_the_crash_detector_continues_after_an_error(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    await run(engine, worker, instance="a")
    detector.presence.found, detector.presence.cut = {"a"}, True
    running = asyncio.create_task(detector.crash_detector.run())
    await asyncio.sleep(0.05)
    detector.presence.cut = False
    await until(lambda: _holds_nothing(engine))
    running.cancel()
    await asyncio.wait([running])


async def _holds_nothing(engine: Engine) -> bool:
    return await engine.polls.instances() == []


async def test_the_crash_detector_never_reports_its_own_process(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    for name in detector.presence.names:
        await run(engine, worker, instance=name)
    detector.presence.found = set(detector.presence.names)
    await detector.check()
    assert await detector.check(after=WINDOW_SECONDS) == []


async def test_jobs_of_a_crashed_process_are_requeued_in_batches(store_url: str, clock: MovableClock) -> None:
    engine = Engine(await open_store(store_url, clock), clock=clock, limits=EngineLimits(sweep_batch=10))
    worker = (await engine.workers.register()).id
    await engine.create_many([NewJob(type="echo") for _ in range(25)])
    await engine.claim(worker, limit=25, instance="a")
    detector = DetectorUnderTest(engine)
    detector.presence.found = {"a"}
    await detector.check()
    await detector.check(after=WINDOW_SECONDS)
    assert await engine.polls.instances() == []
    await engine.close()


async def test_a_crashed_process_is_forgotten_once_it_holds_no_jobs(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    await run(engine, worker, instance="a")
    detector.presence.found = {"a"}
    await detector.check()
    await detector.check(after=WINDOW_SECONDS)
    assert detector.presence.forgotten == set()  # not before a later check has confirmed it
    await detector.check(after=1)
    assert detector.presence.forgotten == {"a"}


async def test_a_process_that_ended_after_its_last_job_is_no_crash(
    engine: Engine, worker: str, detector: DetectorUnderTest
) -> None:
    """On PostgreSQL its claims are listed for a moment longer."""
    job = await run(engine, worker, instance="a")
    await engine.complete(worker, job.id, job.token)
    detector.presence.found = {"a"}
    await detector.check()
    assert await detector.check(after=WINDOW_SECONDS) == []


# -- fleets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def one_of_fifty(detector: DetectorUnderTest) -> AsyncIterator[DetectorUnderTest]:
    """One of fifty detectors, which records its checks."""
    detector.presence.dead = detector.record_check  # type: ignore[method-assign]
    detector.rotation.update(Fleet(50, 20))
    running = asyncio.create_task(detector.crash_detector.run())
    yield detector
    running.cancel()
    await asyncio.wait([running])


async def test_detectors_of_a_fleet_take_turns_and_a_survivor_checks_at_full_pace(
    one_of_fifty: DetectorUnderTest,
) -> None:
    """K10."""
    await until(one_of_fifty.have_passed(200))
    _, first, second, *_ = one_of_fifty.checks
    assert second - first == pytest.approx(50 * CHECK_SECONDS, abs=1)
    one_of_fifty.rotation.update(Fleet(1, 0))
    left, before = one_of_fifty.clock.at, len(one_of_fifty.checks)
    await until(one_of_fifty.have_passed(left + 10))
    assert one_of_fifty.checks[before] - left <= 1.25 * CHECK_SECONDS
    assert len(one_of_fifty.checks) - before >= 5


async def test_a_detector_that_suspects_a_crash_checks_again_without_waiting_for_its_turn(
    engine: Engine, worker: str, one_of_fifty: DetectorUnderTest
) -> None:
    await run(engine, worker, instance="a")
    await until(one_of_fifty.have_passed(one_of_fifty.clock.at + 1))  # its last heartbeat is older than the suspicion
    one_of_fifty.presence.found = {"a"}
    await until(lambda: _holds_nothing(engine))
    first, *_, last = one_of_fifty.suspicions
    assert WINDOW_SECONDS <= last - first <= WINDOW_SECONDS + 1


async def test_a_large_fleet_does_not_check_while_no_process_holds_a_job(one_of_fifty: DetectorUnderTest) -> None:
    one_of_fifty.rotation.update(Fleet(50, 20, busy=False))
    await until(one_of_fifty.have_passed(100))
    before = len(one_of_fifty.checks)
    await until(one_of_fifty.have_passed(1000))
    assert len(one_of_fifty.checks) == before
    one_of_fifty.rotation.update(Fleet(50, 20, busy=True))
    heard = one_of_fifty.clock.at
    await until(one_of_fifty.have_passed(heard + 10))
    assert one_of_fifty.checks[before] - heard <= CHECK_SECONDS


async def test_a_small_fleet_checks_even_while_no_process_holds_a_job(one_of_fifty: DetectorUnderTest) -> None:
    """What they know of each other is up to 30 seconds old."""
    one_of_fifty.rotation.update(Fleet(4, 2, busy=False))
    before = len(one_of_fifty.checks)
    await until(one_of_fifty.have_passed(one_of_fifty.clock.at + 30))
    assert len(one_of_fifty.checks) - before >= 15


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
    detector = asyncio.create_task(CrashDetector(real, presence, Clock(), Ids()).run())
    async with living(store_url, "claim") as other:
        assert await real.polls.instances() == [other.instance]
        await other.kill()
        await until(lambda: _is_lost(real, job.id))
    detector.cancel()
    await asyncio.wait([detector])
    await presence.close()


async def _is_lost(engine: Engine, job_id: str) -> bool:
    return (await engine.reads.get(job_id)).reason == "worker_died"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_of_postgresql_reports_no_process_as_crashed(kill: bool) -> None:
    """Nor does a crash of the server, after which every session and every lock is gone."""
    with running(durable=True) as server:
        await migrate(server.dsn())
        engine = Engine(await open_store(server.dsn()))
        job = await engine.create(NewJob(type="long", policy={"lease_seconds": 600}))
        presence = await open_presence(server.dsn())
        detector = asyncio.create_task(CrashDetector(engine, presence, Clock(), Ids()).run())
        async with living(server.dsn(), "claim") as other:
            await asyncio.to_thread(server.restart, kill=kill)
            await asyncio.sleep(SETTLE_SECONDS + 2 * WINDOW_SECONDS)
            assert not await _is_lost(engine, job.id)
            assert not detector.done()
            await other.kill()  # and the detector still finds it
            await until(lambda: _is_lost(engine, job.id))
        detector.cancel()
        await asyncio.wait([detector])
        await presence.close()
        await engine.close()
