"""depths: how much waits and runs, counted by one process at a time and shown by all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.errors import StoreError
from holdfast.store import PostgresStore, Row, SqliteStore, Tx, q

NAME = "depths"
NAMES_MAX = 500  # of queues, and of types, told apart; those with the fewest jobs are counted together
LATER_MAX = 1_000_000  # delayed jobs that are looked at
OTHER = "other"
PATIENCE_SECONDS = 30.0  # whoever has not counted by then will not
COUNT_SECONDS = 20.0  # a count that takes longer is given up
REST = 20  # times as long as a count took, nobody counts again


class QueueDepth(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs of one kind. `waiting` could run now, the longest of them for `oldest_seconds`; `paused` could, too, if
    their queue were not held back."""

    waiting: int = 0
    paused: int = 0
    delayed: int = 0
    retrying: int = 0
    created: int = 0
    running: int = 0
    oldest_seconds: float = 0.0

    @property
    def later(self) -> int:
        """Not finished, not running, and not to be claimed yet."""
        return self.paused + self.delayed + self.retrying + self.created

    @property
    def jobs(self) -> int:
        return self.waiting + self.later + self.running

    def __add__(self, other: QueueDepth) -> QueueDepth:
        return QueueDepth(
            self.waiting + other.waiting,
            self.paused + other.paused,
            self.delayed + other.delayed,
            self.retrying + other.retrying,
            self.created + other.created,
            self.running + other.running,
            max(self.oldest_seconds, other.oldest_seconds),
        )


class QueueStats(msgspec.Struct, frozen=True):
    """All tenants together, by queue and by type, the fullest first; `counted_at` is None until somebody has counted.
    `slots` are those of enabled workers that live; a running job fills one of them."""

    counted_at: datetime | None = None
    took_seconds: float = 0.0
    queues: dict[str, QueueDepth] = {}
    types: dict[str, QueueDepth] = {}
    workers: dict[str, int] = {}  # by liveness; those switched off are `disabled`
    slots: int = 0

    @property
    def running(self) -> int:
        return sum(depth.running for depth in self.queues.values())


def fullest(most: int, queue_stats: Mapping[str, QueueDepth]) -> dict[str, QueueDepth]:
    """So many by name, and the others together."""
    ordered = sorted(queue_stats.items(), key=lambda one: (-one[1].jobs, one[0]))
    kept = dict(ordered[:most])
    if rest := [depth for _, depth in ordered[most:]]:
        kept[OTHER] = sum(rest, kept.get(OTHER, QueueDepth()))
    return kept


async def queue_stats(store: PostgresStore | SqliteStore, ctx: EngineContext, max_age_seconds: float) -> QueueStats:
    """The figures if they are young enough. Else one caller counts anew, and the others get the old ones meanwhile."""
    row = await store.read(lambda tx: tx.one(q.counted, name=NAME))
    known = _read(row)
    age = max(max_age_seconds, REST * known.took_seconds)
    if row is not None and known.counted_at is not None and _seconds(row["taken_at"], row["seen_at"]) < age:
        return known
    turn = await store.write(
        lambda tx: tx.one(q.begin_count, name=NAME, age=float(age), patience=PATIENCE_SECONDS), alone=True
    )
    if turn is None:
        return known
    new = await _counted_anew(store, ctx, known)
    figures = msgspec.json.encode(new).decode()
    await store.write(lambda tx: tx.one(q.end_count, name=NAME, asked_at=turn["asked_at"], figures=figures), alone=True)
    return new


def _read(row: Row | None) -> QueueStats:
    return msgspec.json.decode(row["figures"], type=QueueStats) if row is not None and row["figures"] else QueueStats()


async def _counted_anew(store: PostgresStore | SqliteStore, ctx: EngineContext, known: QueueStats) -> QueueStats:
    """A count that cannot be finished leaves the old figures, and a long rest."""
    began = ctx.clock.monotonic()
    try:
        async with asyncio.timeout(COUNT_SECONDS):
            found = await store.read(_count)
    except (TimeoutError, StoreError):
        return msgspec.structs.replace(known, took_seconds=max(1.0, ctx.clock.monotonic() - began))
    return msgspec.structs.replace(found, took_seconds=ctx.clock.monotonic() - began)


async def _count(tx: Tx) -> QueueStats:
    crews = await tx.all(q.worker_stats)
    rows = await tx.all(q.queue_stats, limit=LATER_MAX)
    [now] = await tx.all(q.clock)
    return QueueStats(
        counted_at=now["now_at"],
        queues=_by("queue", rows),
        types=_by("type", rows),
        workers={row["status"]: row["workers"] for row in crews},
        slots=sum(row["slots"] for row in crews if row["status"] not in ("offline", "disabled")),
    )


def _by(column: str, rows: list[Row]) -> dict[str, QueueDepth]:
    found: dict[str, QueueDepth] = {}
    for row in rows:
        found[row[column]] = found.get(row[column], QueueDepth()) + _depth(row)
    return fullest(NAMES_MAX, found)


def _depth(row: Row) -> QueueDepth:
    figures: dict[str, Any] = {row["kind"]: row["jobs"]}
    if row["kind"] == "waiting":
        figures["oldest_seconds"] = _seconds(row["oldest_at"], row["seen_at"])
    return QueueDepth(**figures)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
