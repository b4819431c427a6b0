"""Jobs in and out with retention on: tables and indexes stop growing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.databases import Database, Host, PostgresDatabase, PostgresHost, SqliteDatabase
from benchmarks.growth.figures import Figure, Sizes
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import say
from benchmarks.operations import CREATE_MAX, drain
from holdfast.engine import Retention
from holdfast.maintenance.maintainer import PRUNE_ROUNDS, Maintainer

GROWTH_MAX = 1.3  # largest size of the second half, times the largest of the first
SMALL_BYTES = 256 << 10  # a difference that may be a few pages
SAMPLES = 20
AUTOVACUUM_JOBS = 100_000  # between two samples; autovacuum does not come in time for fewer, so they are vacuumed
SQLITE_SHARE = 0.1  # of the jobs: one process alone drains it
AT_ONCE = Retention(succeeded=0, dead=0, canceled=0, rejected=0, attempts=0)


async def in_and_out(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    if isinstance(machine, PostgresHost):
        await machine.configure("autovacuum = on", "autovacuum_naptime = '15s'")
    jobs = int(sizes.through * (1.0 if isinstance(machine, PostgresHost) else SQLITE_SHARE))
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            sampled = await _through(calls, jobs)
        finally:
            await calls.close()
    totals = [sum(each.values()) for each in sampled]
    details = {"jobs": jobs, "bytes": totals, "growing": growing(sampled), "at_the_end": _largest(sampled[-1])}
    return [
        Figure("in and out: size of the second half, times the first", _growth(totals), GROWTH_MAX, details=details)
    ]


def growing(sampled: list[dict[str, int]]) -> list[str]:
    """The tables and indexes that still grow in the second half."""
    series = {name: [each.get(name, 0) for each in sampled] for name in sampled[-1]}
    return [
        name
        for name, sizes in series.items()
        if max(sizes) - max(sizes[: len(sizes) // 2]) >= SMALL_BYTES and _growth(sizes) > GROWTH_MAX
    ]


def _growth(sizes: list[int]) -> float:
    half = len(sizes) // 2
    return max(sizes[half:]) / max(*sizes[:half], 1)


def _largest(sizes: dict[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:8])


async def _through(calls: EngineCalls, jobs: int) -> list[dict[str, int]]:
    """The bytes of each table and index, after each share of the jobs."""
    batch = min(CREATE_MAX, max(100, jobs // SAMPLES // 100 * 100))
    step = max(batch, jobs // SAMPLES // batch * batch)
    engine, sampled = calls.engine, []
    maintainer = Maintainer(engine, engine.clock, engine.ids, every=1.0, retention=AT_ONCE)
    for number in range(SAMPLES):
        say(f"  in and out: {number * step:,} of {SAMPLES * step:,}")
        for _ in range(step // batch):
            await calls.create(batch)
            await drain(calls, jobs=batch, by=100)
            await _maintain(maintainer)
        if step < AUTOVACUUM_JOBS:
            await calls.database.settle(*calls.tables)
        sampled.append(await sizes_of(calls.database))
    return sampled


async def _maintain(maintainer: Maintainer) -> None:
    """As every process does; not each round prunes."""
    for _ in range(PRUNE_ROUNDS):
        while await maintainer.sweep():
            continue


async def sizes_of(database: Database) -> dict[str, int]:
    if isinstance(database, PostgresDatabase):
        found: list[Any] = await database.rows("""
            SELECT relname, pg_relation_size(oid) + CASE WHEN reltoastrelid = 0 THEN 0
                   ELSE pg_total_relation_size(reltoastrelid) END AS bytes
              FROM pg_class WHERE relname LIKE 'holdfast\\_%' AND relkind IN ('r', 'i')""")
        return {row["relname"]: row["bytes"] for row in found}
    assert isinstance(database, SqliteDatabase)
    return {"file": database.path.stat().st_size, "wal": _size(Path(f"{database.path}-wal"))}


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
