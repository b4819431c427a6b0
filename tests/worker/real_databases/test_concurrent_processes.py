"""Many processes on one database: each job runs once.

600 jobs in `make test`, 5,000 in `make soak`.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from holdfast.store.migrate import sqlite_path
from tests.cli.processes import environment
from tests.sampling import Sample
from tests.worker.real_databases.ledger import all_done
from tests.worker.real_processes.harness import ROOT, WorkerHarness

pytestmark = [pytest.mark.slow, pytest.mark.sampled]
OpenHarness = Callable[..., Awaitable[WorkerHarness]]


@pytest.fixture
def number(sample: Sample) -> int:
    return 5_000 if sample.soak else 600


async def test_eight_worker_processes_share_a_sqlite_file_with_four_clients(
    fresh_sqlite_url: str, harness: OpenHarness, number: int
) -> None:
    """F34."""
    await each_runs_once(await harness(fresh_sqlite_url), fresh_sqlite_url, processes=8, jobs=number)
    with closing(sqlite3.connect(sqlite_path(fresh_sqlite_url))) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_two_worker_processes_share_postgresql(
    fresh_postgres_url: str, harness: OpenHarness, number: int
) -> None:
    await each_runs_once(await harness(fresh_postgres_url), fresh_postgres_url, processes=2, jobs=number)


async def each_runs_once(on: WorkerHarness, url: str, *, processes: int, jobs: int) -> None:
    command = await on.start("--processes", str(processes), ready=processes)
    began = time.monotonic()
    ids = [job for some in await asyncio.gather(*(hand_in(url, jobs // 4) for _ in range(4))) for job in some]
    assert len(set(ids)) == jobs
    ledger = await all_done(on, ids)
    print(f"{jobs} jobs by {processes} processes in {time.monotonic() - began:.1f} s")
    notes = {job: on.handler_log.notes("started", job) for job in ids}
    assert {len(started) for started in notes.values()} == {1}
    assert ledger.attempts() == {1: jobs}
    assert ledger.reaped() == {}
    assert len({started["pid"] for [started] in notes.values()}) > 1, "one did it all"
    assert await command.stop() == 0
    assert '"level":"error"' not in command.log


async def hand_in(url: str, number: int) -> list[str]:
    """In a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.worker.real_databases.load", str(number)),
        cwd=ROOT,
        env=environment(HOLDFAST_DATABASE_URL=url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    ids: list[str] = json.loads(printed)
    return ids
