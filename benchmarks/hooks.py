"""The cost of extension hooks: job types without hooks beside types with hooks, and a type with a guard and an effect.

    python -m benchmarks.hooks [--store postgres] [--only 'by 100'] [--quick]

The guard checks each request for a job, the effect writes a row for each job that completes. Ratios are to a process
without extensions. Exit status 1 says that a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.core import QUICK, Sizes
from benchmarks.databases import Database, Host, host
from benchmarks.implementations import TYPE, EngineCalls, Implementation
from benchmarks.measurement import Candidate, measure_in_turns
from benchmarks.operations import create, drain, empty, filled
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from holdfast.engine import Engine
from holdfast.engine.hooks.create import CreateRequest
from holdfast.engine.hooks.hooks import Hooks
from holdfast.errors import Refused
from holdfast.model import Job, JobType
from holdfast.store import Tx, open_store
from holdfast.store.queries import Query

LEDGER = "CREATE TABLE bench_ledger (job text PRIMARY KEY, state text NOT NULL)"
ADD = Query("add_entry", "INSERT INTO bench_ledger (job, state) VALUES (:job, :state)")
ALONE, BESIDE, HOOKED = "no extension", "hooks on others", "guard and effect"
TARGETS = {(BESIDE, "postgres"): 0.97, (BESIDE, "sqlite"): 0.97, (HOOKED, "postgres"): 0.6}


async def check(_tx: Tx, request: CreateRequest) -> None:
    if "to" not in request.job.payload:
        raise Refused("no recipient")


async def book(tx: Tx, _verb: str, job: Job) -> None:
    await tx.run(ADD, job=job.id, state=job.state.value)


def hooks_on(job_type: str) -> Hooks:
    hooks = Hooks()
    hooks.guard("bench", ["create"], [job_type], check)
    hooks.effect("bench", ["complete"], [job_type], book)
    return hooks


async def open_side(database: Database, name: str) -> EngineCalls:
    hooks = {ALONE: None, BESIDE: hooks_on("other"), HOOKED: hooks_on(TYPE)}[name]
    await database.run(LEDGER)
    engine = Engine(await open_store(database.url), hooks=hooks)
    await engine.job_types.declare(JobType(name=TYPE), JobType(name="other"))
    return await EngineCalls.over(database, engine, "bench_ledger")


@dataclass(frozen=True)
class Figure:
    name: str
    prepare: Callable[[Implementation], Awaitable[None]]
    run: Callable[[Implementation], Awaitable[int]]
    targets: dict[tuple[str, str], float] = field(default_factory=dict)


def figures(sizes: Sizes) -> list[Figure]:
    by_ten, by_hundred = sizes.tens, sizes.hundreds
    return [
        Figure("create one", empty, partial(create, calls=sizes.singles, by=1)),
        Figure("create 1,000", empty, partial(create, calls=1, by=1000), TARGETS),
        Figure(
            "claim+complete by 10",
            partial(filled, jobs=by_ten * sizes.slices),
            partial(drain, jobs=by_ten, by=10),
        ),
        Figure(
            "claim+complete by 100",
            partial(filled, jobs=by_hundred * sizes.slices),
            partial(drain, jobs=by_hundred, by=100),
            TARGETS,
        ),
    ]


async def measure_store(store: str, machine: Host, sizes: Sizes, only: str) -> list[dict[str, Any]]:
    results = []
    async with AsyncExitStack() as stack:
        sides: dict[str, EngineCalls] = {}
        for name in (ALONE, BESIDE, HOOKED):
            sides[name] = await open_side(await stack.enter_async_context(machine.fresh()), name)
            stack.push_async_callback(sides[name].close)
        for figure in figures(sizes):
            if only in figure.name:
                results += await measure_figure(store, figure, sides, sizes)
    rows = [[f"{one['figure']}: {one['side']}", *one["shown"]] for one in results]
    print_table(await machine.version(), ["", "jobs/s", "alone/s", "ratio", "target", "met"], rows)
    return results


async def measure_figure(
    store: str, figure: Figure, sides: dict[str, EngineCalls], sizes: Sizes
) -> list[dict[str, Any]]:
    candidates = [
        Candidate(name, side.database, partial(figure.prepare, side), partial(figure.run, side))
        for name, side in sides.items()
    ]
    scores = await measure_in_turns(f"{store}, {figure.name}", candidates, rounds=sizes.rounds, slices=sizes.slices)
    results = []
    for name in (BESIDE, HOOKED):
        ratio, target = scores[name].ratio_to(scores[ALONE]), figure.targets.get((name, store))
        met = None if target is None or sizes is QUICK else ratio >= target
        wanted = "" if target is None else f">= {target:.2f}"
        rates = [f"{scores[side].rate:,.0f}" for side in (name, ALONE)]
        shown = [*rates, f"{ratio:.2f}", wanted, {None: "", True: "yes", False: "NO"}[met]]
        told = {"figure": figure.name, "side": name, "ratio": round(ratio, 3), "target": target, "met": met}
        results.append({**told, "shown": shown, **rounds_of({side: scores[side] for side in (name, ALONE)})})
    return results


async def measure(options: argparse.Namespace) -> bool:
    """Whether every target was met."""
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = await measure_store(store, machine, QUICK if options.quick else Sizes(), options.only)
    write_results(options.results, "hooks", quick=options.quick, stores=stores)
    return all(figure["met"] is not False for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="NAME", help="figures whose name contains this")
    return 0 if asyncio.run(measure(parser.parse_args(words))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
