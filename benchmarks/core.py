"""The core verbs on both stores, relative to hand-written SQL, and beside backlogs of other jobs.

    python -m benchmarks.core [--store sqlite] [--only 'by 100'] [--quick]

Each figure is the median of 5 rounds in which the sides take turns. Exit status 1 says that a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.backlogs import Backlog, backlogs
from benchmarks.databases import Host, host
from benchmarks.implementations import REAP_BATCH, EngineCalls, Implementation, raw_side
from benchmarks.measurement import Candidate, Score, measure_in_turns, say
from benchmarks.operations import abandoned, beat, create, drain, empty, fill, filled, holding, reap
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results


@dataclass(frozen=True)
class Sizes:
    """Of one slice; a round has `slices` of them."""

    rounds: int = 5
    slices: int = 10
    singles: int = 30  # jobs created or drained one by one
    tens: int = 200
    hundreds: int = 1000
    million: int = 1_000_000


QUICK = Sizes(rounds=1, slices=1, singles=5, tens=20, hundreds=200, million=2000)


@dataclass(frozen=True)
class Figure:
    """`prepare` and `run` are the same for both implementations; targets are shares of the plain SQL rate."""

    name: str
    prepare: Callable[[Implementation], Awaitable[None]]
    run: Callable[[Implementation], Awaitable[int]]
    targets: dict[str, float] = field(default_factory=dict)


def figures(sizes: Sizes) -> list[Figure]:
    lost = REAP_BATCH * sizes.slices
    return [
        Figure("create one", empty, partial(create, calls=sizes.singles, by=1)),
        Figure("create 1,000", empty, partial(create, calls=1, by=1000), {"postgres": 0.5}),
        _drain(sizes, sizes.singles, by=1),
        _drain(sizes, sizes.tens, by=10),
        _drain(sizes, sizes.hundreds, by=100, targets={"postgres": 0.6, "sqlite": 0.4}),
        Figure("heartbeat of 1,000", partial(holding, jobs=1000), beat),
        Figure(f"reap of {lost:,}", partial(abandoned, jobs=lost), reap),
    ]


def _drain(sizes: Sizes, jobs: int, *, by: int, targets: dict[str, float] | None = None) -> Figure:
    prepare, run = partial(filled, jobs=jobs * sizes.slices), partial(drain, jobs=jobs, by=by)
    return Figure(f"claim+complete by {by}", prepare, run, targets or {})


BESIDE_TARGETS = {"postgres": 0.85}  # of the rate on an empty table


# -- one store -----------------------------------------------------------------------------------------------------


class Measuring:
    def __init__(self, store: str, machine: Host, sizes: Sizes, only: str) -> None:
        self.store = store
        self.results: list[dict[str, Any]] = []
        self._host = machine
        self._sizes = sizes
        self._only = only

    async def all(self) -> None:
        version = await self._host.version()
        chosen = [figure for figure in figures(self._sizes) if self._only in figure.name]
        rows = await self._against_raw(chosen) if chosen else []
        print_table(version, ["", "ours/s", "raw/s", "ratio", "target", "met"], rows)
        beside = [backlog for backlog in backlogs(self._sizes.million) if self._only in _beside(backlog)]
        if beside:
            rows = [await self._beside(backlog) for backlog in beside]
            header = ["claim+complete by 100", "beside/s", "empty/s", "ratio", "target", "met"]
            print_table(f"{version}: beside backlogs, of the rate on an empty table", header, rows)

    async def _against_raw(self, chosen: list[Figure]) -> list[list[str]]:
        # A separate database for each, so that WAL and dead rows of one do not slow the other.
        async with self._host.fresh() as database, self._host.fresh() as other:
            ours, raw = await EngineCalls.open(database), raw_side(other)
            await raw.prepare()
            try:
                return [await self._figure(figure, ours, raw) for figure in chosen]
            finally:
                await ours.close()

    async def _figure(self, figure: Figure, ours: Implementation, raw: Implementation) -> list[str]:
        candidates = [
            Candidate(name, side.database, partial(figure.prepare, side), partial(figure.run, side))
            for name, side in (("ours", ours), ("raw", raw))
        ]
        scores = await measure_in_turns(
            f"{self.store}, {figure.name}", candidates, rounds=self._sizes.rounds, slices=self._sizes.slices
        )
        return self._row(figure.name, scores, "ours", "raw", figure.targets.get(self.store))

    async def _beside(self, backlog: Backlog) -> list[str]:
        jobs = self._sizes.hundreds * self._sizes.slices
        async with AsyncExitStack() as stack:
            sides = {}
            for name in ("beside", "empty"):
                sides[name] = await EngineCalls.open(await stack.enter_async_context(self._host.fresh()))
                stack.push_async_callback(sides[name].close)
            say(f"  {self.store}: gathering {backlog.name}")
            await backlog.load(sides["beside"])
            candidates = [
                Candidate(
                    name,
                    side.database,
                    partial(fill, side, jobs=jobs, priority=1),
                    partial(drain, side, jobs=self._sizes.hundreds, by=100),
                )
                for name, side in sides.items()
            ]
            scores = await measure_in_turns(
                f"{self.store}, {_beside(backlog)}", candidates, rounds=self._sizes.rounds, slices=self._sizes.slices
            )
        return self._row(_beside(backlog), scores, "beside", "empty", BESIDE_TARGETS.get(self.store))

    def _row(self, name: str, scores: dict[str, Score], mine: str, other: str, target: float | None) -> list[str]:
        ratio = scores[mine].ratio_to(scores[other])
        met = None if target is None or self._sizes is QUICK else ratio >= target
        self.results.append(
            {"figure": name, "ratio": round(ratio, 3), "target": target, "met": met, **rounds_of(scores)}
        )
        return [
            name,
            *(f"{scores[side].rate:,.0f}" for side in (mine, other)),
            f"{ratio:.2f}",
            "" if target is None else f">= {target:.2f}",
            {None: "", True: "yes", False: "NO"}[met],
        ]


def _beside(backlog: Backlog) -> str:
    return f"beside {backlog.name}"


async def measure(options: argparse.Namespace) -> bool:
    """Whether every target was met."""
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            measuring = Measuring(store, machine, QUICK if options.quick else Sizes(), options.only)
            await measuring.all()
        stores[store] = measuring.results
    write_results(options.results, "core", quick=options.quick, stores=stores)
    return all(figure["met"] is not False for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="NAME", help="figures whose name contains this")
    return 0 if asyncio.run(measure(parser.parse_args(words))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
