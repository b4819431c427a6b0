"""Comparable rates on a machine with other load.

A round is cut into slices, candidates take turns slice by slice, and what counts is the median of the rounds. A ratio
is the median of the ratios within each round, where both candidates had the same disturbances.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from benchmarks.databases import Database

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """`prepare`, once a round, is not timed; `run` does a slice, and answers how many units of work that was."""

    name: str
    database: Database
    prepare: Callable[[], Awaitable[None]]
    run: Callable[[], Awaitable[int]]


@dataclass
class Round:
    units: int = 0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    wal_bytes: int | None = None

    @property
    def rate(self) -> float:
        return self.units / self.seconds


@dataclass
class Score:
    rounds: list[Round] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(taken.rate for taken in self.rounds)

    def ratio_to(self, other: Score) -> float:
        return median(mine.rate / its.rate for mine, its in zip(self.rounds, other.rounds, strict=True))

    @property
    def micros(self) -> float:
        """Per unit."""
        return 1e6 / self.rate

    @property
    def cpu_micros(self) -> float | None:
        """Per unit, of the database alone on PostgreSQL, of the whole process on SQLite."""
        known = [1e6 * taken.cpu_seconds / taken.units for taken in self.rounds if taken.cpu_seconds is not None]
        return median(known) if known else None

    @property
    def wal_bytes(self) -> float | None:
        """Per unit."""
        known = [taken.wal_bytes / taken.units for taken in self.rounds if taken.wal_bytes is not None]
        return median(known) if known else None


async def measure_in_turns(title: str, candidates: list[Candidate], *, rounds: int, slices: int) -> dict[str, Score]:
    """Measure the candidates in alternating slices; a first round to warm up does not count."""
    scores = {candidate.name: Score() for candidate in candidates}
    warm_up = rounds > 1
    for number in range(rounds + warm_up):
        counts = number >= warm_up
        say(f"  {title}: " + (f"round {number + 1 - warm_up} of {rounds}" if counts else "warming up"))
        taken = await _round(candidates, slices)
        if counts:
            for name, score in scores.items():
                score.rounds.append(taken[name])
    return scores


async def one_by_one(title: str, candidates: list[Candidate], rounds: int) -> dict[str, Score]:
    """For work that cannot be cut into slices: each candidate runs alone, in rotating order."""
    scores = {candidate.name: Score() for candidate in candidates}
    for number in range(rounds + 1):
        for candidate in turned(candidates, number):
            taken = await measure_in_turns(
                f"{title}, {candidate.name}, {number} of {rounds}", [candidate], rounds=1, slices=1
            )
            if number:  # after one to warm up
                scores[candidate.name].rounds += taken[candidate.name].rounds
    return scores


def turned(items: list[T], number: int) -> list[T]:
    first = number % len(items)
    return items[first:] + items[:first]


async def _round(candidates: list[Candidate], slices: int) -> dict[str, Round]:
    taken = {candidate.name: Round() for candidate in candidates}
    for candidate in candidates:
        await candidate.prepare()
    gc.collect()
    for number in range(slices):
        for candidate in candidates[:: -1 if number % 2 else 1]:  # each is equally often first and last
            await _time_slice(candidate, taken[candidate.name])
    return taken


async def _time_slice(candidate: Candidate, taken: Round) -> None:
    before = await candidate.database.spent()
    begin = time.perf_counter()
    taken.units += await candidate.run()
    taken.seconds += time.perf_counter() - begin
    spent = (await candidate.database.spent()).since(before)
    if spent.cpu_seconds is not None:
        taken.cpu_seconds = (taken.cpu_seconds or 0.0) + spent.cpu_seconds
    if spent.wal_bytes is not None:
        taken.wal_bytes = (taken.wal_bytes or 0) + spent.wal_bytes


def say(text: str) -> None:
    """Progress goes to stderr: on a terminal one line that changes."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)
