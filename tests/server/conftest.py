"""A server on each store in turn."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.store.queries import Query
from tests.server.steps import Served, serving


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    """A server on an empty database, on loopback, with an admin secret and no keys yet."""
    async with serving(store_url) as served:
        yield served


@pytest.fixture
async def worker(served: Served) -> str:
    """The id of a worker beside that server, straight at its engine."""
    return (await served.engine.workers.register(name="tester")).id


@pytest.fixture
async def served_on_sqlite(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    """The same on one store, for what has nothing to do with the store."""
    async with serving(fresh_sqlite_url) as served:
        yield served


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, served: Served) -> list[str]:
    """The names of all queries from now on."""
    transaction, names = served.engine.store.transaction_class, list[str]()
    original = transaction.all

    async def noted(tx: Any, query: Query, **params: Any) -> Any:
        names.append(query.name)
        return await original(tx, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    return names
