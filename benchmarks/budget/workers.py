"""The CPU time of a drained job in real worker processes and, on PostgreSQL, in the database beside them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.budget.counter import VARIABLE, Counter
from benchmarks.databases import Database, Host, cpu_seconds
from benchmarks.implementations import EngineCalls
from benchmarks.operations import fill, filled
from benchmarks.report import ROOT

SLOTS = 100
WARM_JOBS = 500
WAIT_SECONDS = 120.0
START_SECONDS = 5.0  # of a process among many
_WORKERS = "SELECT count(*) FROM holdfast_workers"
_OPEN = "SELECT 1 FROM holdfast_jobs WHERE finished_at IS NULL LIMIT 1"


@dataclass(frozen=True)
class WorkerProcess:
    """`holdfast worker`, and what it has done."""

    process: asyncio.subprocess.Process
    database: Database
    counter: Counter

    async def until_done(self, jobs: int) -> None:
        """Until it has run so many jobs, and the database knows that all are done. A query that looks for open jobs
        takes CPU time of the database, so it comes last."""

        async def ran() -> bool:
            return self.counter.total() >= jobs

        async def done() -> bool:
            return not await self.database.rows(_OPEN)

        for reached in (ran, done):
            await self.until(reached, "the worker does not drain its queue")

    async def until(
        self, reached: Callable[[], Awaitable[bool]], otherwise: str, seconds: float = WAIT_SECONDS
    ) -> None:
        deadline = time.monotonic() + seconds
        while not await reached():
            if self.process.returncode is not None:
                raise RuntimeError(f"the worker ended with status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(otherwise)
            await asyncio.sleep(0.02)

    def cpu_seconds(self) -> float:
        """With all its children."""
        return _family_seconds(self.process.pid)


async def drained(machine: Host, processes: int, jobs: int) -> dict[str, float | None]:
    """Microseconds of CPU for each job. The workers are warm: their connections are open and their statements planned,
    which takes longer than some thousand jobs. The queue is paused until all jobs are there."""
    warm = WARM_JOBS * processes
    async with (
        machine.fresh() as database,
        _filled(database, WARM_JOBS) as calls,
        worker_process(database, processes=processes) as worker,
    ):
        await worker.until_done(WARM_JOBS)
        await fill(calls, jobs=warm)
        await worker.until_done(WARM_JOBS + warm)
        await calls.engine.queues.pause("default")
        await filled(calls, jobs=jobs)
        before, at_first = await database.spent(), worker.cpu_seconds()
        began = time.perf_counter()
        await calls.engine.queues.resume("default")
        await worker.until_done(WARM_JOBS + warm + jobs)
        seconds = time.perf_counter() - began
        spent, in_worker = (await database.spent()).since(before), worker.cpu_seconds() - at_first
    return {
        "worker_micros": round(1e6 * in_worker / jobs, 2),
        "store_micros": _store_micros(database, spent.cpu_seconds, jobs),
        "wal_bytes": spent.wal_bytes and round(spent.wal_bytes / jobs),
        "jobs_per_second": round(jobs / seconds),
    }


@asynccontextmanager
async def worker_process(database: Database, *, processes: int) -> AsyncIterator[WorkerProcess]:
    """With this many processes, when all of them are registered."""
    before = (await database.rows(_WORKERS))[0][0]
    command = [_program("holdfast"), "worker", "--app", "benchmarks.budget.jobs:app"]
    command += ["--concurrency", str(SLOTS), "--processes", str(processes)]

    async def registered() -> bool:
        return bool((await database.rows(_WORKERS))[0][0] >= before + processes)

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "counter"
        counter = Counter(path)
        async with _running(command, database, {VARIABLE: str(path)}) as process:
            worker = WorkerProcess(process, database, counter)
            await worker.until(registered, "the workers do not register", WAIT_SECONDS + START_SECONDS * processes)
            yield worker


def _store_micros(database: Database, seconds: float | None, jobs: int) -> float | None:
    """On SQLite the database is a part of the worker."""
    return None if seconds is None or database.dialect == "sqlite" else round(1e6 * seconds / jobs, 2)


async def profiled(machine: Host, jobs: int) -> list[dict[str, Any]]:
    """How one worker process divides its time: a share for each module, largest first."""
    async with machine.fresh() as database, _filled(database, jobs):
        command = [sys.executable, "-m", "benchmarks.budget.profiled_worker", database.url, str(jobs)]
        async with _running(command, database, stdout=asyncio.subprocess.PIPE) as process:
            assert process.stdout
            line = await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS)
    return list(json.loads(line))


async def syncs(machine: Host, jobs: int) -> float | None:
    """Calls of fsync and fdatasync for each job, those of the start and the end included; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    async with machine.fresh() as database, _filled(database, jobs):
        counts = Path(database.url.removeprefix("sqlite:///") + ".strace")
        command = [strace, "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(counts)]
        command += [sys.executable, "-m", "benchmarks.budget.profiled_worker", database.url, str(jobs)]
        async with _running(command, database, stdout=asyncio.subprocess.DEVNULL) as process:
            await asyncio.wait_for(process.wait(), WAIT_SECONDS)
        calls = _sync_calls(counts)
    return round(calls / jobs, 4)


def _sync_calls(counts: Path) -> int:
    """Of the table that `strace -c` leaves."""
    found = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s.*sync$", counts.read_text(), re.MULTILINE)
    return sum(map(int, found))


@asynccontextmanager
async def _filled(database: Database, jobs: int) -> AsyncIterator[EngineCalls]:
    calls = await EngineCalls.open(database)
    try:
        await filled(calls, jobs=jobs)
        yield calls
    finally:
        await calls.close()


@asynccontextmanager
async def _running(
    command: list[str], database: Database, variables: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    environ = {**os.environ, "HOLDFAST_DATABASE_URL": database.url, **(variables or {})}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _family_seconds(pid: int) -> float:
    """Of a process and its descendants."""
    return (cpu_seconds([pid]) or 0.0) + sum(map(_family_seconds, _children(pid)))


def _children(pid: int) -> list[int]:
    try:
        files = [thread / "children" for thread in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for file in files for child in file.read_text().split()]
    except OSError:
        return []


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)
