"""Makes a table as narrow as the terminal: shorter texts first, then fewer columns, then cut ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from holdfast.cli.output import Styled, short_id
from holdfast.ids import is_uuid

GAP = 2
LAST_WIDTH = 12  # at least, if there is so much to say: the last column is wrapped
CUT_WIDTH = 6  # no column is cut further


@dataclass
class Column:
    title: str
    cells: list[Styled]
    width: int = 0

    def __post_init__(self) -> None:
        self.width = max(map(cell_len, (self.title, *(cell.text for cell in self.cells))))

    @property
    def is_empty(self) -> bool:
        return all(cell.text in ("", "0") for cell in self.cells)


def fitted(
    rows: Sequence[Sequence[Styled]], titles: Sequence[Styled], width: int, droppable: Sequence[str]
) -> list[Column]:
    whole = _columns(rows, titles, short=False)
    if needed(whole) <= width:
        return whole
    columns, names = _columns(rows, titles, short=True), [title.text for title in titles]
    for name in _dispensable(columns, names, droppable):
        if needed(columns) <= width:
            break
        del columns[names.index(name)]
        names.remove(name)
    _cut(columns, width)
    return columns


def needed(columns: Sequence[Column]) -> int:
    *others, last = columns
    return sum(column.width + GAP for column in others) + min(last.width, LAST_WIDTH)


def _columns(rows: Sequence[Sequence[Styled]], titles: Sequence[Styled], *, short: bool) -> list[Column]:
    heads = titles or [Styled("")] * max(map(len, rows), default=1)
    return [
        Column(
            (title.short or title.text) if short else title.text,
            [_shortened(row[place]) if short else row[place] for row in rows],
        )
        for place, title in enumerate(heads)
    ]


def _shortened(cell: Styled) -> Styled:
    if cell.short is not None:
        return cell._replace(text=cell.short)
    return cell._replace(text=short_id(cell.text)) if is_uuid(cell.text) else cell


def _dispensable(columns: list[Column], names: list[str], droppable: Sequence[str]) -> Iterator[str]:
    """Columns without content, then those that the caller names; never the first or the last."""
    empty = [name for name, column in zip(names[1:-1], columns[1:-1], strict=True) if column.is_empty]
    yield from empty
    yield from (name for name in droppable if name in names and name not in empty)


def _cut(columns: list[Column], width: int) -> None:
    """The widest of those between the first and the last is cut, as long as it helps."""
    between = columns[1:-1]
    while needed(columns) > width and between:
        widest = max(between, key=lambda column: column.width)
        if widest.width <= CUT_WIDTH:
            return
        widest.width -= 1
