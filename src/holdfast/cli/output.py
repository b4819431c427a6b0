"""How answers are printed: a table on a terminal, tab-separated lines anywhere else, JSON when asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.ids import is_uuid
from holdfast.redaction import printable
from holdfast.wire import camel

BAR_WIDTH = 24


class Styled(NamedTuple):
    """A text, how it looks on a terminal, and what stands for it where the terminal is narrow."""

    text: str
    style: str = ""
    short: str | None = None


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


def print_table(titles: Sequence[Cell], rows: Iterable[Sequence[Cell]], *, droppable: Sequence[str] = ()) -> None:
    """The first column is what things are found by: it is never cut. Lines for programs have no titles.

    `droppable` are titles of columns that a narrow terminal can do without, the first of them first.
    """
    shown = [[_clean(cell) for cell in row] for row in rows]
    if on_terminal():
        _print_rich(shown, [_clean(title) for title in titles], droppable)
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


def _print_rich(rows: Sequence[Sequence[Styled]], titles: Sequence[Styled] = (), droppable: Sequence[str] = ()) -> None:
    """Within the width of the terminal: the last column is wrapped, others are cut where nothing else helps."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from holdfast.cli.fitting import fitted

    console = Console(highlight=False)
    columns = fitted(rows, titles, console.width, droppable)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=bool(titles))
    for place, column in enumerate(columns):
        last = place == len(columns) - 1
        table.add_column(
            column.title,
            no_wrap=not last,
            min_width=None if last else column.width,
            max_width=None if last else column.width,
            overflow="fold" if last or place == 0 else "ellipsis",
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(cell.text, cell.style) for cell in row))
    needed = sum(column.width for column in columns[:-1]) + 2 * len(columns) + 1
    Console(highlight=False, width=max(console.width, needed)).print(table)


def _clean(cell: Cell, keep: str = "") -> Styled:
    if not isinstance(cell, Styled):
        return Styled(printable(cell, keep))
    return Styled(printable(cell.text, keep), cell.style, None if cell.short is None else printable(cell.short))


def short_id(any_id: str) -> str:
    """The beginning of an id, long enough to be typed instead of it.

    The id of a job begins with its time, in quarters of a microsecond (UUIDv7); that of a worker is random.
    """
    return (any_id[:18] if any_id[14] == "7" else any_id[:8]) if is_uuid(any_id) else any_id


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
