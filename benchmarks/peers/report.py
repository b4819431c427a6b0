"""The table on the terminal and in docs/performance.md, from the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.peers.aims import figure

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
    Column("with 2: worker", "drain-2", lambda result: _micros(result["cpu_micros"])),
    Column("with 2: store", "drain-2", lambda result: _micros(result["store_cpu_micros"])),
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
    everyone = [peer for store in stores.values() for peer in store["peers"]]
    ours = next((peer for peer in everyone if peer["name"] == "holdfast"), None)
    others = [peer for peer in everyone if peer["package"] != "holdfast" and not peer.get("reference")]
    found = {}
    for about, cell, key, more in _COMPARED:
        if mine := figure(ours, cell, key):
            ratios = {
                peer["name"]: its / mine if more else mine / its for peer in others if (its := figure(peer, cell, key))
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
