"""Tests with real worker processes: `await stage(lease_seconds=3, ...)` opens a stage with these settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings import Settings
from tests.worker.stories.app import app
from tests.worker.stories.stage import Stage

PROC = Path("/proc/self/environ").exists()


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Stage]]]:
    if not PROC:
        pytest.skip("the processes of a worker are found by their environment, in /proc")
    opened: list[Stage] = []

    async def open_stage(**settings: Any) -> Stage:
        app.settings = Settings(database_url=store_url, **settings)
        opened.append(Stage(tmp_path, app.settings))
        await app.engine()
        return opened[-1]

    yield open_stage
    for each in opened:
        await each.close()
    await app.close()
