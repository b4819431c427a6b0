"""Output of commands: tables on a terminal, tab-separated lines in a pipe, JSON with `--json`."""

from __future__ import annotations

import argparse
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
    """A text with its style on a terminal, and a short form for narrow terminals.

    An id is never truncated. Cells below a title with `right` are right-aligned.
    """

    text: str
    style: str = ""
    short: str | None = None
    is_id: bool = False
    right: bool = False


Cell = str | Styled


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_result(options: argparse.Namespace, view: Any, text: str) -> None:
    """The view with `--json`, else the text."""
    if options.json:
        print_json(view)
    else:
        print(text)


def print_json_line(value: Any) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)


def camel_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`lease_seconds` is `leaseSeconds` in JSON, as it is over HTTP."""
    return {camel(name): value for name, value in fields.items()}


def print_table(titles: Sequence[Cell], rows: Iterable[Sequence[Cell]], *, droppable: Sequence[str] = ()) -> None:
    """The first column is the identifier and is never truncated. Tab-separated lines have no titles.

    `droppable`: titles of columns that a narrow terminal leaves out, in this order.
    """
    shown = [[clean(cell) for cell in row] for row in rows]
    if on_terminal():
        _print_fitted(shown, [clean(title) for title in titles], droppable)
    else:
        for row in shown:
            print("\t".join(cell.text for cell in row))


def print_facts(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Names and values, aligned. Empty values are left out; a multi-line text keeps its lines."""
    shown = [(Styled(name, "dim"), clean(value, keep="\n")) for name, value in facts if value]
    if on_terminal():
        _print_fitted(shown)
        return
    width = max((len(name.text) for name, _ in shown), default=0) + 2
    for name, value in shown:
        print(f"{name.text:<{width}}" + value.text.replace("\n", "\n" + " " * width))


def _print_fitted(
    rows: Sequence[Sequence[Styled]], titles: Sequence[Styled] = (), droppable: Sequence[str] = ()
) -> None:
    from rich.console import Console

    from holdfast.cli.table import lines
    from holdfast.cli.table_layout import facts, fitted

    console = Console(highlight=False)
    layout = fitted(rows, titles, console.width, droppable) if titles else facts(rows)
    for line in lines(layout, console, titled=bool(titles)):
        console.print(line, soft_wrap=True)  # it fits already, or cannot be made to fit


def print_sentence(text: str) -> None:
    """Wrapped at words on a terminal, one line elsewhere."""
    if not on_terminal():
        print(printable(text))
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(printable(text)))


def clean(cell: Cell, keep: str = "") -> Styled:
    """Without terminal control characters."""
    if not isinstance(cell, Styled):
        return Styled(printable(cell, keep))
    short = None if cell.short is None else printable(cell.short)
    return cell._replace(text=printable(cell.text, keep), short=short)


def short_id(any_id: str) -> str:
    """A prefix of an id, long enough to identify it in commands.

    A job id starts with its creation time in quarters of a microsecond (UUIDv7); a worker id is random.
    """
    return (any_id[:18] if any_id[14] == "7" else any_id[:8]) if is_uuid(any_id) else any_id


def time_text(at: datetime | None) -> str:
    """To the second, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else ""


def short_time(at: datetime | None) -> Styled:
    """Without the year where the terminal is narrow."""
    whole = time_text(at)
    return Styled(whole, short=whole[len("2026-") :])


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
