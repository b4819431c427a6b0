"""The positions of the event log, after a dump of the database was loaded into another PostgreSQL server.

A position is the number of a transaction plus a base. The transactions of a new server begin with low numbers, so new
events would stand before those that the dump brought, and readers, who are behind these, would never be told of them.
"""

from __future__ import annotations

import logging

from holdfast.store import PostgresStore, SqliteStore, Tx, q
from holdfast.store.queries import Query

JUMP = 2**32  # more transactions than a server that was lost may have had since its dump was taken

_LOCK = Query("lock_event_log", "LOCK TABLE holdfast_event_log IN ACCESS EXCLUSIVE MODE")

log = logging.getLogger(__name__)


async def is_ahead(tx: Tx) -> bool:
    """Does the log hold positions that this server has not given out?"""
    [row] = await tx.all(q.log_is_ahead)
    return bool(row["ahead"])


async def rebase(store: PostgresStore | SqliteStore) -> bool:
    """Put new events behind all that are there, if they would not be. True if that was needed."""
    if not isinstance(store, PostgresStore) or not await store.read(is_ahead):
        return False

    # All who write wait behind us while we wait for a long transaction. So this is tried once, with a short timeout;
    # maintenance tries again.
    await store.write(rebase_within, retry_locked=False)
    return True


async def rebase_within(tx: Tx) -> None:
    """The same in a transaction that has not read the log: two that had, and then waited for the lock, would be in each
    other's way."""
    await tx.all(_LOCK)
    if await is_ahead(tx):  # no other process was faster
        await tx.all(q.rebase, jump=JUMP)
        tx.after_commit(_tell)


def _tell() -> None:
    log.warning(
        "this database was loaded into another server, whose transactions have lower numbers than the positions of "
        "its events; new events are put behind these: webhooks and streams go on where they were"
    )
