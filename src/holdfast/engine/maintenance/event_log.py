"""Rebase the event log after a dump of the database was restored on another PostgreSQL server.

A position in the log is a transaction id plus a base. A new server starts with low transaction ids, so new events would
sort before the restored ones, and readers that have read those would never see them.
"""

from __future__ import annotations

import logging

from holdfast.store import Tx, q
from holdfast.store.queries import Query

JUMP = 2**32  # more transactions than the old server can have run since the dump

_LOCK = Query("lock_event_log", "LOCK TABLE holdfast_event_log IN ACCESS EXCLUSIVE MODE")

_REBASED = (
    "the database was restored on another server, whose transaction ids are lower than the positions in the event "
    "log; the log was rebased: webhooks and streams continue where they were"
)

log = logging.getLogger(__name__)


async def is_ahead(tx: Tx) -> bool:
    """Whether the log contains positions that this server has not assigned."""
    [row] = await tx.all(q.log_is_ahead)
    return bool(row["ahead"])


async def rebase_within(tx: Tx) -> None:
    """In a transaction that has not read the log: two that had read it would deadlock on the table lock."""
    await tx.all(_LOCK)
    if await is_ahead(tx):  # another process may have done it
        await tx.all(q.rebase, jump=JUMP)
        tx.after_commit(lambda: log.warning(_REBASED))
