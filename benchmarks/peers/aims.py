"""The figures that Holdfast is to reach, as ratios within one run or as limits, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.budget.ceiling import ceiling

Result = dict[str, Any]
Peers = list[Result]

PGQUEUER, GRAPHILE, HUEY = "pgqueuer, batch 100", "graphile-worker, local queue", "huey on SQLite"
SECOND_PROCESS, OF_THE_CEILING = 1.4, 0.85


class Aim(NamedTuple):
    about: str
    figure: str
    wanted: str
    met: bool

    def told(self) -> list[str]:
        return [self.about, self.figure, self.wanted]


def aims(results: dict[str, Any]) -> list[Aim]:
    """Of the cells that the run has."""
    return list(_aims(results["stores"], results["machine"]["cores"], results.get("http") or []))


def _aims(stores: dict[str, Any], cores: int, http: list[Result]) -> Iterator[Aim]:
    peers = {peer["name"]: peer for store in stores.values() for peer in store["peers"]}
    ours, embedded = peers.get("holdfast"), peers.get("holdfast on SQLite")
    for about, name, other, cell, factor in _RATIOS:
        yield from _ratio(about, peers.get(name), _figures([peers.get(other)], cell), cell, factor)
    yield from _second_process(ours, cores)
    for mine, kind in ((ours, "redis"), (embedded, "sqlite")):
        for cell in ("drain-1", "drain-2"):
            others = [each for each in _peers_on(stores, kind) if each is not mine]
            factor = {"redis": 1.0, "sqlite": 3.0}[kind]
            yield from _ratio(
                f"{_CELLS[cell]}, times the fastest peer on {_STORES[kind]}", mine, _figures(others, cell), cell, factor
            )
    if (crowd := figure(ours, "crowd", "rate")) and (one := figure(ours, "one", "rate")):
        yield _at_least("enqueue: 20 callers, times one by one", crowd / one, 3.0)
    for about, peer, cell, key, limit in _LIMITS:
        if (found := figure(peers.get(peer), cell, key)) is not None:
            yield (_at_least if key == "ratio" else _at_most)(about, found, limit)
    for each in http:
        yield (_at_most if "over" in each["figure"] else _at_least)(each["figure"], each["value"], each["target"])


_STORES = {"redis": "Redis", "sqlite": "SQLite"}
_CELLS = {
    "drain-1": "drain, 1 process",
    "drain-2": "drain, 2 processes",
    "one": "enqueue one",
    "bulk": "enqueue in bulk",
}
_RATIOS = [
    ("drain, 1 process, times pgqueuer at batch 100", "holdfast", PGQUEUER, "drain-1", 1.6),
    ("drain, 2 processes, times pgqueuer at batch 100", "holdfast", PGQUEUER, "drain-2", 1.4),
    ("drain, 2 processes, times Graphile Worker's local queue", "holdfast", GRAPHILE, "drain-2", 1.0),
    ("enqueue in bulk, times pgqueuer", "holdfast", PGQUEUER, "bulk", 1.5),
    ("enqueue one by one, times pgqueuer", "holdfast", PGQUEUER, "one", 1.0),
    ("SQLite: enqueue one by one, times huey", "holdfast on SQLite", HUEY, "one", 1.0),
]
_LIMITS = [
    ("idle latency, p50 ms", "holdfast", "latency", "p50", 2.5),
    ("idle latency, p99 ms", "holdfast", "latency", "p99", 20.0),
    ("SQLite: idle latency between processes, p50 ms", "holdfast on SQLite", "latency", "p50", 3.0),
    ("SQLite: idle latency between processes, p99 ms", "holdfast on SQLite", "latency", "p99", 10.0),
    ("worker, CPU us a job", "holdfast", "drain-1", "cpu_micros", 20.0),
    ("PostgreSQL, CPU us a job", "holdfast", "drain-1", "store_cpu_micros", 30.0),
    ("PostgreSQL beside 2 processes, CPU us a job", "holdfast", "drain-2", "store_cpu_micros", 30.0),
    ("WAL bytes a job", "holdfast", "drain-1", "wal_bytes", 1500.0),
    ("commits a job", "holdfast", "drain-1", "commits", 0.05),
    ("rate with 1,000,000 behind", "holdfast", "behind", "ratio", 0.9),
    ("idle transactions/s", "holdfast", "idle", "transactions_per_second", 2.0),
    ("idle CPU %", "holdfast", "idle", "cpu_percent", 1.0),
    ("recovery after kill -9, s", "holdfast", "recovery", "seconds", 5.0),
]


def _second_process(ours: Result | None, cores: int) -> Iterator[Aim]:
    """It adds enough, or both together are near what the cores can do."""
    one, two = figure(ours, "drain-1", "rate"), figure(ours, "drain-2", "rate")
    worker, store = (figure(ours, "drain-1", key) for key in ("cpu_micros", "store_cpu_micros"))
    if one and two and worker and store:
        most = ceiling(worker, store, cores)
        share = two / most["jobs_per_second"]
        yield Aim(
            f"2 processes, times 1 process; of the ceiling, {most['jobs_per_second']:,} jobs/s",
            f"{two / one:.2f}; {share:.2f}",
            f"at least {SECOND_PROCESS:g}, or {OF_THE_CEILING:g}",
            two / one >= SECOND_PROCESS or share >= OF_THE_CEILING,
        )


def _ratio(about: str, mine: Result | None, others: list[float], cell: str, factor: float) -> Iterator[Aim]:
    if others and (rate := figure(mine, cell, "rate")):
        yield _at_least(about, rate / max(others), factor)


def _at_least(about: str, found: float, limit: float) -> Aim:
    return Aim(about, three_digits(found), f"at least {three_digits(limit)}", found >= limit)


def _at_most(about: str, found: float, limit: float) -> Aim:
    return Aim(about, three_digits(found), f"at most {three_digits(limit)}", found <= limit)


def three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _figures(others: Sequence[Result | None], cell: str) -> list[float]:
    return [rate for peer in others if (rate := figure(peer, cell, "rate"))]


def _peers_on(stores: dict[str, Any], kind: str) -> Peers:
    return [peer for peer in stores.get(kind, {}).get("peers", []) if not peer.get("reference")]


def figure(peer: Result | None, cell: str, key: str) -> float | None:
    return peer["cells"].get(cell, {}).get(key) if peer else None
