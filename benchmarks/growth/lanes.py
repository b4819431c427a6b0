"""The cost of a claim with one lane and with many, of local and remote workers; and with many keys of a limit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.databases import Database, Host
from benchmarks.growth.figures import Figure, Sizes, timed
from benchmarks.implementations import PAYLOAD, TYPE, EngineCalls
from benchmarks.measurement import say
from benchmarks.operations import CREATE_MAX
from benchmarks.remote import SECRET, served
from holdfast.client.client import Client
from holdfast.model import NewJob
from holdfast.model.limits import Limit

LANES_MAX = 1.5  # times the cost with one lane
KEYS_MAX = 1.3
WITHOUT_LIMITS_MAX = 1.05
TURNS, BY_CLAIM = 5, 100
KEYS = "limit keys"
PER_KEY = Limit(concurrency=1_000_000)  # counted at each claim, and never reached
BY: dict[str, Callable[[int], dict[str, Any]]] = {
    "tenants": lambda number: {"tenant": f"tenant-{number}"},
    "queues": lambda number: {"queue": f"queue-{number}"},
    KEYS: lambda number: {"limit_key": f"key-{number}"},
}


class Cost(NamedTuple):
    """The median time of a claim, which counts, and its CPU time in the database (on SQLite in this process)."""

    milliseconds: float
    cpu_micros: float | None


Claim = Callable[[], Awaitable[list[Any]]]


async def many_lanes(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    found: list[Figure] = []
    one = await _costs(machine, sizes, lanes=1, by="tenants")
    for by in ("tenants", "queues"):
        many = await _costs(machine, sizes, lanes=sizes.lanes, by=by)
        found += _compared(f"{sizes.lanes:,} {by}", "lane", many, one, LANES_MAX)
    return found


async def limit_keys(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    """Jobs of as many limit keys as `sizes.lanes`, beside as many jobs of one key."""
    one = await _costs(machine, sizes, lanes=1, by=KEYS)
    many = await _costs(machine, sizes, lanes=sizes.lanes, by=KEYS)
    compared = _compared(f"{sizes.lanes:,} {KEYS}", "key", many, one, KEYS_MAX)
    return [*compared, await _beside_a_limited_type(machine, sizes)]


async def _beside_a_limited_type(machine: Host, sizes: Sizes) -> Figure:
    """Claims by 100 of a type without limits, in turns with and without a limit on another type."""
    times, costs = max(1, sizes.claims // 10), dict[bool, list[Cost]]({True: [], False: []})
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            await _fill(calls, 1, "queues", least=BY_CLAIM * times * TURNS * 2)
            for limited in (True, False) * TURNS:
                await calls.engine.job_limits.set("type:another", Limit(concurrency=1) if limited else None, by="bench")
                costs[limited].append(await _cost(database, lambda: calls.claim(BY_CLAIM), times, BY_CLAIM))
        finally:
            await calls.close()
    best = {limited: min(costs[limited]) for limited in costs}
    return Figure(
        "no limits, beside a limited type: claim by 100, times alone",
        best[True].milliseconds / best[False].milliseconds,
        WITHOUT_LIMITS_MAX,
        details={"beside": best[True]._asdict(), "alone": best[False]._asdict()},
    )


def _compared(what: str, each: str, many: dict[str, Cost], one: dict[str, Cost], most: float) -> list[Figure]:
    return [
        Figure(
            f"{what}, {case}: claim, times one {each}",
            cost.milliseconds / one[case].milliseconds,
            most,
            details={"with_many": cost._asdict(), "with_one": one[case]._asdict()},
        )
        for case, cost in many.items()
    ]


async def _costs(machine: Host, sizes: Sizes, *, lanes: int, by: str) -> dict[str, Cost]:
    """Of a claim: where jobs wait in every lane, and after all were canceled."""
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            if by == KEYS:
                await calls.engine.job_limits.set(f"key:{TYPE}", PER_KEY, by="benchmark")
            say(f"  {lanes:,} lanes by {by}: creating")
            await _fill(calls, lanes, by, least=4 * sizes.claims)
            await database.settle(*calls.tables, "holdfast_lanes")
            async with _ways(calls) as ways:
                costs = {
                    f"{way}, jobs waiting": await _cost(database, claim, sizes.claims, 1) for way, claim in ways.items()
                }
                say(f"  {lanes:,} lanes by {by}: canceling")
                await calls.engine.bench.cancel_waiting(TYPE)
                costs |= {
                    f"{way}, all canceled": await _cost(database, claim, sizes.claims, 0) for way, claim in ways.items()
                }
        finally:
            await calls.close()
    return costs


async def _fill(calls: EngineCalls, lanes: int, by: str, *, least: int) -> None:
    """A job in each lane, and at least so many in all."""
    jobs = [NewJob(type=TYPE, payload=PAYLOAD, **BY[by](number % lanes)) for number in range(max(lanes, least))]
    began = time.monotonic()
    for start in range(0, len(jobs), CREATE_MAX):
        await calls.engine.create_many(jobs[start : start + CREATE_MAX])
        say(f"  {lanes:,} lanes by {by}: {start:,} jobs after {time.monotonic() - began:.0f} s")


@asynccontextmanager
async def _ways(calls: EngineCalls) -> AsyncIterator[dict[str, Claim]]:
    """One job, by a worker on the database and by one over HTTP."""
    with served(calls.database.url) as url:
        async with Client(url) as unregistered:
            key = (await unregistered.register(SECRET, name="bench")).api_key
        async with Client(url, key) as remote:
            yield {"local": lambda: calls.claim(1), "remote": lambda: remote.claim(job_types=[TYPE], limit=1)}


async def _cost(database: Database, claim: Claim, times: int, expected: int) -> Cost:
    taken, before = [], await database.spent()
    for _ in range(times):
        milliseconds, leases = await timed(claim)
        assert len(leases) == expected, f"{len(leases)} jobs claimed instead of {expected}"
        taken.append(milliseconds)
    spent = (await database.spent()).since(before).cpu_seconds
    return Cost(round(median(taken), 3), None if spent is None else round(1e6 * spent / times, 1))
