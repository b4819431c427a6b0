"""Every broker and everything that can happen to it: speed changes, results never. S13, L6, F29, F30, F31.

Jobs of many kinds are created by two processes and done by four workers of two kinds, half of them by a wire that may
be cut. Each job ends once, and all end as they do without a broker. HOLDFAST_TEST_FAULT_RUNS=3 runs every cell of the
table with three seeds; without it a sample runs with one.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast import brokers
from holdfast.assembly import Opened
from holdfast.dispatch.dispatch import Dispatch
from holdfast.engine import Engine
from holdfast.lifecycle import FINAL
from holdfast.model import Job
from holdfast.settings import Settings
from holdfast.worker.runtime import Plan, Worker
from tests.dispatch.errands import PRIORITIES, QUEUES, Errands, app
from tests.dispatch.faults import FAULTS, Fault, Scene
from tests.dispatch.noise import Noisy
from tests.dispatch.places import MODES, Place, place_of
from tests.dispatch.stories import creating, jobs, listening, until
from tests.servers.proxy import Proxy
from tests.worker.stories.diary import VARIABLE
from tests.worker.stories.stage import Stage, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

RUNS = int(os.environ.get("HOLDFAST_TEST_FAULT_RUNS", "0"))
POLL_SECONDS = 0.3
BACK_SECONDS = 50.0  # five times what is promised
WAVES = 30 if RUNS else 9  # the fault takes place in the middle third

SERVERS = {"redis": "redis_server", "hybrid": "redis_server", "nats": "nats_server", "sqs": "sqs_server"}
LEFT_OUT = {  # of the sample: they last, and their like is in it
    "redis": {"deaf", "silent", "flapping"},
    "hybrid": set(FAULTS) - {"killed", "emptied", "cut", "dropped"},
    "nats": {"mute", "silent"},
    "sqs": {"deaf", "mute", "silent", "frozen", "killed", "flapping"},
}
CELLS = [
    pytest.param(mode, fault, seed, id=f"{mode}-{fault}-{seed}")
    for mode in MODES
    for fault in FAULTS
    for seed in range(1, max(RUNS, 1) + 1)
    if RUNS or fault not in LEFT_OUT[mode]
]


class Books(Stage):
    """What a run leaves, and whether it keeps the promises."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder, Settings())
        self._engine = engine

    async def engine(self) -> Engine:
        return self._engine

    async def all_truthful(self, ids: list[str]) -> list[Job]:
        """Each has ended, once, and ran at its time."""
        found = [await self.truthful(await self._engine.get(job)) for job in ids]
        for job in found:
            if job.epoch:
                assert await self.claimed_at(job, job.epoch) >= job.run_at.timestamp(), "S9"
        return found


class Crew:
    """Whoever creates and works in a run, each with connections of its own to everything."""

    def __init__(self) -> None:
        self.creators: list[Opened] = []
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


@asynccontextmanager
async def crew_at(*wires: Settings) -> AsyncIterator[Crew]:
    """On each wire one that creates, and one worker of each kind."""
    crew = Crew()
    async with AsyncExitStack() as stack:
        for settings in wires:
            crew.creators.append(await stack.enter_async_context(creating(settings)))
            for queue in QUEUES:
                opened = await stack.enter_async_context(working(settings, queue))
                if opened.dispatch is not None:
                    crew.workers[queue].append(opened.dispatch)
        await until(lambda: all(dispatch.up for dispatch in crew.listeners))
        yield crew


@asynccontextmanager
async def working(settings: Settings, queue: str) -> AsyncIterator[Opened]:
    async with listening(settings, queues=[queue], types=sorted(app.handlers), live=4) as (opened, source, _):
        plan = Plan(concurrency=4, queues=[queue], kept=False, stop_grace_seconds=5)
        worker = Worker(source, app.handlers, plan=plan, around=app.surroundings)
        running = asyncio.create_task(worker.run())
        try:
            yield opened
        finally:
            worker.stop()
            await running


