"""Limits and keys on PostgreSQL beside transactions of other isolation levels, and beside ones that stay open."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import open_store
from holdfast.store.advisory_locks import NAMESPACE
from holdfast.store.queries import Query
from tests.engine.limiting import crawl, crawl_by_domain, declare, domains, end, limit

pytestmark = pytest.mark.postgres
ISOLATION = Query("isolation", "SELECT current_setting('transaction_isolation') AS level")


@pytest.fixture
async def engine(fresh_postgres_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    opened = Engine(await open_store(fresh_postgres_url, clock, Ids()), clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(fresh_postgres_url)
    yield opened
    await opened.close()


async def test_a_database_whose_default_is_repeatable_read_keeps_limits(
    fresh_postgres_url: str, connection: asyncpg.Connection
) -> None:
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    opened = Engine(await open_store(fresh_postgres_url, Clock(), Ids()))
    try:
        rows = await opened.store.write(lambda tx: tx.all(ISOLATION))
    finally:
        await opened.close()
    assert [row["level"] for row in rows] == ["read committed"]


async def test_a_keyed_job_can_be_created_in_a_repeatable_read_transaction(
    engine: Engine, worker: str, connection: asyncpg.Connection
) -> None:
    """Although a claim has replaced the row of its key since the snapshot of that transaction."""
    await crawl_by_domain(engine)
    await crawl(engine, "a", "a")
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM holdfast_jobs")
        [lease] = await engine.claim(worker)
        await engine.create(NewJob(type="crawl", payload={"domain": "a"}), connection=connection)
    await end(engine, worker, lease)
    for _ in range(2):
        [lease] = await engine.claim(worker)
        await end(engine, worker, lease)
    assert await engine.claim(worker) == []


async def test_keys_take_turns_beside_an_open_transaction_that_creates_a_job_of_one(
    engine: Engine, worker: str, connection: asyncpg.Connection, clock: MovableClock
) -> None:
    await declare(engine, fairness_key="domain")
    await crawl(engine, *"aaaaabbbbb")
    async with connection.transaction():
        await engine.create(NewJob(type="crawl", payload={"domain": "a"}), connection=connection)
        order = []
        for _ in range(6):
            clock.advance(1)
            order += domains(await engine.claim(worker))
    assert sorted(order) == [*"aaabbb"]


async def test_claims_do_not_wait_for_a_transaction_that_creates_jobs_of_a_limited_key(
    engine: Engine, worker: str, connection: asyncpg.Connection
) -> None:
    await crawl_by_domain(engine, most=2)
    await limit(engine, "type:crawl", concurrency=9)
    await crawl(engine, "a")
    async with connection.transaction():
        await engine.create(NewJob(type="crawl", payload={"domain": "a"}), connection=connection)
        [lease] = await engine.claim(worker, limit=9)
        await end(engine, worker, lease)
    assert domains(await engine.claim(worker, limit=9)) == ["a"]


async def test_a_claim_that_hangs_stops_only_the_keys_that_it_counts(
    engine: Engine, worker: str, connection: asyncpg.Connection
) -> None:
    """Other claims find the keys behind them, also those that look at few keys."""
    await crawl_by_domain(engine)
    await crawl(engine, *"abcdefghij")
    async with connection.transaction():
        for key in "abcde":
            lock = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
            assert await connection.fetchval(lock, f"{NAMESPACE}:limit:key:crawl {key}")
        found = [domain for _ in range(5) for domain in domains(await engine.claim(worker))]
    assert sorted(found) == [*"fghij"]
