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


class Steps(MovableClock):
    """Sleeping moves time, and nothing else does."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await (asyncio.sleep(0) if self.meanwhile is None else self.meanwhile())


@pytest.fixture
def clock() -> Steps:
    return Steps()


@pytest.fixture
async def engine(store_url: str, clock: Steps) -> AsyncIterator[Engine]:
    """One that does little at a time."""
    ids = SeededIds(7)
    engine = Engine(
        await open_store(store_url, clock, ids), clock=clock, ids=ids, limits=EngineLimits(sweep_batch=BATCH)
    )
    yield engine
    await engine.close()


@pytest.fixture
def rotation(clock: Steps) -> Rotation:
    return Rotation(clock, SeededIds(7))


@pytest.fixture
def maintenance(engine: Engine, clock: Steps, rotation: Rotation) -> Maintainer:
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


# -- what is done -----------------------------------------------------------------------------------------------------


async def test_everything_that_waits_for_time_to_pass_happens_by_itself(
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


async def test_what_is_finished_is_pruned_when_its_time_is_over(
    engine: Engine, finished: str, maintaining: asyncio.Task[None]
) -> None:
    async def pruned() -> bool:
        return (await engine.reads.page()).jobs == []

    await until(pruned)


async def test_it_goes_on_at_once_while_there_is_more(
    engine: Engine, worker: str, clock: Steps, maintenance: Maintainer
) -> None:
    for _ in range(2 * BATCH + 1):
        await engine.create(NewJob(type="later", delay_seconds=5))
    clock.advance(5)
    rounds = [await maintenance.sweep() for _ in range(3)]
    assert rounds == [True, True, False]
    assert len(await engine.claim(worker, limit=100)) == 2 * BATCH + 1


async def test_it_waits_about_as_long_as_it_was_told(clock: Steps, maintaining: asyncio.Task[None]) -> None:
    """With jitter: a hundred processes do not sweep in step."""

    async def twenty() -> bool:
        return len(clock.slept) >= 20

    await until(twenty)
    assert all(7.5 <= seconds < 12.5 for seconds in clock.slept)
    assert len(set(clock.slept)) > 10


async def test_where_nothing_happens_a_round_is_one_question_and_the_mark_that_it_was_asked(
    engine: Engine, worker: str, clock: Steps
) -> None:
    """Nothing is deleted unless somebody asked for it, so that is not even looked for."""
    forever = Retention(succeeded=None, dead=None, canceled=None, rejected=None)
    maintenance = Maintainer(engine, clock, SeededIds(7), every=10, retention=forever)
    await maintenance.sweep()
    clock.advance(10)
    asked: list[str] = []
    engine.store.on_query = lambda query, _seconds, _error: asked.append(query.name)
    assert not await maintenance.sweep()
    assert asked == ["due_work", "mark_sweep"]


async def test_many_take_turns_and_whoever_is_left_goes_on_alone(
    engine: Engine, worker: str, clock: Steps, rotation: Rotation, maintaining: asyncio.Task[None]
) -> None:
    """K10, K22: with fifty, each has its turn in about four minutes; a survivor does not wait for the others'."""
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


async def test_the_last_survivor_of_a_fleet_sweeps_at_full_pace_soon(
    engine: Engine, worker: str, clock: Steps, rotation: Rotation, maintenance: Maintainer
) -> None:
    """K10, K22: nobody tells it but its own beats, one in half a minute; all bounds together are under 105 s."""
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


# -- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_step_that_fails_keeps_none_of_the_others_from_their_work(
    engine: Engine, worker: str, clock: Steps, maintenance: Maintainer, monkeypatch: pytest.MonkeyPatch
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


async def test_a_look_that_fails_keeps_no_step_from_its_work(
    engine: Engine, worker: str, clock: Steps, maintenance: Maintainer, monkeypatch: pytest.MonkeyPatch
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


async def test_errors_are_told_once_and_it_comes_back_sooner(
    engine: Engine,
    worker: str,
    clock: Steps,
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
