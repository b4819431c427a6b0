"""Plots of the results as SVG, written by hand: bars, and ranges on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

Result = dict[str, Any]

OURS = "#d9480f"
COLOURS = {"postgres": "#1c7ed6", "node": "#7048e8", "redis": "#868e96", "sqlite": "#2b8a3e"}
MEANING = {
    "holdfast": OURS,
    "PostgreSQL, Python": COLOURS["postgres"],
    "PostgreSQL, Node": COLOURS["node"],
    "Redis": COLOURS["redis"],
    "SQLite": COLOURS["sqlite"],
}
WIDTH, LABEL, FIGURE, BAR, GAP, TOP = 860, 210, 130, 13, 9, 64
SPAN = WIDTH - LABEL - FIGURE


class Row(NamedTuple):
    label: str
    colour: str
    values: tuple[float, ...]
    shown: tuple[str, ...]


def plots(stores: dict[str, Any], watched: float) -> dict[str, str]:
    """The files of docs/performance/."""
    peers = [(_colour(kind, peer), peer) for kind, store in stores.items() for peer in store["peers"]]
    on_postgres = [(colour, peer) for colour, peer in peers if peer in stores.get("postgres", {}).get("peers", [])]
    both = [f"{count} worker process{'es' if count > 1 else ''}" for count in (1, 2)]
    return {
        "drain.svg": bars("Jobs drained a second", both, _rates(peers, ["drain-1", "drain-2"])),
        "enqueue.svg": bars(
            "Jobs enqueued a second", ["one by one", "20 callers at once"], _rates(peers, ["one", "crowd"])
        ),
        "bulk.svg": bars("Jobs enqueued a second, 1,000 in a call", [], _rates(peers, ["bulk"])),
        "latency.svg": ranges(
            "Milliseconds from enqueue to the first line of the handler, p50 to p99, idle worker", _latencies(peers)
        ),
        "cost.svg": bars(
            "CPU microseconds for each drained job", ["in the worker", "in the database"], _costs(on_postgres)
        ),
        "recovery.svg": bars(
            f"Seconds until the job of a killed worker runs again (watched for {watched:.0f})",
            [],
            _recoveries(peers, watched),
        ),
    }


def _colour(kind: str, peer: Result) -> str:
    if peer["package"] == "holdfast":
        return OURS
    return COLOURS["node" if peer["node"] else kind]


Peers = list[tuple[str, Result]]


def _rows(peers: Peers, cells: Sequence[str], made: Callable[..., tuple[list[float], list[str]]]) -> list[Row]:
    rows = []
    for colour, peer in peers:
        results = [peer["cells"][cell] for cell in cells if "error" not in peer["cells"].get(cell, {"error": ""})]
        if results:
            values, shown = made(*results)
            rows.append(Row(peer["name"], colour, tuple(values), tuple(shown)))
    return rows


def _rates(peers: Peers, cells: Sequence[str]) -> list[Row]:
    def made(*results: Result) -> tuple[list[float], list[str]]:
        return [result["rate"] for result in results], [f"{result['rate']:,.0f}" for result in results]

    return sorted(_rows(peers, cells, made), key=lambda row: -max(row.values))


def _latencies(peers: Peers) -> list[Row]:
    def made(result: Result) -> tuple[list[float], list[str]]:
        return [result["p50"], result["p99"]], [f"{result['p50']:.1f} / {result['p99']:.1f}"]

    return sorted(_rows(peers, ["latency"], made), key=lambda row: row.values)


def _costs(peers: Peers) -> list[Row]:
    def made(result: Result) -> tuple[list[float], list[str]]:
        spent = [result["cpu_micros"], result["store_cpu_micros"]]
        return spent, [f"{micros:,.0f}" for micros in spent]

    return sorted(_rows(peers, ["drain-1"], made), key=lambda row: sum(row.values))


def _recoveries(peers: Peers, watched: float) -> list[Row]:
    def made(result: Result) -> tuple[list[float], list[str]]:
        taken = result["seconds"]
        return [watched if taken is None else taken], ["not seen" if taken is None else f"{taken:.1f}"]

    return sorted(_rows(peers, ["recovery"], made), key=lambda row: row.values)


# -- drawing -------------------------------------------------------------------------------------------------------


def bars(title: str, series: Sequence[str], rows: list[Row]) -> str:
    """One bar for each value of a row; the second of a row is lighter."""
    longest = max((max(row.values) for row in rows), default=0.0) or 1.0  # CPU times of a quick run may all be 0

    def drawn(top: float, row: Row) -> Iterator[str]:
        for place, (value, shown) in enumerate(zip(row.values, row.shown, strict=True)):
            y, width = top + place * (BAR + 1), max(value / longest * SPAN, 1.0)
            yield (
                f'<rect x="{LABEL}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" fill="{row.colour}"'
                f' opacity="{0.55 if place else 1}"/>'
            )
            yield _text(LABEL + width + 6, y + BAR - 2, shown)

    about = "; ".join(f"{name}: {'lighter' if place else 'full'} bar" for place, name in enumerate(series))
    return _drawing(title, about, rows, max((len(row.values) for row in rows), default=1), drawn)


def ranges(title: str, rows: list[Row]) -> str:
    """A dot at the first value of a row and a line to its second, on a logarithmic axis."""
    low = math.floor(math.log10(min((row.values[0] for row in rows), default=1.0)))
    high = math.ceil(math.log10(max((row.values[1] for row in rows), default=10.0)))

    def place(value: float) -> float:
        return LABEL + (math.log10(value) - low) / (high - low) * SPAN

    def drawn(top: float, row: Row) -> Iterator[str]:
        y, (first, last) = top + BAR / 2, (place(row.values[0]), place(row.values[1]))
        yield f'<line x1="{first:.1f}" y1="{y}" x2="{last:.1f}" y2="{y}" stroke="{row.colour}" stroke-width="4"/>'
        yield f'<circle cx="{first:.1f}" cy="{y}" r="5" fill="{row.colour}"/>'
        yield _text(last + 8, top + BAR - 2, row.shown[0])

    bottom = TOP + (BAR + 1 + GAP) * len(rows)
    decades = [10.0**power for power in range(low, high + 1)]
    lines = [
        f'<line x1="{place(decade):.1f}" y1="{TOP}" x2="{place(decade):.1f}" y2="{bottom}" stroke="#e0e0e0"/>'
        for decade in decades
    ]
    about = f"logarithmic axis; the lines are at {', '.join(f'{decade:g}' for decade in decades)}"
    return _drawing(title, about, rows, 1, drawn, lines)


def _drawing(
    title: str,
    about: str,
    rows: list[Row],
    bars_each: int,
    drawn: Callable[[float, Row], Iterator[str]],
    behind: Sequence[str] = (),
) -> str:
    step = bars_each * (BAR + 1) + GAP
    height = TOP + step * len(rows) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(12, 20, title, 'font-size="15" font-weight="600"'),
        _text(12, 37, about, 'fill="#666666"'),
        *_legend(),
        *behind,
    ]
    for number, row in enumerate(rows):
        top = TOP + number * step
        weight = ' font-weight="600"' if row.colour == OURS else ""
        parts.append(_text(LABEL - 8, top + bars_each * (BAR + 1) / 2 + 4, row.label, f'text-anchor="end"{weight}'))
        parts += drawn(top, row)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    x = 12.0
    for meaning, colour in MEANING.items():
        yield f'<rect x="{x}" y="45" width="10" height="10" fill="{colour}"/>'
        yield _text(x + 14, 54, meaning)
        x += 34 + 6.6 * len(meaning)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'.replace(" >", ">")
