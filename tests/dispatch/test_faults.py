"""Every broker and everything that can happen to it: speed changes, results never. S13, L6, F29, F30, F31.

Jobs of many kinds are created by two processes and done by four workers of two kinds, half of them by a wire that may
be cut. Each job ends once, and all end as they do without a broker. `make test` runs some cells of the table, chosen by
the commit, and `make soak` all; HOLDFAST_TEST_FAULT_RUNS=3 runs each with three seeds and more jobs.
"""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from holdfast.assembly import brokers
from holdfast.settings import Settings
from tests.dispatch.crew import Books, Crew, all_ended, crew_at
from tests.dispatch.errands import PRIORITIES, QUEUES, Errands
from tests.dispatch.faults import FAULTS, Fault, Scene
from tests.dispatch.noise import Noisy
from tests.dispatch.places import MODES, Place
from tests.servers.proxy import Proxy
from tests.worker.stories.diary import VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

RUNS = int(os.environ.get("HOLDFAST_TEST_FAULT_RUNS", "0"))
WAVES = 30 if RUNS else 9  # the fault takes place in the middle third
POLL_SECONDS = 0.3
CELLS = [
    pytest.param(mode, fault, seed, id=f"{mode}-{fault}-{seed}")
    for mode in MODES
    for fault in FAULTS
    for seed in range(1, max(RUNS, 1) + 1)
]


@pytest.fixture(autouse=True)
def written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "diary"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("mode", "fault", "seed"), CELLS)
async def test_every_job_ends_once_and_as_without_a_broker(
    place: Place, fault: str, seed: int, fresh_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, L6, R003-115, R003-116, SEC-23"""
    expected = await without_a_broker(fresh_postgres_url, tmp_path)
    chance, errands, what = random.Random(seed), Errands(), FAULTS[fault]
    make_noisy(what, chance, monkeypatch)
    async with Proxy.to(place.url) as wire:
        near = place.settings(fresh_postgres_url, poll_seconds=POLL_SECONDS)
        far = place.settings(fresh_postgres_url, url=wire.url, poll_seconds=POLL_SECONDS)
        async with crew_at(near, far) as crew:
            await run(errands, crew, what, Scene(place, wire, chance))
            await all_ended(crew.engine)
            probes = await crew.is_back_on_the_broker()
            await all_ended(crew.engine)
            found = await Books(tmp_path, crew.engine).all_truthful([*errands.given, *probes])
            assert what.was_felt(place, crew.dispatches)
    assert errands.found([job for job in found if job.id in errands.given]) == expected
    assert {f"{job.state} after {job.attempt}" for job in found if job.id in probes} == {"succeeded after 1"}


async def run(errands: Errands, crew: Crew, fault: Fault, scene: Scene) -> None:
    if fault.all_the_time:
        async with fault.span(scene):
            await give(errands, crew, range(WAVES))
            await all_ended(crew.engine)
        return
    third = WAVES // 3
    await give(errands, crew, range(third))
    async with fault.span(scene):
        await give(errands, crew, range(third, 2 * third))
    await give(errands, crew, range(2 * third, WAVES))


async def give(errands: Errands, crew: Crew, waves: range) -> None:
    for wave in waves:
        creator = crew.creators[wave % len(crew.creators)]
        await errands.give(creator.engine, QUEUES[wave // 2 % 2], PRIORITIES[wave % 3])
        await asyncio.sleep(0.03)


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
