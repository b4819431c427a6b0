"""Behind a pooler in transaction mode no session state lasts: jobs are found by polling, crashes by expired leases."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.worker.real_databases.faulty_proxies import PoolerProxy
from tests.worker.real_databases.ledger import Ledger
from tests.worker.real_databases.pgbouncer import PROGRAM, pooled
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenHarness = Callable[..., Awaitable[WorkerHarness]]
WARNING = "PostgreSQL is behind a pooler: no LISTEN/NOTIFY; a crash is detected when leases expire"


@pytest.fixture(params=["pgbouncer", "stand-in"])
async def pooler_url(request: pytest.FixtureRequest, fresh_postgres_url: str) -> AsyncIterator[str]:
    if request.param == "stand-in":
        async with PoolerProxy.to(fresh_postgres_url) as wire:
            yield wire.url
        return
    if PROGRAM is None:
        pytest.skip("there is no pgbouncer on the PATH")
    async with pooled(fresh_postgres_url) as url:
        yield url


async def test_behind_a_pooler_jobs_are_found_by_polling_and_crashes_by_expired_leases(
    fresh_postgres_url: str, harness: OpenHarness, pooler_url: str
) -> None:
    """F26, K35."""
    on = await harness(
        fresh_postgres_url,
        through=pooler_url,
        lease_seconds=3,
        heartbeat_seconds=0.6,
        sweep_seconds=0.5,
        startup_grace_seconds=0,
        backoff_base=0.1,
    )
    doomed = await on.start()
    assert WARNING in doomed.log
    await eventually(on.all_kept)
    long = await jobs.on_the_loop.enqueue(seconds=4)
    held = await jobs.on_the_loop.enqueue(seconds=100)
    quick = [await jobs.on_the_loop.enqueue() for _ in range(20)]
    for job in (*quick, long):
        await job.result(60)
    doomed.signal(signal.SIGKILL)
    await eventually(lambda: not doomed.pids())
    await on.start()
    await held.result(60)

    ledger = await Ledger.read(await on.engine())
    ledger.each_succeeded_once([job.id for job in (*quick, long, held)])
    assert ledger.reaped() == {"lease_expired": 1}
    assert ledger.attempts() == {1: len(quick) + 1, 2: 1}
    names = {attempt.instance for job in (long, held) for attempt in await on.attempts(job)}
    assert not any(str(name).endswith(".live") for name in names), "no process claims to hold a session lock"
