"""A lane drained to its end, and many workers on one database."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.budget.workers import drained
from benchmarks.databases import Host, PostgresHost
from benchmarks.growth.figures import Figure, Sizes
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import say
from benchmarks.operations import CREATE_MAX, drain

TENTHS = 10
LAST_TENTH = 0.85  # of the rate of the first
OF_THE_BEST = 0.9
COUNTS = (1, 2, 4, 8, 16)


async def one_lane(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    """On PostgreSQL with autovacuum and without; nothing vacuums a SQLite file."""
    if not isinstance(machine, PostgresHost):
        return [await _tenths(machine, sizes.drained, "one lane: last tenth of the first")]
    found = []
    for autovacuum in ("on", "off"):
        await machine.configure(f"autovacuum = {autovacuum}")
        found.append(
            await _tenths(machine, sizes.drained, f"one lane, autovacuum {autovacuum}: last tenth of the first")
        )
    await machine.configure("autovacuum = on")
    return found


async def _tenths(machine: Host, jobs: int, name: str) -> Figure:
    share = jobs // TENTHS // 100 * 100
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            for made in range(0, share * TENTHS, CREATE_MAX):
                await calls.create(min(CREATE_MAX, share * TENTHS - made))
            rates, micros = [], []
            for number in range(TENTHS):
                say(f"  {name}: tenth {number + 1}")
                before, began = await database.spent(), time.perf_counter()
                await drain(calls, jobs=share, by=100)
                rates.append(round(share / (time.perf_counter() - began)))
                spent = (await database.spent()).since(before).cpu_seconds
                micros.append(spent and round(1e6 * spent / share, 1))
        finally:
            await calls.close()
    details: dict[str, Any] = {"jobs": share * TENTHS, "jobs_per_second": rates, "cpu_micros": micros}
    return Figure(name, rates[-1] / rates[0], LAST_TENTH, True, details)


async def many_workers(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    counts = [*(count for count in COUNTS if count < sizes.workers), sizes.workers]
    rates: dict[int, int] = {}
    for count in counts:
        say(f"  {count} workers")
        found = await drained(machine, count, sizes.by_workers)
        rates[count] = int(found["jobs_per_second"] or 0)
    best = max(rates.values())
    name = f"{sizes.workers} workers, of the best number of them"
    return [Figure(name, rates[sizes.workers] / best, OF_THE_BEST, True, {"jobs_per_second": rates})]
