"""An app on each store, and a stage for real worker processes."""

from collections.abc import AsyncIterator

import pytest

from holdfast import App
from holdfast.settings import Settings
from tests.worker.stories_db.conftest import stage

__all__ = ["stage"]


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()
