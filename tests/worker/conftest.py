"""Fixtures of the worker tests: an app on the database of the test, and a pool of child processes."""

from collections.abc import AsyncIterator

import pytest

from holdfast.sdk.app import App
from holdfast.settings import Settings
from tests.worker.child_pool import Pool, pool_of


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with pool_of() as pool:
        yield pool
