"""Backlogs of jobs that a claim does not select: they must not slow it down."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.databases import Database, job_tables
from benchmarks.implementations import TYPE, EngineCalls
from holdfast.model import NewJob

_MONTH_SECONDS = 30 * 86_400
_HELD_QUEUE = "held"

# Older than any job of the run, so that a backlog of equal priority comes first.
_ID = {
    "postgres": "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
    "sqlite": "printf('01900000-0000-7000-8000-%012x', n)",
}


@dataclass(frozen=True)
class Backlog:
    """`count` copies of one real job with all its history."""

    name: str
    count: int
    job: NewJob
    finished: bool = False
    paused: bool = False

    async def load(self, ours: EngineCalls) -> None:
        """Load it into an empty database."""
        await ours.engine.create(self.job)
        if self.finished:
            await ours.complete(await ours.claim(1))
        if self.paused:
            await ours.engine.queues.pause(_HELD_QUEUE)
        await _multiply(ours.database, self.count)
        await ours.database.settle(*ours.tables)
        await ours.database.flush()


def backlogs(million: int) -> list[Backlog]:
    """The drained jobs have priority 1: the first backlog comes after them, the others before them."""
    head = million // 10
    return [
        Backlog(f"{million:,} ready behind", million, NewJob(type=TYPE)),
        Backlog(f"{million:,} finished", million, NewJob(type=TYPE), finished=True),
        Backlog(
            f"{million:,} delayed, higher priority",
            million,
            NewJob(type=TYPE, priority=100, delay_seconds=_MONTH_SECONDS),
        ),
        Backlog(f"{head:,} at the head, another type", head, NewJob(type="other", priority=100)),
        Backlog(f"{head:,} at the head, a capability", head, NewJob(type=TYPE, priority=100, requires=["gpu"])),
        Backlog(
            f"{head:,} at the head, a paused queue",
            head,
            NewJob(type=TYPE, priority=100, queue=_HELD_QUEUE),
            paused=True,
        ),
    ]


async def _multiply(database: Database, count: int) -> None:
    """Copy the only job there is, with its rows in every other table."""
    async with database.without_triggers():
        await database.run("BEGIN")
        for table, key in (await job_tables(database)).items():
            kept = [name for name in await database.columns(table) if name not in (key, "pos")]
            await database.run(
                f"INSERT INTO {table} ({key}, {', '.join(kept)})"
                f" WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
                f" SELECT {_ID[database.dialect]}, {', '.join(kept)} FROM numbers CROSS JOIN {table}"
            )
        await database.run("COMMIT")
