"""An app on an empty database, on each store in turn."""

from collections.abc import AsyncIterator

import pytest

from holdfast import App
from holdfast.settings import Settings


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    app.close_sync()
    await app.close()
