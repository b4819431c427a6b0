"""The table on the terminal and in docs/internals/performance.md, from the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Result = dict[str, Any]
Peers = list[Result]


class Column(NamedTuple):
    title: str
    cell: str
    shown: Callable[[Result], str]


def _rate(result: Result) -> str:
    return f"{result['rate']:,.0f}"


def _percentiles(result: Result) -> str:
    return f"{result['p50']:.1f} / {result['p99']:.1f}"


def _recovered(result: Result) -> str:
    return f"{result['seconds']:.1f}" if result["seconds"] is not None else f"> {result['watched']:.0f}"


SPEED = [
    Column("enqueue one", "one", _rate),
    Column("in bulk", "bulk", _rate),
    Column("20 callers", "crowd", _rate),
    Column("drain, 1 process", "drain-1", _rate),
    Column("2 processes", "drain-2", _rate),
    Column("1,000,000 behind", "behind", lambda result: f"x {result['ratio']:.2f}"),
    Column("idle p50 / p99 ms", "latency", _percentiles),
    Column("recovery s", "recovery", _recovered),
]
COSTS = [
    Column("commits", "drain-1", lambda result: f"{result['commits']:.3f}" if "commits" in result else ""),
    Column("WAL bytes", "drain-1", lambda result: f"{result['wal_bytes']:,.0f}" if "wal_bytes" in result else ""),
    Column("CPU us, worker", "drain-1", lambda result: _micros(result["cpu_micros"])),
    Column("CPU us, store", "drain-1", lambda result: _micros(result["store_cpu_micros"])),
    Column("idle: transactions/s", "idle", lambda result: f"{result['transactions_per_second']:.1f}"),
    Column("idle: CPU %", "idle", lambda result: f"{result['cpu_percent']:.2f}"),
]


def _micros(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.0f}"


def table(peers: Peers, columns: list[Column]) -> tuple[list[str], list[list[str]]]:
    """Header and rows; columns and peers without any figures are left out."""
    used = [column for column in columns if any(column.cell in peer["cells"] for peer in peers)]
    rows = [[peer["name"], *(_shown(peer, column) for column in used)] for peer in peers]
    return ["", *(column.title for column in used)], [row for row in rows if any(row[1:])]


def _shown(peer: Result, column: Column) -> str:
    result = peer["cells"].get(column.cell)
    if result is None:
        return ""
    return "failed" if "error" in result else column.shown(result)


# -- where others are better ---------------------------------------------------------------------------------------


def better(stores: dict[str, Any]) -> dict[str, list[str]]:
    """For each figure, the peers that are better than Holdfast on PostgreSQL, and by which factor."""
    ours = _named(stores.get("postgres", {}).get("peers", []), "holdfast")
    others = [peer for store in stores.values() for peer in store["peers"] if peer["package"] != "holdfast"]
    found = {}
    for about, cell, key, more in _COMPARED:
        if mine := _figure(ours, cell, key):
            ratios = {
                peer["name"]: figure / mine if more else mine / figure
                for peer in others
                if (figure := _figure(peer, cell, key))
            }
            ahead = sorted(((ratio, name) for name, ratio in ratios.items() if ratio > 1), reverse=True)
            found[about] = [f"{name} x {ratio:.2f}" for ratio, name in ahead]
    return found


_COMPARED = [
    ("enqueue one by one", "one", "rate", True),
    ("enqueue in bulk", "bulk", "rate", True),
    ("enqueue, 20 callers", "crowd", "rate", True),
    ("drain, 1 process", "drain-1", "rate", True),
    ("drain, 2 processes", "drain-2", "rate", True),
    ("idle latency, p50", "latency", "p50", False),
    ("idle latency, p99", "latency", "p99", False),
    ("WAL bytes a job", "drain-1", "wal_bytes", False),
    ("worker CPU a job", "drain-1", "cpu_micros", False),
    ("recovery after kill -9", "recovery", "seconds", False),
]


# -- what Holdfast set out to reach --------------------------------------------------------------------------------


class Aim(NamedTuple):
    about: str
    figure: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def told(self) -> list[str]:
        bound = "at least" if self.at_least else "at most"
        return [self.about, _three_digits(self.figure), f"{bound} {_three_digits(self.limit)}"]


def _three_digits(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def aims(stores: dict[str, Any]) -> list[Aim]:
    return list(_aims(stores))


def _aims(stores: dict[str, Any]) -> Iterator[Aim]:
    postgres, sqlite, redis = (stores.get(name, {}).get("peers", []) for name in ("postgres", "sqlite", "redis"))
    ours, embedded = _named(postgres, "holdfast"), _named(sqlite, "holdfast on SQLite")
    python = [peer for peer in postgres if peer is not ours and not peer["node"]]
    for cell, factor in (("drain-1", 1.2), ("drain-2", 1.2), ("one", 1.0), ("bulk", 1.0)):
        yield from _against(ours, cell, python, factor, "the fastest Python peer on PostgreSQL")
    for cell in ("drain-1", "drain-2"):
        yield from _against(ours, cell, redis, 1.0, "the fastest Python peer on Redis")
        yield from _against(embedded, cell, [peer for peer in sqlite if peer is not embedded], 3.0, "peers on SQLite")
    if crowd := _figure(ours, "crowd", "rate"):
        yield Aim("20 callers, times one by one", crowd / (_figure(ours, "one", "rate") or crowd), 3.0, True)
    for about, cell, key, limit in _LIMITS:
        if (figure := _figure(ours, cell, key)) is not None:
            yield Aim(about, figure, limit, key == "ratio")
    for who, others in (("peer on PostgreSQL", postgres), ("peer of all", [*postgres, *redis])):
        yield from _quickest(ours, [peer for peer in others if peer is not ours], f"the best {who}")
    if (worker := _figure(ours, "drain-1", "cpu_micros")) is not None:
        yield Aim("CPU us a job", worker + (_figure(ours, "drain-1", "store_cpu_micros") or 0.0), 200.0, False)


_LIMITS = [
    ("idle latency, p50 ms", "latency", "p50", 5.0),
    ("idle latency, p99 ms", "latency", "p99", 20.0),
    ("rate with 1,000,000 behind", "behind", "ratio", 0.9),
    ("commits a job", "drain-1", "commits", 0.05),
    ("WAL bytes a job", "drain-1", "wal_bytes", 2500.0),
    ("idle transactions/s", "idle", "transactions_per_second", 2.0),
    ("idle CPU %", "idle", "cpu_percent", 1.0),
    ("recovery after kill -9, s", "recovery", "seconds", 5.0),
]


def _against(ours: Result | None, cell: str, others: Peers, factor: float, who: str) -> Iterator[Aim]:
    rates = [rate for peer in others if (rate := _figure(peer, cell, "rate"))]
    if rates and (rate := _figure(ours, cell, "rate")):
        yield Aim(f"{cell}, times {who}", rate / max(rates), factor, True)


def _quickest(ours: Result | None, others: Peers, who: str) -> Iterator[Aim]:
    for key in ("p50", "p99"):
        figures = [figure for peer in others if (figure := _figure(peer, "latency", key))]
        if figures and (figure := _figure(ours, "latency", key)):
            yield Aim(f"idle latency, {key} ms, beside {who}", figure, min(figures), False)


def _named(peers: Peers, name: str) -> Result | None:
    return next((peer for peer in peers if peer["name"] == name), None)


def _figure(peer: Result | None, cell: str, key: str) -> float | None:
    return peer["cells"].get(cell, {}).get(key) if peer else None
