"""The baseline of `holdfast bench`: a minimal queue in hand-written SQL on its own table, for comparison only.

Three columns; no history, leases, idempotency keys or checks. It uses the same driver and the same disk.
"""

from __future__ import annotations

from holdfast.store.base import Tx
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Query
from holdfast.store.sqlite import SqliteStore

BATCH = 1000
TAKEN_AT_ONCE = 100

_DROP = Query("baseline_drop", "DROP TABLE IF EXISTS holdfast_bench")
_MAKE = Query(
    "baseline_make",
    "CREATE TABLE holdfast_bench (id integer PRIMARY KEY, state text NOT NULL, payload text NOT NULL)",
)
_INDEX = Query("baseline_index", "CREATE INDEX holdfast_bench_ready ON holdfast_bench (id) WHERE state = 'ready'")
_PUT = Query(
    "baseline_put", "INSERT INTO holdfast_bench (id, state, payload) VALUES (:id, 'ready', :payload) RETURNING id"
)
_PUT_MANY = Query(
    "baseline_put_many",
    """INSERT INTO holdfast_bench (id, state, payload)
       SELECT fresh.id, 'ready', fresh.payload FROM {rows:fresh(id integer, payload text)} WHERE TRUE
       RETURNING id""",
)
_TAKE = Query(
    "baseline_take",
    """UPDATE holdfast_bench SET state = 'taken'
        WHERE id IN (SELECT id FROM holdfast_bench WHERE state = 'ready' ORDER BY id LIMIT {limit} {skip_locked})
       RETURNING id, payload""",
)
_DONE = Query(
    "baseline_done",
    "UPDATE holdfast_bench SET state = 'done' WHERE id {in:ids integer} AND state = 'taken' RETURNING id",
)


class BenchBaseline:
    def __init__(self, store: PostgresStore | SqliteStore, payload: str) -> None:
        self._store, self._payload = store, payload
        self._last = 0

    async def make(self) -> None:
        """Also drops the table of an earlier run that was killed."""

        async def work(tx: Tx) -> None:
            for query in (_DROP, _MAKE, _INDEX):
                await tx.all(query)

        await self._store.write(work)

    async def drop(self) -> None:
        await self._store.write(lambda tx: tx.all(_DROP))

    async def put(self) -> int:
        """One row, one commit."""
        self._last += 1
        await self._store.write(lambda tx: tx.all(_PUT, id=self._last, payload=self._payload), alone=True)
        return 1

    async def put_many(self, count: int) -> int:
        """In one transaction, in batches."""
        rows = [(number, self._payload) for number in range(self._last + 1, self._last + count + 1)]
        self._last += count

        async def work(tx: Tx) -> None:
            for start in range(0, count, BATCH):
                await tx.all(_PUT_MANY, fresh=rows[start : start + BATCH])

        await self._store.write(work)
        return count

    async def take_and_finish(self) -> int:
        """Take a batch and finish it, in two commits; the number of rows."""
        taken = await self._store.write(lambda tx: tx.all(_TAKE, limit=TAKEN_AT_ONCE), alone=True)
        if taken:
            await self._store.write(lambda tx: tx.all(_DONE, ids=[row["id"] for row in taken]), alone=True)
        return len(taken)
