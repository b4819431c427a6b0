"""Claims beside a transaction that stays open: dead rows cannot be removed while it can see them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import asyncpg

from benchmarks.databases import Database, Host, PostgresDatabase, SqliteDatabase
from benchmarks.growth.figures import Figure, Sizes, percentile, timed
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import say

P99_MAX = 5.0  # times that before the snapshot
BATCH = 10
BEFORE = 0.05  # of the time, at least a second
LAST = 0.1  # of the claims beside the snapshot


async def pinned_snapshot(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            say("  claims before the snapshot")
            before = await _paced(calls, max(1.0, sizes.pinned_seconds * BEFORE), sizes.paced)
            async with _pinned(database):
                say(f"  claims beside a snapshot of {sizes.pinned_seconds:.0f} s")
                beside = await _paced(calls, sizes.pinned_seconds, sizes.paced)
        finally:
            await calls.close()
    last = beside[-max(1, int(len(beside) * LAST)) :]
    figures = {"before_p99_ms": percentile(before, 0.99), "last_p99_ms": percentile(last, 0.99)}
    details = {"jobs": len(beside) * BATCH, **{key: round(value, 3) for key, value in figures.items()}}
    return [
        Figure(
            "pinned snapshot: claim p99, times that before",
            figures["last_p99_ms"] / figures["before_p99_ms"],
            P99_MAX,
            details=details,
        )
    ]


async def _paced(calls: EngineCalls, seconds: float, jobs_per_second: int) -> list[float]:
    """Milliseconds of each claim; jobs are created, claimed and completed at this pace, as far as it can be kept."""
    taken: list[float] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        await calls.create(BATCH)
        milliseconds, leases = await timed(lambda: calls.claim(BATCH))
        taken.append(milliseconds)
        await calls.complete(leases)
        await asyncio.sleep(max(0.0, len(taken) * BATCH / jobs_per_second - passed))
    return taken


@asynccontextmanager
async def _pinned(database: Database) -> AsyncIterator[None]:
    if isinstance(database, PostgresDatabase):
        connection = await asyncpg.connect(database.url)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.fetchval("SELECT count(*) FROM holdfast_lanes")
                yield
        finally:
            await connection.close()
    else:
        assert isinstance(database, SqliteDatabase)
        with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM holdfast_lanes").fetchone()
            yield
