"""Failures are counted in the database, for all processes, whether or not anybody subscribes."""

import asyncio

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.maintenance.prune import Retention
from holdfast.engine.webhooks import failure_counts
from holdfast.engine.webhooks.failure_counts import FailureCounts
from holdfast.store import PostgresStore
from tests.engine.log import settled
from tests.engine.steps import run, sweep
from tests.webhooks.conftest import Couriers
from tests.webhooks.steps import complete, fail


async def counted(engine: Engine) -> FailureCounts:
    await settled(engine)
    return await engine.webhooks.count_failures()


async def test_each_failure_is_counted_once_without_any_webhook(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R003-132."""
    assert await counted(engine) == FailureCounts()
    await complete(engine, worker)
    await fail(engine, worker, permanent=False)
    assert await counted(engine) == FailureCounts(1)
    await fail(engine, worker, permanent=False, max_attempts=1)
    assert await counted(engine) == await counted(engine) == FailureCounts(2, 0, 1)
    await run(engine, worker)
    await sweep(engine, clock, 40)
    assert await counted(engine) == FailureCounts(3, 1, 1)
    await fail(engine, worker)  # for good, with attempts left
    assert await counted(engine) == FailureCounts(4, 1, 1)


async def test_events_of_a_job_that_does_not_run_are_no_failures(engine: Engine, worker: str) -> None:
    """Discarding a retry says `fail` as well."""
    job = await fail(engine, worker, permanent=False)
    await engine.discard(job)
    assert await counted(engine) == FailureCounts(1)


async def test_a_new_process_continues_the_count_of_others(
    engine: Engine, couriers: Couriers, worker: str, clock: MovableClock
) -> None:
    """R003-132: a courier counts, and the next one finds what it counted."""
    for total in (1, 2):
        await fail(engine, worker)
        await settled(engine)
        courier = couriers()
        await courier.count_failures_if_due()
        assert courier.failures == FailureCounts(total)


async def test_concurrent_processes_count_each_failure_once(
    engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_counts, "PAGE", 2)
    for _ in range(7):
        await fail(engine, worker)
    await settled(engine)
    await asyncio.gather(*(engine.webhooks.count_failures() for _ in range(4)))
    assert await counted(engine) == FailureCounts(7)


async def test_a_failure_behind_an_open_transaction_is_counted_after_that_has_ended(
    engine: Engine, worker: str, store_url: str
) -> None:
    """The open one may yet write an earlier event, which a reader that had gone on would miss."""
    if not isinstance(engine.store, PostgresStore):
        pytest.skip("SQLite allows one writer at a time: no transaction commits late")
    other = await asyncpg.connect(store_url)
    async with other.transaction():
        await other.execute("SELECT pg_current_xact_id()")
        await fail(engine, worker)
        assert await engine.webhooks.count_failures() == FailureCounts()
    await other.close()
    assert await counted(engine) == FailureCounts(1)


async def test_a_pruned_job_stays_counted(engine: Engine, worker: str, clock: MovableClock) -> None:
    await fail(engine, worker, permanent=False, max_attempts=1)
    assert await counted(engine) == FailureCounts(1, 0, 1)
    clock.advance(86_400)
    await engine.maintenance.prune(Retention(dead=3600))
    assert await counted(engine) == FailureCounts(1, 0, 1)
