"""Waiting for the event log: readers stop below the oldest transaction that is open on the server, in any database."""

import asyncio

from holdfast.engine import Engine
from holdfast.store import PostgresStore
from holdfast.store.queries import Query

_SETTLED = Query(
    "settled",
    "SELECT (SELECT coalesce(max(pos), 0) FROM holdfast_events)"
    " < pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base AS settled FROM holdfast_event_log",
)


async def settled(engine: Engine) -> None:
    """Until a reader would see all that was committed so far, or for as long as a test may wait for that."""
    if not isinstance(engine.store, PostgresStore):
        return
    for _ in range(200):
        row = await engine.store.read(lambda tx: tx.one(_SETTLED))
        if row is not None and row["settled"]:
            return
        await asyncio.sleep(0.02)
