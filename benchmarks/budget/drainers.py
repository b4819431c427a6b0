"""What claim and complete cost in PostgreSQL beside one and two processes, without a worker around them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.budget.drainer import WARM_BATCHES
from benchmarks.databases import PostgresHost
from benchmarks.implementations import EngineCalls
from benchmarks.operations import filled
from benchmarks.report import ROOT

PROCESSES = (1, 2)
WAIT_SECONDS = 120.0


async def beside_processes(machine: PostgresHost, *, by_100: int, by_1: int, rounds: int) -> list[dict[str, Any]]:
    """By 100 and one by one; the least CPU time of all rounds, in which the numbers of processes take turns."""
    found = []
    for by, jobs in ((100, by_100), (1, by_1)):
        taken: dict[int, list[dict[str, Any]]] = {count: [] for count in PROCESSES}
        for _ in range(rounds):
            for count in PROCESSES:
                taken[count].append(await _drained(machine, count, by, jobs))
        for count, each in taken.items():
            found.append({"by": by, "processes": count, **min(each, key=lambda one: one["cpu_micros"] or 0.0)})
    return found


async def _drained(machine: PostgresHost, processes: int, by: int, jobs: int) -> dict[str, Any]:
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        await filled(calls, jobs=jobs + processes * WARM_BATCHES * by)
        await calls.close()
        drainers = [await _start(database.url, by) for _ in range(processes)]
        try:
            for drainer in drainers:
                assert await _line(drainer) == "ready"
            before = await database.spent()
            for drainer in drainers:
                _tell(drainer)
            done = sum([int(await _line(drainer)) for drainer in drainers])
            spent = (await database.spent()).since(before)
        finally:
            for drainer in drainers:
                if drainer.returncode is None:
                    drainer.terminate()
                await drainer.wait()
    assert done == jobs, f"{done} jobs drained instead of {jobs}"
    return {
        "cpu_micros": spent.cpu_seconds and round(1e6 * spent.cpu_seconds / jobs, 2),
        "wal_bytes": spent.wal_bytes and round(spent.wal_bytes / jobs),
    }


async def _start(url: str, by: int) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "benchmarks.budget.drainer", url, str(by))
    return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, cwd=ROOT)


async def _line(drainer: asyncio.subprocess.Process) -> str:
    assert drainer.stdout
    line = await asyncio.wait_for(drainer.stdout.readline(), WAIT_SECONDS)
    if not line:
        raise RuntimeError(f"a drainer ended with status {await drainer.wait()}")
    return line.decode().strip()


def _tell(drainer: asyncio.subprocess.Process) -> None:
    assert drainer.stdin
    drainer.stdin.write(b"\n")
