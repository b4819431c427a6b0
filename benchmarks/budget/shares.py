"""What one job costs in the database, in all and for each part that was taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.budget.parts import Part, Side, parts_of, sides
from benchmarks.databases import Host
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import Candidate, Round, measure_in_turns
from benchmarks.operations import create, drain, empty, filled

WHOLE = Part("all")


@dataclass(frozen=True)
class Sizes:
    rounds: int = 3
    slices: int = 3
    hundreds: int = 1000  # jobs of a slice, drained by 100
    singles: int = 60  # created or drained one by one
    round_trips: int = 1000
    worker: int = 10_000  # jobs that a worker drains, twice


QUICK = Sizes(rounds=1, slices=1, hundreds=200, singles=5, round_trips=20, worker=200)


@dataclass(frozen=True)
class Operation:
    name: str
    prepare: Callable[[EngineCalls], Awaitable[None]]
    run: Callable[[EngineCalls], Awaitable[int]]


def operations(sizes: Sizes) -> list[Operation]:
    slices = sizes.slices
    return [
        Operation(
            "claim+complete by 100",
            partial(filled, jobs=sizes.hundreds * slices),
            partial(drain, jobs=sizes.hundreds, by=100),
        ),
        Operation(
            "claim+complete by 1",
            partial(filled, jobs=sizes.singles * slices),
            partial(drain, jobs=sizes.singles, by=1),
        ),
        Operation("create one", empty, partial(create, calls=sizes.singles, by=1)),
        Operation("create 1,000", empty, partial(create, calls=1, by=1000)),
    ]


async def shares(machine: Host, sizes: Sizes) -> dict[str, Any]:
    """For each operation the cost of a job and the share of each part; CPU is of the quietest round."""
    async with sides(machine, [WHOLE, *await parts_of(machine)]) as (found, refused):
        costs = {
            operation.name: await _costs(operation, found, rounds=sizes.rounds, slices=sizes.slices)
            for operation in operations(sizes)
        }
    return {
        "operations": {name: {"all": each.pop(WHOLE.name), "without": each} for name, each in costs.items()},
        "within": [side.part.name for side in found if side.part.within],
        "not_taken_away": refused,
    }


async def _costs(operation: Operation, found: list[Side], *, rounds: int, slices: int) -> dict[str, Any]:
    candidates = [_candidate(operation, side) for side in found]
    scores = await measure_in_turns(operation.name, candidates, rounds=rounds, slices=slices)
    return {name: cost(score.rounds) for name, score in scores.items()}


def _candidate(operation: Operation, side: Side) -> Candidate:
    async def prepare() -> None:
        with side.active() as calls:
            await operation.prepare(calls)

    async def run() -> int:
        with side.active() as calls:
            return await operation.run(calls)

    return Candidate(side.part.name, side.calls.database, prepare, run)


def cost(rounds: list[Round]) -> dict[str, float | None]:
    """For each job. Other load makes CPU time longer and never shorter, so the least is the truest."""
    cpu = [1e6 * taken.cpu_seconds / taken.units for taken in rounds if taken.cpu_seconds is not None]
    wal = [taken.wal_bytes / taken.units for taken in rounds if taken.wal_bytes is not None]
    return {
        "cpu_micros": round(min(cpu), 2) if cpu else None,
        "wal_bytes": round(min(wal)) if wal else None,
        "micros": round(min(1e6 * taken.seconds / taken.units for taken in rounds), 2),
    }


def rows(found: dict[str, Any], key: str) -> list[list[str]]:
    """A line for the whole, for each part (what is saved without it), and for the rest."""
    ways = found["operations"]
    parts = list(next(iter(ways.values()))["without"])
    saved = {
        part: {name: _less(each["all"][key], each["without"][part][key]) for name, each in ways.items()}
        for part in parts
    }
    apart = [part for part in parts if part not in found["within"]]
    rest = {
        name: _less(each["all"][key], sum(saved[part][name] or 0.0 for part in apart)) for name, each in ways.items()
    }
    named = {("  of that, " if part in found["within"] else "") + part: figures for part, figures in saved.items()}
    lines = {"all": {name: each["all"][key] for name, each in ways.items()}, **named, "the rest": rest}
    return [[title, *(_shown(line[name]) for name in ways)] for title, line in lines.items()]


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part


def _shown(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.1f}"
