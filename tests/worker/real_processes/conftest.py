"""Tests with real worker processes: `await harness(lease_seconds=3, ...)` starts workers with these settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings import Settings
from tests.worker.real_processes.app import app
from tests.worker.real_processes.harness import WorkerHarness

PROC = Path("/proc/self/environ").exists()


@pytest.fixture
async def harness(store_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[WorkerHarness]]]:
    if not PROC:
        pytest.skip("the processes of a worker are found by their environment, in /proc")
    opened: list[WorkerHarness] = []

    async def open_harness(**settings: Any) -> WorkerHarness:
        app.settings = Settings(database_url=store_url, **settings)
        opened.append(WorkerHarness(tmp_path, app.settings))
        await app.engine()
        return opened[-1]

    yield open_harness
    for each in opened:
        await each.close()
    await app.close()
