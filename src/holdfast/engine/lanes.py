"""Which lanes have jobs for a worker. With many lanes, each claim reads a window of them and the next claim goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.engine.turns import OpenHead
from holdfast.store import Row, Tx, q
from holdfast.store.queries import Query

KEY_LANES_BEGIN = -(2**63)  # no keyed lane has a number below


@dataclass
class LaneCursors:
    """Where the next window begins: of all lanes, of the first lanes of each tenant, of those that fit a worker, of
    those that have keyed lanes, and of those of them that fit a worker. `full`: of all keyed lanes, for maintenance."""

    lanes: int = 0
    tenants: int = 0
    named: int = 0
    keyed: int = 0
    keyed_named: int = 0
    full: int = KEY_LANES_BEGIN
    stale: bool = False  # the last read saw keyed lanes without jobs: the next one sees more of them
    one_tenant: int = 0  # for so many reads, only one tenant had lanes when it was last looked for others


class Window(NamedTuple):
    """The lanes that the worker may claim from; `complete`: there are no others. `only`: there is only this lane with
    jobs, for all workers, and nothing about it depends on the worker or the time. `shut`: keyed lanes whose turn it is,
    but without jobs, or without units or tokens of their key."""

    lanes: list[Row]
    complete: bool = False
    only: int | None = None
    shut: Sequence[Row] = ()


WINDOW_MIN = 16
LEVELS_MAX = 201  # priorities of a lane, if older jobs become more urgent
ONE_TENANT_READS = 16
KEYED_MAX = 32  # lanes whose keyed lanes one read sees
TURNS_MIN, TURNS_MAX, STALE_MAX = 4, 128, 1000  # keyed lanes of each


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
        alone = len(rows) == len(found) == 1 and is_plain(found[0]) and not found[0]["keyed"]
        return Window(found, complete=True, only=found[0]["id"] if alone else None)
    cursors.lanes = _last(rows)
    found = _claimable([*rest, *rows])
    if cursors.one_tenant:
        cursors.one_tenant -= 1
    elif len(_tenants(rows)) * 2 < size:
        firsts = await read(cursors.tenants, by_tenant=True)
        cursors.tenants = _last(firsts) | 0xFFFFFFFF if len(firsts) == size else 0
        cursors.one_tenant = ONE_TENANT_READS if len(_tenants([*rows, *firsts])) == 1 else 0
        found = _claimable([*rest, *rows, *firsts])
    if not found:
        matching = await read(cursors.named, named=True)
        cursors.named = _last(matching) if len(matching) == size else 0
        found = _claimable(matching)
    return Window(found)


async def open_key_lanes(tx: Tx, query: Query, cursors: LaneCursors, *, jobs: int, **scope: Any) -> Window:
    """The keyed lanes whose turn it is: the first of each lane that has any. If there are none for this worker among
    many, a second read looks for its queues and types alone."""
    begin, most = cursors.keyed, STALE_MAX if cursors.stale else _window(jobs, TURNS_MAX, TURNS_MIN)

    async def read(after: int, *, named: bool = False) -> list[Row]:
        return await tx.all(query, after=after, named=named, most=most, limit=KEYED_MAX, **scope)

    rows = await read(begin)
    turns = Counter(row["lane"] for row in rows)
    cursors.keyed = max(turns) if len(turns) == KEYED_MAX else 0
    if begin and not cursors.keyed:  # the end: begin again
        rows += await read(0)
    found, shut = _with_turns(rows)
    if not found and (begin or cursors.keyed) and (scope["queues"] is not None or scope["types"] is not None):
        matching = await read(cursors.keyed_named, named=True)
        lanes = {row["lane"] for row in matching}
        cursors.keyed_named = max(lanes) if len(lanes) == KEYED_MAX else 0
        found, shut = _with_turns([*rows, *matching])
    cursors.stale = bool(shut) and not found
    complete = not begin and not cursors.keyed and max(turns.values(), default=0) < most
    return Window(found, complete, shut=shut)


def _with_turns(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The keyed lanes that the worker may claim from, in the order of their turns; and those that are shut."""
    first = {row["id"]: row for row in reversed(rows) if row["type"] is not None and row["id"] is not None}
    shut = [row for row in first.values() if row["head"] is None or row["shut"]]
    found = [row for row in reversed(first.values()) if row["head"] is not None and not row["shut"]]
    return found, shut


def _window(jobs: int, most: int, least: int = WINDOW_MIN) -> int:
    """A power of two: each size of a window of lanes is a prepared statement of its own."""
    return min(most, max(least, 1 << (jobs - 1).bit_length()))


def _claimable(rows: list[Row]) -> list[Row]:
    """Without lanes that the worker may not claim from, and without repeats."""
    return list({row["id"]: row for row in rows if row["type"] is not None and row["head"] is not None}.values())


def is_plain(lane: Row) -> bool:
    """Nothing about it depends on the worker, on hooks or on limits."""
    return not (lane["hooked"] or lane["picky"] or lane["limited"])


def _tenants(rows: list[Row]) -> set[int]:
    return {row["id"] >> 32 for row in rows}


def _last(rows: list[Row]) -> int:
    return max(int(row["id"]) for row in rows)


async def aged(tx: Tx, heads: list[OpenHead], seconds: float) -> list[OpenHead]:
    """The head of each priority of a lane: one that has waited longer counts as more urgent."""
    by_lane = {head.lane: head for head in heads}
    asked = [(head.lane, head.priority) for head in heads]
    return [
        by_lane[row["lane"]].aged(row["priority"], row["head"], int(row["waited"] / seconds))
        for row in await tx.all(q.lane_levels, asked=asked, limit=LEVELS_MAX)
    ]
