"""Which lanes have jobs for a worker. With many lanes, each claim reads a window of them and the next claim goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.store import Row, Tx
from holdfast.store.queries import Query


@dataclass
class LaneCursors:
    """Where the next window begins: of all lanes, of the first lanes of each tenant, and of those that fit a worker."""

    lanes: int = 0
    tenants: int = 0
    named: int = 0


class Window(NamedTuple):
    """The lanes that the worker may claim from; `complete`: there are no others. `only`: there is only this lane with
    jobs, for all workers, and nothing about it depends on the worker or the time."""

    lanes: list[Row]
    complete: bool = False
    only: int | None = None


WINDOW_MIN = 16


async def open_lanes(tx: Tx, query: Query, cursors: LaneCursors, *, most: int, jobs: int, **scope: Any) -> Window:
    """The lanes that the worker may claim from; up to `most` are seen at once.

    Usually one read sees every lane. Otherwise the next reads are no larger than a claim of so many jobs needs; a
    second one sees lanes of other tenants, if the first saw few, so that none waits until the window has passed all
    lanes of the others; and a third looks for the queues and types of this worker alone.
    """
    size = _window(jobs, most) if cursors.lanes else most

    async def read(after: int, *, by_tenant: bool = False, named: bool = False) -> list[Row]:
        return await tx.all(query, after=after, by_tenant=by_tenant, named=named, limit=size, **scope)

    rows, rest = await read(cursors.lanes), list[Row]()
    if len(rows) < size and cursors.lanes:  # the end: begin again
        size, rest = most, rows
        rows = await read(0)
    if len(rows) < size:
        cursors.lanes, found = 0, _claimable(rows)
        plain = len(rows) == len(found) == 1 and not (found[0]["hooked"] or found[0]["picky"])
        return Window(found, complete=True, only=found[0]["id"] if plain else None)
    cursors.lanes = _last(rows)
    found = _claimable([*rest, *rows])
    if len({row["id"] >> 32 for row in rows}) * 2 < size:
        firsts = await read(cursors.tenants, by_tenant=True)
        cursors.tenants = _last(firsts) | 0xFFFFFFFF if len(firsts) == size else 0
        found = _claimable([*rest, *rows, *firsts])
    if not found:
        matching = await read(cursors.named, named=True)
        cursors.named = _last(matching) if len(matching) == size else 0
        found = _claimable(matching)
    return Window(found)


def _window(jobs: int, most: int) -> int:
    """A power of two: each size is a prepared statement of its own."""
    return min(most, max(WINDOW_MIN, 1 << (jobs - 1).bit_length()))


def _claimable(rows: list[Row]) -> list[Row]:
    """Without lanes that the worker may not claim from, and without repeats."""
    return list({row["id"]: row for row in rows if row["type"] is not None and row["head"] is not None}.values())


def _last(rows: list[Row]) -> int:
    return max(int(row["id"]) for row in rows)