async def give(errands: Errands, crew: Crew, waves: range) -> None:
    for wave in waves:
        creator = crew.creators[wave % len(crew.creators)]
        await errands.give(creator.engine, QUEUES[wave // 2 % 2], PRIORITIES[wave % 3])
        await asyncio.sleep(0.03)


async def all_ended(engine: Engine) -> None:
    async def ended() -> bool:
        return all(state in FINAL for *_, state, _ in await engine.counts())

    await eventually(ended)


async def back_on_the_broker(crew: Crew) -> list[str]:
    """Each kind of worker hears through it again; the jobs with which that was found out."""
    probes: list[str] = []
    async with asyncio.timeout(BACK_SECONDS):
        await until(lambda: all(dispatch.up for dispatch in crew.listeners), seconds=BACK_SECONDS)
        for queue, dispatches in crew.workers.items():
            before = heard(dispatches)
            while heard(dispatches) == before:
                probes += await jobs(crew.engine, 1, type="works", queue=queue)
                await asyncio.sleep(0.1)
    return probes


def heard(dispatches: list[Dispatch]) -> int:
    return sum(dispatch.tally["received", how] for dispatch in dispatches for how in ("woke", "claimed"))


@pytest.fixture(autouse=True)
def written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "diary"))


@pytest.fixture
async def place(mode: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with place_of(mode, request.getfixturevalue(SERVERS[mode])) as place:
        yield place


@pytest.mark.parametrize(("mode", "fault", "seed"), CELLS)
async def test_every_job_ends_once_and_as_without_a_broker(
    place: Place, fault: str, seed: int, fresh_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, L6, R003-115, R003-116, SEC-23"""
    expected = await without_a_broker(fresh_postgres_url, tmp_path)
    chance, what = random.Random(seed), FAULTS[fault]
    make_noisy(what, chance, monkeypatch)
    async with Proxy.to(place.url) as wire:
        near = place.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS)
        far = place.settings(fresh_postgres_url, url=wire.url, poll_seconds=POLL_SECONDS)
        errands = Errands()
        async with crew_at(near, far) as crew:
            await run(errands, crew, what, Scene(place, wire, chance))
            await all_ended(crew.engine)
            probes = await back_on_the_broker(crew)
            await all_ended(crew.engine)
            found = await Books(tmp_path, crew.engine).all_truthful([*errands.given, *probes])
            assert what.was_felt(place, crew.dispatches)
    assert errands.found([job for job in found if job.id in errands.given]) == expected
    assert all(f"{job.state} after {job.attempt}" == "succeeded after 1" for job in found if job.id in probes)


async def run(errands: Errands, crew: Crew, fault: Fault, scene: Scene) -> None:
    third = WAVES // 3
    if fault.all_the_time:
        async with fault.span(scene):
            await give(errands, crew, range(WAVES))
            await all_ended(crew.engine)
        return
    await give(errands, crew, range(third))
    async with fault.span(scene):
        await give(errands, crew, range(third, 2 * third))
    await give(errands, crew, range(2 * third, WAVES))


def make_noisy(fault: Fault, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.noise.chance.seed(chance.random())
    fault.noise.made = 0
    opened = brokers.open_broker
    monkeypatch.setattr(brokers, "open_broker", lambda *how: Noisy(opened(*how), fault.noise))


_without: list[Counter[str]] = []


async def without_a_broker(database_url: str, folder: Path) -> Counter[str]:
    """The same jobs in `database` mode: once for all, on the database of whoever comes first."""
    if not _without:
        settings, errands = Settings(database_url=database_url, poll_seconds=POLL_SECONDS), Errands()
        async with crew_at(settings, settings) as crew:
            await give(errands, crew, range(WAVES))
            await all_ended(crew.engine)
            found = errands.found(await Books(folder, crew.engine).all_truthful(list(errands.given)))
        assert found == errands.expected
        _without.append(found)
    return _without[0]
