"""However many jobs a worker asks for, PostgreSQL prepares one statement for it and locks no job beyond them."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.engine.claim import claim
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import Tx
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Query

pytestmark = pytest.mark.postgres
PREPARED = Query("prepared", "SELECT count(*) AS jobs FROM pg_prepared_statements WHERE statement LIKE '%picked%'")


@pytest.fixture
async def engine(fresh_postgres_url: str) -> AsyncIterator[Engine]:
    """With one connection, so that each statement is prepared on the same one."""
    engine = Engine(await PostgresStore.open(fresh_postgres_url, Clock(), Ids(), connections=1))
    yield engine
    await engine.close()


async def test_claims_of_every_size_share_a_prepared_statement(engine: Engine) -> None:
    """Each size had a statement of its own, of 200 KiB, on every connection: 31 MiB after a drain."""
    await engine.create_many([NewJob(type="t")] * 300)
    worker = (await engine.workers.register()).id
    sizes = list(range(1, 21))
    taken = [len(await engine.claim(worker, limit=size, at_once=True)) for size in sizes]
    assert taken == sizes
    [row] = await engine.store.read(lambda tx: tx.all(PREPARED))
    assert row["jobs"] <= 2  # of claims, and of what is due


async def test_a_claim_of_two_leaves_the_third_job_to_others(engine: Engine, fresh_postgres_url: str) -> None:
    made = await engine.create_many([NewJob(type="t")] * 3)
    worker = (await engine.workers.register()).id
    other = await asyncpg.connect(fresh_postgres_url)

    async def claim_and_look(tx: Tx) -> list[str]:
        leases = await claim(tx, engine.ctx, worker=worker, instance=None, queues=None, types=None, limit=2)
        free = await other.fetch("SELECT id FROM holdfast_jobs WHERE due ORDER BY id FOR UPDATE SKIP LOCKED")
        assert [str(row["id"]) for row in free] == [made[2].id]
        return [lease.id for lease in leases]

    assert await engine.store.write(claim_and_look) == [made[0].id, made[1].id]
    await other.close()
