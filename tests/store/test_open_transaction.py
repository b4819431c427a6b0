"""A transaction that code in the event loop keeps open for too long."""

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store import Tx, connect, open_store
from holdfast.store.migrate import migrate
from holdfast.store.open_transaction import transaction
from holdfast.store.queries import Query
from tests.worker.in_process import until

PAUSE = Query("pause", "INSERT INTO holdfast_queues (tenant, name) VALUES (:tenant, 'q') RETURNING name")
PAUSED = Query("paused", "SELECT tenant FROM holdfast_queues ORDER BY tenant")

OPEN = Query(
    "open", "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
)


async def test_on_sqlite_a_transaction_that_waits_for_itself_is_rolled_back(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.open_transaction.HELD_SECONDS_MAX", 0.1)
    await migrate(fresh_sqlite_url)
    store = await open_store(fresh_sqlite_url)

    async def outside(tx: Tx) -> None:
        await tx.run(PAUSE, tenant="outside")

    async def inside() -> None:
        async with transaction(store) as tx:
            await tx.run(PAUSE, tenant="inside")
            await store.write(outside)  # which waits for the end of this transaction
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                await tx.run(PAUSE, tenant="late")

    try:
        with pytest.raises(StoreUnavailable, match="was held open for"):
            await inside()
        assert [row["tenant"] for row in await store.read(lambda tx: tx.all(PAUSED))] == ["outside"]
    finally:
        await store.close()


async def test_on_postgres_an_idle_transaction_is_rolled_back(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if store_url.startswith("sqlite"):
        pytest.skip("PostgreSQL only; the test before this one covers SQLite")
    monkeypatch.setattr(connect, "IDLE_IN_TRANSACTION_SECONDS", 0.2)
    store = await open_store(store_url)

    async def is_over() -> bool:
        return await store.read(lambda tx: tx.all(OPEN)) == []

    async def inside() -> None:
        async with transaction(store) as tx:
            await tx.all(PAUSE, tenant="inside")
            await until(is_over)
            await tx.all(PAUSE, tenant="late")

    try:
        with pytest.raises(StoreUnavailable, match="rolled the transaction back"):
            await inside()
        assert await store.read(lambda tx: tx.all(PAUSED)) == []
    finally:
        await store.close()
