"""The connection pool of the PostgreSQL store: bounded, without leaks, one user per connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.store.pool import IDLE_SECONDS_MAX, PostgresPool
from tests.worker.in_process import until


class Monotonic(MovableClock):
    """A clock whose monotonic time the test sets."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def opened() -> list[Any]:
    return []


@pytest.fixture
async def connections(fresh_postgres_url: str, opened: list[Any]) -> AsyncIterator[PostgresPool]:
    async def connect() -> Any:
        opened.append(await asyncpg.connect(fresh_postgres_url))
        return opened[-1]

    connections = PostgresPool(connect, 2, Clock())
    yield connections
    await connections.close()


async def test_a_connection_is_opened_on_demand_and_reused(connections: PostgresPool, opened: list[Any]) -> None:
    for _ in range(5):
        connection = await connections.acquire()
        assert await connection.fetchval("SELECT 1") == 1
        connections.release(connection)
    assert len(opened) == 1


async def test_the_pool_is_bounded_and_serves_waiters_in_order(connections: PostgresPool, opened: list[Any]) -> None:
    first, second = await connections.acquire(), await connections.acquire()
    order: list[str] = []

    async def wait(name: str) -> Any:
        connection = await connections.acquire()
        order.append(name)
        return connection

    waiting = [asyncio.create_task(wait(name)) for name in "ab"]
    await asyncio.sleep(0.01)
    assert not order
    connections.release(first)
    connections.release(second)
    for connection in await asyncio.gather(*waiting):
        connections.release(connection)
    assert order == ["a", "b"]
    assert len(opened) == 2


async def test_a_closed_connection_makes_room_for_a_new_one(connections: PostgresPool, opened: list[Any]) -> None:
    first, second = await connections.acquire(), await connections.acquire()
    waiting = asyncio.create_task(connections.acquire())
    await asyncio.sleep(0.01)
    first.terminate()
    connections.release(first)
    third = await waiting
    assert third is not first
    assert await third.fetchval("SELECT 1") == 1
    second.terminate()
    connections.release(third)
    connections.release(second)
    assert await connections.acquire() is third
    connections.release(third)


async def test_a_connection_that_closed_while_idle_is_not_handed_out(
    connections: PostgresPool, opened: list[Any]
) -> None:
    connection = await connections.acquire()
    connections.release(connection)
    connection.terminate()
    again = await connections.acquire()
    assert again is not connection
    connections.release(again)


async def test_a_cancelled_waiter_leaks_no_connection(connections: PostgresPool) -> None:
    """K37: also in the instant in which a connection was handed over."""
    first, second = await connections.acquire(), await connections.acquire()
    waiting = asyncio.create_task(connections.acquire())
    await asyncio.sleep(0.01)
    connections.release(first)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(60):
        assert await connections.acquire() is first
    connections.release(first)
    connections.release(second)


async def test_a_waiter_cancelled_before_the_handover_is_skipped(connections: PostgresPool) -> None:
    first, second = await connections.acquire(), await connections.acquire()
    gone, stays = asyncio.create_task(connections.acquire()), asyncio.create_task(connections.acquire())
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0.01)
    connections.release(first)
    async with asyncio.timeout(60):
        assert await stays is first
    connections.release(first)
    connections.release(second)


async def test_a_failed_connect_does_not_use_up_the_pool(fresh_postgres_url: str) -> None:
    broken = True

    async def connect() -> Any:
        if broken:
            raise OSError("no server")
        return await asyncpg.connect(fresh_postgres_url)

    connections = PostgresPool(connect, 1, Clock())
    for _ in range(3):
        with pytest.raises(OSError, match="no server"):
            await connections.acquire()
    broken = False
    connections.release(await connections.acquire())
    await connections.close()


async def test_a_connection_idle_for_long_is_closed(fresh_postgres_url: str) -> None:
    clock = Monotonic()

    async def connect() -> Any:
        return await asyncpg.connect(fresh_postgres_url)

    connections = PostgresPool(connect, 2, clock)
    idle, busy = await connections.acquire(), await connections.acquire()
    connections.release(idle)
    connections.release(busy)
    assert await connections.acquire() is busy, "the one used last"
    clock.at = IDLE_SECONDS_MAX + 1
    connections.release(busy)
    await until(idle.is_closed)
    assert not busy.is_closed()
    await connections.close()


async def test_close_waits_for_connections_in_use(connections: PostgresPool) -> None:
    connection = await connections.acquire()
    closing = asyncio.create_task(connections.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    assert await connection.fetchval("SELECT 1") == 1
    connections.release(connection)
    async with asyncio.timeout(60):
        await closing
    assert connection.is_closed()
