"""A stage on any database, with workers that may connect through a proxy."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.settings import Settings
from tests.worker.stories.app import app
from tests.worker.stories.stage import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Stage]]]:
    """`await stage(url, through=wire.url, lease_seconds=3, ...)`: the test itself never connects through the proxy."""
    opened: list[Stage] = []

    async def open_stage(url: str, *, through: str = "", **settings: Any) -> Stage:
        app.settings = Settings(database_url=url, **settings)
        opened.append(Stage(tmp_path, msgspec.structs.replace(app.settings, database_url=through or url)))
        await app.engine()
        return opened[-1]

    yield open_stage
    for each in opened:
        await each.close()
    await app.close()
