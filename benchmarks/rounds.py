"""Rates that can be compared on a machine that also does other things.

A round is cut into slices, contestants take turns slice by slice, and what counts is the median of the rounds. A ratio
is the median of the ratios within each round, where both sides met the same disturbances.
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
class Contestant:
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


async def race(title: str, contestants: list[Contestant], *, rounds: int, slices: int) -> dict[str, Score]:
    """Before the first round each contestant has had one that does not count."""
    scores = {contestant.name: Score() for contestant in contestants}
    warm_up = rounds > 1
    for number in range(rounds + warm_up):
        counts = number >= warm_up
        say(f"  {title}: " + (f"round {number + 1 - warm_up} of {rounds}" if counts else "warming up"))
        taken = await _round(contestants, slices)
        if counts:
            for name, score in scores.items():
                score.rounds.append(taken[name])
    return scores


async def one_by_one(title: str, contestants: list[Contestant], rounds: int) -> dict[str, Score]:
    """For work that cannot be cut into slices: each begins alone and on equal terms, and each is first in turn."""
    scores = {contestant.name: Score() for contestant in contestants}
    for number in range(rounds + 1):
        for contestant in turned(contestants, number):
            taken = await race(f"{title}, {contestant.name}, {number} of {rounds}", [contestant], rounds=1, slices=1)
            if number:  # after one to warm up
                scores[contestant.name].rounds += taken[contestant.name].rounds
    return scores


def turned(items: list[T], number: int) -> list[T]:
    first = number % len(items)
    return items[first:] + items[:first]


async def _round(contestants: list[Contestant], slices: int) -> dict[str, Round]:
    taken = {contestant.name: Round() for contestant in contestants}
    for contestant in contestants:
        await contestant.prepare()
    gc.collect()
    for number in range(slices):
        for contestant in contestants[:: -1 if number % 2 else 1]:  # there and back: each as often first as last
            await _time_slice(contestant, taken[contestant.name])
    return taken


async def _time_slice(contestant: Contestant, taken: Round) -> None:
    before = await contestant.database.spent()
    begin = time.perf_counter()
    taken.units += await contestant.run()
    taken.seconds += time.perf_counter() - begin
    spent = (await contestant.database.spent()).since(before)
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
