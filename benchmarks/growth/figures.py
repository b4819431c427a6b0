"""The sizes of a run, what each figure is judged by, and how long things take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """At full scale. `scaled` makes a smaller run of the same shape."""

    drained: int = 1_000_000  # from one lane
    pinned_seconds: float = 600.0
    paced: int = 1_000  # jobs a second beside a pinned snapshot
    workers: int = 50
    by_workers: int = 500_000  # jobs that each number of workers drains
    through: int = 10_000_000  # in and out, with retention
    lanes: int = 100_000
    claims: int = 300  # of each kind
    flood: int = 1_000_000
    waits: int = 300  # samples of another tenant

    def scaled(self, scale: float) -> Sizes:
        least = {"pinned_seconds": 2.0, "workers": 2, "claims": 10, "waits": 10, "paced": 200}
        made: dict[str, Any] = {}
        for each in fields(self):
            full = getattr(self, each.name)
            made[each.name] = type(full)(max(full * scale, least.get(each.name, 1_000)))
        return replace(self, **{name: min(value, getattr(self, name)) for name, value in made.items()})


@dataclass(frozen=True)
class Figure:
    """`met` is None where nothing is asked of it, or it cannot be measured yet."""

    name: str
    value: float | None
    target: float | None = None
    at_least: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def row(self) -> list[str]:
        bound = "" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}"
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        return [self.name, value, bound, {None: "", True: "reached", False: "NOT REACHED"}[self.met]]

    def as_json(self) -> dict[str, Any]:
        return {"figure": self.name, "value": self.value, "target": self.target, "met": self.met, **self.details}


async def timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """Milliseconds, and the answer."""
    began = time.perf_counter()
    answer = await call()
    return 1000 * (time.perf_counter() - began), answer


def percentile(taken: list[float], share: float) -> float:
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
