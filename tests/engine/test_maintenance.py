"""Maintenance: every step on a timer, again and again, and no error ends it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Retention
from holdfast.errors import StoreUnavailable
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.maintenance.maintainer import Maintainer
from holdfast.maintenance.rotation import Rotation
from holdfast.model import Liveness, NewJob
from holdfast.model.reports import Fleet
from holdfast.store import open_store
from tests.engine.steps import run

BATCH = 5
PATIENCE_SECONDS = 60.0


class SleepMovesClock(MovableClock):
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await (asyncio.sleep(0) if self.meanwhile is None else self.meanwhile())


@pytest.fixture
def clock() -> SleepMovesClock:
    return SleepMovesClock()


@pytest.fixture
async def engine(store_url: str, clock: SleepMovesClock) -> AsyncIterator[Engine]:
    """An engine with small batches."""
    ids = SeededIds(7)
    engine = Engine(
        await open_store(store_url, clock, ids), clock=clock, ids=ids, limits=EngineLimits(sweep_batch=BATCH)
    )
    yield engine
    await engine.close()


@pytest.fixture
def rotation(clock: SleepMovesClock) -> Rotation:
    return Rotation(clock, SeededIds(7))


@pytest.fixture
def maintenance(engine: Engine, clock: SleepMovesClock, rotation: Rotation) -> Maintainer:
    return Maintainer(engine, clock, SeededIds(7), every=10, retention=Retention(succeeded=60), rotation=rotation)


@pytest.fixture
async def finished(engine: Engine, worker: str) -> str:
    """A job that has ended before maintenance begins, which moves the clock."""
    lease = await run(engine, worker)
    await engine.complete(worker, lease.id, lease.token)
    return lease.id


@pytest.fixture
async def maintaining(maintenance: Maintainer) -> AsyncIterator[asyncio.Task[None]]:
    running = asyncio.create_task(maintenance.run())
    yield running
    running.cancel()
    await asyncio.wait([running])


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.001)


def is_in(engine: Engine, job_id: str, state: State) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await engine.reads.get(job_id)).state is state

    return holds


# -- steps ------------------------------------------------------------------------------------------------------------


async def test_maintenance_reaps_accepts_orphans_requeues_and_marks_workers_offline(
    engine: Engine, worker: str, maintaining: asyncio.Task[None]
) -> None:
    """K22: also what got stuck long after the start."""
    lease = await run(engine, worker)
    await until(is_in(engine, lease.id, State.RETRYING))
    orphan = await engine.create(NewJob(type="echo", lifecycle="orchestration"), accept=False)
    await until(is_in(engine, orphan.id, State.QUEUED))
    later = await engine.create(NewJob(type="later", delay_seconds=50))

    async def due() -> bool:
        return bool((await engine.reads.get(later.id)).due)

    async def offline() -> bool:
        return (await engine.workers.get(worker)).liveness is Liveness.OFFLINE

    await until(due)
    await until(offline)
    assert not maintaining.done()


async def test_maintenance_prunes_finished_jobs_after_their_retention(
    engine: Engine, finished: str, maintaining: asyncio.Task[None]
) -> None:
    async def pruned() -> bool:
        return (await engine.reads.page()).jobs == []

    await until(pruned)


async def test_maintenance_repeats_immediately_while_a_batch_was_full(
    engine: Engine, worker: str, clock: SleepMovesClock, maintenance: Maintainer
) -> None:
    for _ in range(2 * BATCH + 1):
        await engine.create(NewJob(type="later", delay_seconds=5))
    clock.advance(5)
    rounds = [await maintenance.sweep() for _ in range(3)]
    assert rounds == [True, True, False]
    assert len(await engine.claim(worker, limit=100)) == 2 * BATCH + 1


async def test_maintenance_waits_its_interval_with_jitter(
    clock: SleepMovesClock, maintaining: asyncio.Task[None]
) -> None:
    """With jitter: a hundred processes do not sweep in step."""

    async def twenty() -> bool:
        return len(clock.slept) >= 20

    await until(twenty)
    assert all(7.5 <= seconds < 12.5 for seconds in clock.slept)
    assert len(set(clock.slept)) > 10


async def test_an_idle_round_of_maintenance_is_one_query_and_one_mark(
    engine: Engine, worker: str, clock: SleepMovesClock
) -> None:
    """Without a retention nothing is pruned, so no query looks for prunable jobs."""
    forever = Retention(succeeded=None, dead=None, canceled=None, rejected=None)
    maintenance = Maintainer(engine, clock, SeededIds(7), every=10, retention=forever)
    await maintenance.sweep()
    clock.advance(10)
    asked: list[str] = []
    engine.store.on_query = lambda query, _seconds, _error: asked.append(query.name)
    assert not await maintenance.sweep()
    assert asked == ["due_work", "mark_sweep"]


async def test_a_fleet_of_fifty_takes_turns_and_a_survivor_sweeps_at_full_pace(
    engine: Engine, worker: str, clock: SleepMovesClock, rotation: Rotation, maintaining: asyncio.Task[None]
) -> None:
    """K10, K22: each of fifty has its turn in about four minutes; a survivor does not wait for the others."""
    began, sweeps = clock.now(), []
    look = engine.polls.due_work

    async def watched(**kept: float) -> Any:
        sweeps.append((clock.now() - began).total_seconds())
        return await look(**kept)

    engine.polls.due_work = watched  # type: ignore[method-assign]
    rotation.update(Fleet(50, 20))

    async def two_rounds() -> bool:
        return clock.now() - began > timedelta(seconds=600)

    await until(two_rounds)
    first, second = sweeps[-2:]
    assert second - first == pytest.approx(250, abs=1)

    rotation.update(Fleet(1, 0))
    alone_since = (clock.now() - began).total_seconds()

    async def swept() -> bool:
        return len(sweeps) >= before + 3

    before = len(sweeps)
    await until(swept)
    assert sweeps[before] - alone_since <= 12.5
    assert sweeps[before + 2] - sweeps[before] <= 25


async def test_the_last_process_of_a_fleet_sweeps_at_full_pace_within_two_minutes(
    engine: Engine, worker: str, clock: SleepMovesClock, rotation: Rotation, maintenance: Maintainer
) -> None:
    """K10, K22: it learns of the others only by its own heartbeats, every 30 s; all bounds together are under 105 s."""
    for _ in range(49):
        await engine.workers.register()
    died, beaten = clock.now(), clock.now() - timedelta(seconds=30)
    sweeps: list[float] = []

    async def beat() -> None:
        nonlocal beaten
        if clock.now() - beaten >= timedelta(seconds=30):
            beaten = clock.now()
            rotation.update((await engine.heartbeat(worker, [])).fleet)

    await beat()
    clock.meanwhile = beat
    while clock.now() - died < timedelta(seconds=200):
        await maintenance.sweep()
        sweeps.append((clock.now() - died).total_seconds())
        await rotation.wait(10, together=5)
    clock.meanwhile = None
    later = [at for at in sweeps if at > 105]
    assert len(later) >= 7
    assert later[0] <= 120


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_a_failing_maintenance_step_does_not_stop_the_others(
    engine: Engine, worker: str, clock: SleepMovesClock, maintenance: Maintainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10."""

    async def broken(*_: Any) -> int:
        raise ZeroDivisionError("a mistake of ours")

    for step in ("requeue_due", "prune"):
        monkeypatch.setattr(engine.maintenance, step, broken)
    await engine.create(NewJob(type="ripe", delay_seconds=1))
    clock.advance(1)
    lease = await run(engine, worker)
    for _ in range(4):
        assert not await maintenance.sweep()
        clock.advance(10)
    assert (await engine.reads.get(lease.id)).state is State.RETRYING


