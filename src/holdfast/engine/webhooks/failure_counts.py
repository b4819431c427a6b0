"""Failure counts of the whole installation, from the event log: independent of webhooks and of process restarts."""

from __future__ import annotations

import msgspec

from holdfast.engine.reads.read import Cursor
from holdfast.lifecycle import State
from holdfast.store import Row, Tx, q

NAME = "failures"  # of the reader, and of the figures
PAGE = 1000


class FailureCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Attempts that failed or were lost; of these, the reaped ones; and jobs that used up their attempts."""

    failures: int = 0
    stale_jobs_recovered: int = 0
    max_retries_exceeded: int = 0


async def counts(tx: Tx) -> FailureCounts:
    row = await tx.one(q.counted, name=NAME)
    return msgspec.json.decode(row["figures"], type=FailureCounts) if row is not None else FailureCounts()


async def has_news(tx: Tx) -> bool:
    """Checked without a lock, so that a process locks the reader only if there is something to count."""
    row = await tx.one(q.reader, name=NAME)
    return bool(await _page(tx, Cursor() if row is None else Cursor.of(row), limit=1))


async def count(tx: Tx) -> bool:
    """Count one page of the log; True if there may be more. If another process holds the reader, that one counts."""
    row = await tx.one(q.locked_reader, name=NAME) or await tx.one(q.put_reader, name=NAME, **Cursor()._asdict())
    if row is None:
        return False
    rows = await _page(tx, Cursor.of(row), limit=PAGE)
    if rows:
        figures = msgspec.json.encode(_added(await counts(tx), rows)).decode()
        await tx.one(q.put_figures, name=NAME, figures=figures)
        await tx.one(q.advance_reader, name=NAME, **Cursor.of(rows[-1])._asdict())
    return len(rows) == PAGE


async def _page(tx: Tx, after: Cursor, *, limit: int) -> list[Row]:
    return await tx.all(q.failures, **after._asdict(), limit=limit)


def _added(known: FailureCounts, rows: list[Row]) -> FailureCounts:
    return FailureCounts(
        known.failures + len(rows),
        known.stale_jobs_recovered + sum(row["verb"] == "reap" for row in rows),
        known.max_retries_exceeded + sum(_is_spent(row) for row in rows),
    )


def _is_spent(row: Row) -> bool:
    """The job used up its attempts. False for a pruned job, whose maximum is unknown."""
    most = row["max_attempts"]
    return row["to_state"] == State.DEAD and most is not None and row["attempt"] >= most
