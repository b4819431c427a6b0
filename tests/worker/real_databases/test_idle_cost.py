"""The cost of an idle worker: few queries and little CPU time."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.settings import Settings
from tests.worker.real_databases.faulty_proxies import CountingProxy
from tests.worker.real_processes.harness import Command, WorkerHarness

pytestmark = [pytest.mark.slow, pytest.mark.sqlite, pytest.mark.postgres]

SETTLED_SECONDS = 2.5  # polling slows down while nothing happens
WATCHED_SECONDS = 8.0
TICK = os.sysconf("SC_CLK_TCK")


async def test_an_idle_worker_makes_few_queries_and_uses_little_cpu(
    fresh_postgres_url: str, fresh_sqlite_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Generous: 2 questions a second and 1 % of a core are the aim, and printed. All its processes together."""
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(CountingProxy.to(fresh_postgres_url))
        commands = {
            "PostgreSQL": await stack.enter_async_context(worker(wire.url, tmp_path_factory)),
            "SQLite": await stack.enter_async_context(worker(fresh_sqlite_url, tmp_path_factory)),
        }
        await asyncio.sleep(SETTLED_SECONDS)
        asked, used, began = wire.transactions, seconds_used(commands), time.monotonic()
        await asyncio.sleep(WATCHED_SECONDS)
        lasted = time.monotonic() - began
        rate = (wire.transactions - asked) / lasted
        shares = {store: (after - used[store]) / lasted for store, after in seconds_used(commands).items()}
        print(f"an idle worker: {rate:.1f} transactions a second on PostgreSQL;")
        print(", ".join(f"{share:.1%} of a core on {store}" for store, share in shares.items()))
        assert rate < 4
        assert max(shares.values()) < 0.1


@asynccontextmanager
async def worker(url: str, folders: pytest.TempPathFactory) -> AsyncIterator[Command]:
    harness = WorkerHarness(folders.mktemp("worker"), Settings(database_url=url))
    try:
        yield await harness.start()
    finally:
        await harness.close()


def seconds_used(commands: dict[str, Command]) -> dict[str, float]:
    return {store: sum(map(_of_process, command.pids())) for store, command in commands.items()}


def _of_process(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
