"""`jobs_of(app)` in sync tests, and that it leaves nothing behind."""

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.errors import Invalid
from holdfast.testing import Jobs, jobs_of


def test_a_sync_test_can_enqueue_and_drain(app: App, jobs: Jobs) -> None:
    @app.job()
    async def double(number: int) -> int:
        halve.enqueue_sync(number)
        return 2 * number

    @app.job()
    def halve(number: int) -> float:
        assert jobs.enqueued(halve) == []  # it runs, it does not wait
        return number / 2

    job = double.options(delay=60).enqueue_sync(21)
    assert jobs.enqueued(double, number=21)
    jobs.clock.advance(minutes=1)
    assert [ran.result for ran in jobs.drain_sync()] == [42, 10.5]
    assert job.result_sync(timeout=20) == 42


async def test_drain_sync_in_an_event_loop_raises_with_a_hint(jobs: Jobs) -> None:
    with pytest.raises(Invalid, match=r"await jobs.drain\(\)"):
        jobs.drain_sync()


async def test_jobs_of_restores_the_database_of_the_app(tmp_path: Path) -> None:
    app = App(database_url=f"sqlite:///{tmp_path}/real.db")

    @app.job()
    async def note() -> None: ...

    real = await note.enqueue()
    with jobs_of(app) as jobs:
        await note.enqueue()
        assert len(jobs.enqueued()) == 1
    assert await real.status() == "PENDING"
    assert [job.id for job in (await (await app.engine()).reads.page()).jobs] == [real.id]
    await app.close()


async def test_each_jobs_of_has_its_own_database(app: App) -> None:
    @app.job()
    async def note() -> None: ...

    for _ in range(2):
        with jobs_of(app) as jobs:
            assert jobs.enqueued() == []
            await note.enqueue()


async def test_jobs_of_leaks_no_files_threads_or_directories(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job()
    def note() -> None: ...

    async def once() -> None:
        with jobs_of(app) as jobs:
            await note.enqueue()
            await jobs.drain()
            await asyncio.to_thread(jobs.drain_sync)
            jobs.enqueued()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await once()
    files, threads = _open_files(), _our_threads()
    for _ in range(3):
        await once()
    assert _open_files() <= files
    assert await _eventually(lambda: _our_threads() <= threads)
    assert os.listdir(tmp_path) == []


def _open_files() -> int:
    gc.collect()
    return len(os.listdir("/dev/fd"))


def _our_threads() -> int:
    return sum(thread.name.startswith("holdfast") for thread in threading.enumerate())


async def _eventually(condition: Any) -> bool:
    for _ in range(200):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False
