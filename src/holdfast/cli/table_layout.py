"""Fits a table to the width of the terminal: short forms first, then fewer columns, then truncated ones.

A message in the last column is wrapped if there is room, else printed below its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from holdfast.cli.output import Styled, short_id
from holdfast.cli.truncate import truncated_distinct
from holdfast.ids import is_uuid

GAP = 2
MESSAGE_WIDTH = 12  # a wider last column is treated as messages
WRAPPED_WIDTH = 36  # room that a message needs to be wrapped beside its row
COMFORT_WIDTH = 20  # columns are dropped before names are truncated below this
CUT_WIDTH = 8  # no column is narrower


@dataclass
class Column:
    title: str
    cells: list[Styled]
    right: bool = False
    width: int = 0
    least_width: int = 0

    def __post_init__(self) -> None:
        """Ids are not truncated, so that they can be copied."""
        self.width = max(map(cell_len, (self.title, *(cell.text for cell in self.cells))))
        has_ids = any(is_uuid(cell.text) or cell.is_id for cell in self.cells)
        self.least_width = self.width if has_ids else min(self.width, max(cell_len(self.title), CUT_WIDTH))

    @property
    def is_empty(self) -> bool:
        return all(cell.text in ("", "0") for cell in self.cells)

    def cut(self) -> None:
        shown = truncated_distinct({cell.text for cell in self.cells}, self.width)
        self.cells = [cell._replace(text=shown[cell.text]) for cell in self.cells]


@dataclass
class Layout:
    """`wrapped`: the last column takes the remaining width. `below`: this column is printed below its rows."""

    columns: list[Column]
    wrapped: bool = False
    below: Column | None = None


def fitted(
    rows: Sequence[Sequence[Styled]], titles: Sequence[Styled], width: int, droppable: Sequence[str] = ()
) -> Layout:
    """For a table that may take any number of lines. Its first column, the identifier, is never truncated."""
    whole = _columns(rows, titles, short=False)
    if needed(whole) <= width:
        return Layout(whole)
    columns = _columns(rows, titles, short=True)
    has_messages = columns[-1].width > MESSAGE_WIDTH
    _drop(columns, titles, width + COMFORT_WIDTH if has_messages else width, droppable)
    if needed(columns) <= width:
        return Layout(columns)
    layout = _messages_aside(columns, width) if has_messages else Layout(columns)
    if not layout.wrapped:
        _narrow(layout.columns[1:], needed(layout.columns) - width)
        _narrow(layout.columns[:1], needed(layout.columns) - width)
        for column in layout.columns[1:]:
            column.cut()
    return layout


def fitted_lines(
    rows: Sequence[Sequence[Styled]], titles: Sequence[Styled], width: int, droppable: Sequence[str] = ()
) -> list[Column]:
    """For a table with one line per row: any column may be truncated, except ids."""
    columns = _columns(rows, titles, short=False)
    if needed(columns) > width:
        columns = _columns(rows, titles, short=True)
        _drop(columns, titles, width, droppable)
        _narrow(columns, needed(columns) - width)
        for column in columns:
            column.cut()
    return columns


def facts(rows: Sequence[Sequence[Styled]]) -> Layout:
    """Names and values; long values are wrapped."""
    return Layout(_columns(rows, [Styled(""), Styled("")], short=False), wrapped=True)


def needed(columns: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in columns) - GAP


def _messages_aside(columns: list[Column], width: int) -> Layout:
    *others, messages = columns
    if width - needed(others) - GAP >= WRAPPED_WIDTH:
        return Layout(columns, wrapped=True)
    return Layout(others, below=messages)


def _columns(rows: Sequence[Sequence[Styled]], titles: Sequence[Styled], *, short: bool) -> list[Column]:
    return [
        Column(
            (title.short or title.text) if short else title.text,
            [_shortened(row[place]) if short else row[place] for row in rows],
            right=title.right,
        )
        for place, title in enumerate(titles)
    ]


def _shortened(cell: Styled) -> Styled:
    if cell.short is not None:
        return cell._replace(text=cell.short)
    return cell._replace(text=short_id(cell.text), is_id=True) if is_uuid(cell.text) else cell


def _drop(columns: list[Column], titles: Sequence[Styled], width: int, droppable: Sequence[str]) -> None:
    names = [title.text for title in titles]
    for name in list(_dispensable(columns, names, droppable)):
        if _comfortable(columns) <= width:
            return
        del columns[names.index(name)]
        names.remove(name)


def _dispensable(columns: list[Column], names: list[str], droppable: Sequence[str]) -> Iterator[str]:
    """Empty columns, then those that the caller names; never the first or the last."""
    empty = [name for name, column in zip(names[1:-1], columns[1:-1], strict=True) if column.is_empty]
    yield from empty
    yield from (name for name in droppable if name in names and name not in empty)


def _comfortable(columns: list[Column]) -> int:
    return needed(columns[:1]) + sum(min(column.width, COMFORT_WIDTH) + GAP for column in columns[1:])


def _narrow(columns: list[Column], excess: int) -> None:
    """The widest column shrinks first."""
    for _ in range(excess):
        able = [column for column in columns if column.width > column.least_width]
        if not able:
            return
        max(able, key=lambda column: column.width).width -= 1
