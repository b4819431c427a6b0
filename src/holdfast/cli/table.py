"""Draws a table whose layout fits the terminal, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from holdfast.cli.output import Styled
from holdfast.cli.table_layout import GAP, Column, Layout, needed

INDENT = 4  # of a message below its row


def lines(layout: Layout, console: Console, *, titled: bool) -> Iterator[Text]:
    if titled:
        yield header(layout.columns)
    below = layout.below
    for number, row in enumerate(zip(*(column.cells for column in layout.columns), strict=True)):
        if layout.wrapped:
            yield from _wrapped(layout.columns, row, console)
        else:
            yield from _whole(layout.columns, row)
        if below is not None and below.cells[number].text:
            yield from _below(below.title, below.cells[number], console)


def header(columns: Sequence[Column]) -> Text:
    return line(columns, [Styled(column.title, "bold") for column in columns])


def line(columns: Sequence[Column], row: Sequence[Styled]) -> Text:
    """Each cell padded to the width of its column, without trailing spaces."""
    made = Text()
    for column, cell in zip(columns, row, strict=True):
        padding = " " * (column.width - cell_len(cell.text))
        before, behind = (padding, "") if column.right else ("", padding)
        made.append(before).append(cell.text, cell.style).append(behind + " " * GAP)
    made.rstrip()
    return made


def _whole(columns: Sequence[Column], row: Sequence[Styled]) -> Iterator[Text]:
    """A first cell that is wider than its column gets its own line."""
    first, *others = row
    if cell_len(first.text) > columns[0].width:
        yield Text(first.text, first.style)
        first = Styled("")
    yield line(columns, [first, *others])


def _wrapped(columns: Sequence[Column], row: Sequence[Styled], console: Console) -> Iterator[Text]:
    others, last = columns[:-1], Text(row[-1].text, row[-1].style)
    start = needed(others) + GAP if others else 0
    pieces = last.wrap(console, max(1, console.width - start), overflow="fold") or [Text()]
    for number, piece in enumerate(pieces):
        before = line(others, [*row[:-1]] if number == 0 else [Styled("")] * len(others))
        before.append(" " * (start - before.cell_len))
        piece.rstrip()
        yield before.append_text(piece)


def _below(title: str, cell: Styled, console: Console) -> Iterator[Text]:
    text = Text.assemble((f"{title}: ", "dim"), (cell.text, cell.style))
    for piece in text.wrap(console, max(1, console.width - INDENT), overflow="fold"):
        piece.rstrip()
        yield Text(" " * INDENT).append_text(piece)