async def test_a_failing_due_work_query_does_not_stop_the_steps(
    engine: Engine, worker: str, clock: SleepMovesClock, maintenance: Maintainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10."""

    async def broken(**_: Any) -> Any:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(engine.polls, "due_work", broken)
    lease = await run(engine, worker)
    for _ in range(4):
        assert not await maintenance.sweep()
        clock.advance(10)
    assert (await engine.reads.get(lease.id)).state is State.RETRYING


async def test_a_maintenance_error_is_logged_once_and_retried_sooner(
    engine: Engine,
    worker: str,
    clock: SleepMovesClock,
    maintaining: asyncio.Task[None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def unavailable(**_: Any) -> int:
        raise StoreUnavailable("no database")

    async def many_rounds() -> bool:
        return len(clock.slept) >= before + 12

    await run(engine, worker, policy={"lease_seconds": 10**6})
    before = len(clock.slept)
    with monkeypatch.context() as patched:
        patched.setattr(engine.maintenance, "reap", unavailable)
        await until(many_rounds)
    assert caplog.text.count("cannot do maintenance (reap)") == 1
    tried = clock.slept[before : before + 12]
    assert min(tried) < 1
    assert max(tried) > 7
    before = len(clock.slept) + 2
    await until(many_rounds)
    assert min(clock.slept[before:]) >= 7.5
    assert not maintaining.done()
