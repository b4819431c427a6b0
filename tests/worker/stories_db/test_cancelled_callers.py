"""Callers and workers that are cancelled at any await: no connection leaks, none goes back with an open transaction."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from holdfast import App
from holdfast.app import Definition
from holdfast.direct import DirectSource
from holdfast.lifecycle import State
from holdfast.model.reports import Freed
from holdfast.settings import Settings
from holdfast.store import PostgresStore
from holdfast.store.presence import open_presence
from tests.store.cancel_at import CancelAt

PAUSES_MAX = 200
OPEN_TRANSACTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))

    @app.job()
    async def quick() -> None: ...

    yield app
    await app.close()


def quick(app: App, **options: Any) -> Definition[Any, Any]:
    return Definition(app, app.handlers["quick"], Definition(app, app.handlers["quick"], ...)._options)
