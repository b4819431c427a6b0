"""Queue statistics: how many jobs wait and run. One process at a time counts; all processes read the result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.reads.limit_use import LimitUse, limit_use
from holdfast.errors import StoreError
from holdfast.model.limits import TENANT
from holdfast.store import PostgresStore, Row, SqliteStore, Tx, q

NAME = "depths"
NAMES_MAX = 500  # queues, types and limits listed by name; those with the fewest jobs or units are added up
TENANTS = f"{TENANT}*"  # the limits of all tenants together: metrics name no tenant
LATER_MAX = 1_000_000  # delayed jobs that are counted
OTHER = "other"
PATIENCE_SECONDS = 30.0  # after this time another process may count
COUNT_SECONDS = 20.0  # timeout of a count
REST = 20  # pause after a count, as a multiple of its duration


class QueueDepth(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job counts of one queue or type. `waiting` can run now, the oldest for `oldest_seconds`; `paused` could, if
    their queue were not paused."""

    waiting: int = 0
    paused: int = 0
    delayed: int = 0
    retrying: int = 0
    created: int = 0
    running: int = 0
    oldest_seconds: float = 0.0

    @property
    def later(self) -> int:
        """Unfinished jobs that are not running and cannot be claimed yet."""
        return self.paused + self.delayed + self.retrying + self.created

    @property
    def jobs(self) -> int:
        return self.waiting + self.later + self.running

    def __add__(self, other: QueueDepth) -> QueueDepth:
        counts = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__[:-1]}
        return QueueDepth(**counts, oldest_seconds=max(self.oldest_seconds, other.oldest_seconds))


class QueueStats(msgspec.Struct, frozen=True):
    """All tenants together, by queue and by type, the largest first. `counted_at` is None before the first count.
    `slots`: of live, enabled workers; each running job uses one."""

    counted_at: datetime | None = None
    took_seconds: float = 0.0
    queues: dict[str, QueueDepth] = {}
    types: dict[str, QueueDepth] = {}
    workers: dict[str, int] = {}  # by liveness, or `disabled`
    slots: int = 0
    limits: dict[str, LimitUse] = {}

    @property
    def running(self) -> int:
        return sum(depth.running for depth in self.queues.values())


def fullest(most: int, queue_stats: Mapping[str, QueueDepth]) -> dict[str, QueueDepth]:
    """The `most` largest by name, and the others added up."""
    ordered = sorted(queue_stats.items(), key=lambda one: (-one[1].jobs, one[0]))
    kept = dict(ordered[:most])
    if rest := [depth for _, depth in ordered[most:]]:
        kept[OTHER] = sum(rest, kept.get(OTHER, QueueDepth()))
    return kept


def most_used(most: int, limits: Mapping[str, LimitUse]) -> dict[str, LimitUse]:
    """The `most` limits of which most units are in use, and the others added up."""
    ordered = sorted(limits.items(), key=lambda one: (-one[1].used, one[0]))
    kept = dict(ordered[:most])
    if rest := [use for _, use in ordered[most:]]:
        kept[OTHER] = sum(rest, kept.get(OTHER, LimitUse()))
    return kept


async def queue_stats(store: PostgresStore | SqliteStore, ctx: EngineContext, max_age_seconds: float) -> QueueStats:
    """The stored counts if they are recent. Otherwise one caller counts again; until then others get the old counts."""
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
    new = await _recount(store, ctx, known)
    figures = msgspec.json.encode(new).decode()
    await store.write(lambda tx: tx.one(q.end_count, name=NAME, asked_at=turn["asked_at"], figures=figures), alone=True)
    return new


def _read(row: Row | None) -> QueueStats:
    return msgspec.json.decode(row["figures"], type=QueueStats) if row is not None and row["figures"] else QueueStats()


async def _recount(store: PostgresStore | SqliteStore, ctx: EngineContext, known: QueueStats) -> QueueStats:
    """After a timeout or error: the old counts, and a long pause."""
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
        limits=most_used(NAMES_MAX, _without_tenants(await limit_use(tx))),
    )


def _without_tenants(limits: Mapping[str, LimitUse]) -> dict[str, LimitUse]:
    found = {name: use for name, use in limits.items() if not name.startswith(TENANT)}
    if of_tenants := [use for name, use in limits.items() if name.startswith(TENANT)]:
        found[TENANTS] = sum(of_tenants, LimitUse())
    return found


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
