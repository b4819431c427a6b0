"""How answers are printed: a table on a terminal, tab-separated lines anywhere else, JSON when asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.redaction import printable
from holdfast.wire import camel

BAR_WIDTH = 24
LAST_COLUMN = 20  # at least, if there is so much to say


class Styled(NamedTuple):
    """A text, and how it looks on a terminal."""

    text: str
    style: str


Cell = str | Styled


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)


def camel_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`lease_seconds` is `leaseSeconds` in JSON, as it is over HTTP."""
    return {camel(name): value for name, value in fields.items()}


def print_table(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """The first column is what things are found by: it is never cut. Lines for programs have no titles."""
    shown = [[_clean(cell) for cell in row] for row in rows]
    if on_terminal():
        _print_rich(shown, titles)
    else:
        for row in shown:
            print("\t".join(cell.text for cell in row))


def print_facts(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Names and values, aligned; what has no value is left out, and a long text keeps its lines."""
    shown = [(Styled(name, "dim"), _clean(value, keep="\n")) for name, value in facts if value]
    if on_terminal():
        _print_rich(shown)
        return
    width = max((len(name.text) for name, _ in shown), default=0) + 2
    for name, value in shown:
        print(f"{name.text:<{width}}" + value.text.replace("\n", "\n" + " " * width))


def _print_rich(rows: Sequence[Sequence[Styled]], titles: Sequence[str] = ()) -> None:
    """Only the last column is wrapped; where the others do not fit, the terminal wraps the line."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [titles, *([cell.text for cell in row] for row in rows)]
    *widths, last = [max(map(cell_len, column)) for column in zip(*filter(None, texts), strict=True)] or [0]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=bool(titles))
    for place, width in enumerate([*widths, 0]):
        table.add_column(titles[place] if titles else "", no_wrap=bool(width), min_width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.text, cell.style) for cell in row))
    needed = sum(widths) + 2 * len(widths) + min(last, LAST_COLUMN)
    Console(highlight=False, width=max(Console().width, needed)).print(table)


def _clean(cell: Cell, keep: str = "") -> Styled:
    style = cell.style if isinstance(cell, Styled) else ""
    return Styled(printable(cell.text if isinstance(cell, Styled) else cell, keep), style)


def time_text(at: datetime | None) -> str:
    """To the second, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else ""


def age_text(now: datetime, at: datetime | None) -> str:
    return span_text((now - at).total_seconds()) if at else ""


def span_text(seconds: float) -> str:
    """`45 s`, `12 m`, `3 h`, `5 d`: short enough for a column, exact enough for a glance."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def json_text(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def bar(percent: float, width: int = BAR_WIDTH) -> str:
    full = round(width * percent / 100)
    return f"{'█' * full}{'░' * (width - full)} {percent:.0f} %"


def count(number: int, what: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
