"""An app on each store, and a harness for real worker processes."""

from collections.abc import AsyncIterator

import pytest

from holdfast import App
from holdfast.settings import Settings
from tests.worker.real_databases.conftest import harness

__all__ = ["harness"]


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()
