"""Two connections whose statements the test orders, and one that watches them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.ids import SeededIds
from holdfast.store import open_store
from tests.interleaving.scenarios import Stage
from tests.interleaving.scheduler import Scheduler, Session


@pytest.fixture
async def stage(fresh_postgres_url: str, clock: MovableClock) -> AsyncIterator[Stage]:
    ids = SeededIds(7)
    engine = Engine(await open_store(fresh_postgres_url, clock, ids), clock=clock, ids=ids)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        connections = []
        for _ in range(3):
            connection = await asyncpg.connect(fresh_postgres_url, statement_cache_size=1024)
            stack.push_async_callback(connection.close)
            await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
            connections.append(connection)
        first, second, watcher = connections
        scheduler = Scheduler((Session("A", first), Session("B", second)), watcher, clock)
        holder, *takers = [(await engine.workers.register(name=name)).id for name in ("holder", "taker", "other taker")]
        yield Stage(engine, clock, watcher, scheduler, holder, (takers[0], takers[1]))
