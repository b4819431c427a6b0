"""A server on each store in turn."""

from collections.abc import AsyncIterator

import pytest

from tests.server.steps import Served, serving


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    """A server on an empty database, on loopback, with an admin secret and no keys yet."""
    async with serving(store_url) as served:
        yield served


@pytest.fixture
async def worker(served: Served) -> str:
    """The id of a worker beside that server, straight at its engine."""
    return (await served.engine.register(name="tester")).id


@pytest.fixture
async def served_on_sqlite(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    """The same on one store, for what has nothing to do with the store."""
    async with serving(fresh_sqlite_url) as served:
        yield served
