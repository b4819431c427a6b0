"""A worker harness on any database, with workers that may connect through a proxy."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.settings import Settings
from tests.worker.real_processes.app import app
from tests.worker.real_processes.harness import WorkerHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[WorkerHarness]]]:
    """`await harness(url, through=proxy.url, lease_seconds=3)`: the test itself never connects through the proxy."""
    opened: list[WorkerHarness] = []

    async def open_harness(url: str, *, through: str = "", **settings: Any) -> WorkerHarness:
        app.settings = Settings(database_url=url, **settings)
        opened.append(WorkerHarness(tmp_path, msgspec.structs.replace(app.settings, database_url=through or url)))
        await app.engine()
        return opened[-1]

    yield open_harness
    for each in opened:
        await each.close()
    await app.close()
