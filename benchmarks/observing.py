"""What it costs to be seen: how fast a worker drains a queue with its metrics fed, beside one that is not looked at.

    python -m benchmarks.observing [--store postgres] [--quick]

Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from benchmarks.databases import Host, host
from benchmarks.remote import app, left, on_the_database
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from benchmarks.rounds import Contestant, Score, race
from benchmarks.sides import Ours
from benchmarks.work import filled
from holdfast.running import measure
from holdfast.worker.figures import Figures
from holdfast.worker.runtime import Plan, Worker
from holdfast.worker.source import Source

TARGET = 0.97  # of the rate of a worker that feeds no metrics
SLOTS = 100


async def drain(source: Source, figures: Figures | None, *, jobs: int) -> int:
    left.begin(jobs)
    worker = Worker(source, app.handlers, plan=Plan(concurrency=SLOTS, kept=False), figures=figures)
    running = asyncio.create_task(worker.run())
    await left.none.wait()
    worker.stop()
    await running
    return jobs


async def in_turns(store: str, contestants: list[Contestant], rounds: int) -> dict[str, Score]:
    """A drain cannot be cut into slices, so it is whole rounds in which now one and now the other is first."""
    scores = {contestant.name: Score() for contestant in contestants}
    for number in range(rounds + 1):
        order = contestants[:: -1 if number % 2 else 1]
        taken = await race(f"{store}, {number} of {rounds}", order, rounds=1, slices=1)
        if number:  # after one to warm up
            for name, score in scores.items():
                score.rounds += taken[name].rounds
    return scores


async def draining(store: str, machine: Host, *, rounds: int, jobs: int) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        contestants = []
        for name, figures in (("metrics", Figures(sorted(app.handlers))), ("nothing", None)):
            ours = await Ours.open(await stack.enter_async_context(machine.fresh()))
            stack.push_async_callback(ours.close)
            source = await stack.enter_async_context(on_the_database(ours))
            if figures is not None:
                measure(ours.engine, figures)
            prepare = partial(filled, ours, jobs=jobs)
            contestants.append(Contestant(name, ours.database, prepare, partial(drain, source, figures, jobs=jobs)))
        scores = await in_turns(store, contestants, rounds)
    ratio = scores["metrics"].ratio_to(scores["nothing"])
    rates = [f"{scores[name].rate:,.0f}" for name in ("metrics", "nothing")]
    header = ["drained", "with metrics/s", "without/s", "ratio", "target"]
    print_table(await machine.version(), header, [[f"{SLOTS} slots", *rates, f"{ratio:.3f}", f">= {TARGET}"]])
    return [{"figure": "drain, with metrics", "ratio": round(ratio, 3), "met": ratio >= TARGET, **rounds_of(scores)}]


async def compare(options: argparse.Namespace) -> bool:
    sizes = {"rounds": 1, "jobs": 200} if options.quick else {"rounds": 30, "jobs": 5000}
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = await draining(store, machine, **sizes)
    write_results(options.results, "observing", quick=options.quick, stores=stores)
    return options.quick or all(figure["met"] for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    return 0 if asyncio.run(compare(options)) else 1


if __name__ == "__main__":
    sys.exit(main())
