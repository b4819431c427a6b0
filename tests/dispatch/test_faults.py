"""Each broker with each fault: faults change the speed, never the outcome. S13, L6, F29, F30, F31.

Two producers create jobs of several kinds and four workers of two kinds run them, half of them through a proxy that
may disconnect. Each job finishes once, with the same outcome as without a broker. `make test` runs a sample of the
table, chosen by the commit, and `make soak` all; HOLDFAST_TEST_FAULT_RUNS=3 runs each with three seeds and more jobs.
"""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.assembly import brokers
from holdfast.settings import Settings
from tests.dispatch.backends import MODES, Backend
from tests.dispatch.cluster import Cluster, RunChecker, open_cluster, wait_until_all_final
from tests.dispatch.faults import FAULTS, Fault, FaultContext
from tests.dispatch.sample_jobs import PRIORITIES, QUEUES, SampleJobs
from tests.dispatch.unreliable_broker import UnreliableBroker
from tests.servers.proxy import Proxy
from tests.worker.real_processes.handler_log import VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

RUNS = int(os.environ.get("HOLDFAST_TEST_FAULT_RUNS", "0"))
WAVES = 30 if RUNS else 9  # the fault takes backend in the middle third
# The workers here send no heartbeats: even on a busy machine no lease may expire.
TIMES: dict[str, Any] = {"poll_seconds": 0.3, "lease_seconds": 600}
CELLS = [
    pytest.param(mode, fault, seed, id=f"{mode}-{fault}-{seed}")
    for mode in MODES
    for fault in FAULTS
    for seed in range(1, max(RUNS, 1) + 1)
]


@pytest.fixture(autouse=True)
def handler_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "handler-log"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("mode", "fault", "seed"), CELLS)
async def test_every_job_has_the_same_outcome_as_without_a_broker(
    backend: Backend, fault: str, seed: int, fresh_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S13, L6, R003-115, R003-116, SEC-23"""
    expected = await outcomes_without_a_broker(fresh_postgres_url, tmp_path)
    rng, samples, what = random.Random(seed), SampleJobs(), FAULTS[fault]
    make_unreliable(what, rng, monkeypatch)
    async with Proxy.to(backend.url) as proxy:
        direct = backend.settings(fresh_postgres_url, **TIMES)
        proxied = backend.settings(fresh_postgres_url, url=proxy.url, **TIMES)
        async with open_cluster(direct, proxied) as cluster:
            await run(samples, cluster, what, FaultContext(backend, proxy, rng))
            await wait_until_all_final(cluster.engine)
            probes = await cluster.wait_for_broker()
            await wait_until_all_final(cluster.engine)
            found = await RunChecker(tmp_path, cluster.engine).check_all([*samples.created, *probes])
            assert what.was_noticed(backend, cluster.dispatches)
    assert samples.found([job for job in found if job.id in samples.created]) == expected
    assert {f"{job.state} after {job.attempt}" for job in found if job.id in probes} == {"succeeded after 1"}


async def run(samples: SampleJobs, cluster: Cluster, fault: Fault, context: FaultContext) -> None:
    if fault.whole_run:
        async with fault.span(context):
            await create(samples, cluster, range(WAVES))
            await wait_until_all_final(cluster.engine)
        return
    third = WAVES // 3
    await create(samples, cluster, range(third))
    async with fault.span(context):
        await create(samples, cluster, range(third, 2 * third))
    await create(samples, cluster, range(2 * third, WAVES))


async def create(samples: SampleJobs, cluster: Cluster, waves: range) -> None:
    for wave in waves:
        creator = cluster.creators[wave % len(cluster.creators)]
        await samples.create(creator.engine, QUEUES[wave // 2 % 2], PRIORITIES[wave % 3])
        await asyncio.sleep(0.03)


def make_unreliable(fault: Fault, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.rates.rng.seed(rng.random())
    fault.rates.injected = 0
    opened = brokers.open_broker
    monkeypatch.setattr(brokers, "open_broker", lambda *how: UnreliableBroker(opened(*how), fault.rates))


_baseline: list[Counter[str]] = []


async def outcomes_without_a_broker(database_url: str, folder: Path) -> Counter[str]:
    """The outcomes of the same jobs in `database` mode: measured once, on the database of the first test."""
    if not _baseline:
        settings, samples = Settings(database_url=database_url, **TIMES), SampleJobs()
        async with open_cluster(settings, settings) as cluster:
            await create(samples, cluster, range(WAVES))
            await wait_until_all_final(cluster.engine)
            found = samples.found(await RunChecker(folder, cluster.engine).check_all(list(samples.created)))
        assert found == samples.expected
        _baseline.append(found)
    return _baseline[0]
