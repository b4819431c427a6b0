"""Correct stored times after the clock of the database was set back.

Without that, a clock set back by an hour stops retries, recovery, limits and webhooks for an hour. It is detected by
the time of the last sweep, which must not be in the future.
"""

from __future__ import annotations

import logging

from holdfast.engine.context import EngineContext
from holdfast.store import PostgresStore, SqliteStore, Tx, q
from holdfast.store.queries import Query

OF_JOBS = (q.leases_set_back, q.delays_set_back, q.retries_set_back)
OF_LIMITS = (q.turns_set_back, q.tokens_set_back)
STEPS_MAX = 100  # batches per statement and call; the next sweep continues

log = logging.getLogger(__name__)


async def correct_times(store: PostgresStore | SqliteStore, ctx: EngineContext) -> None:
    """In bounded, idempotent steps; the last one marks the correction as done."""
    jobs = 0
    for query in (*OF_JOBS, *OF_LIMITS):
        corrected, more = await _correct(store, query, ctx.limits.sweep_batch)
        jobs += corrected if query in OF_JOBS else 0
        if more:
            log.warning("the clock of the database was set back: corrected the times of %d jobs, more remain", jobs)
            return
    if await store.write(_correct_the_rest):
        log.warning("the clock of the database was set back: corrected the times of %d jobs", jobs)


async def _correct(store: PostgresStore | SqliteStore, query: Query, most: int) -> tuple[int, bool]:
    """The number of corrected rows, and whether there may be more."""
    total = 0
    for _ in range(STEPS_MAX):
        corrected = len(await store.write(lambda tx: tx.all(query, limit=most)))
        total += corrected
        if corrected < most:
            return total, False
    return total, True


async def _correct_the_rest(tx: Tx) -> bool:
    if await tx.one(q.sweeps_set_back) is None:  # another process was faster
        return False
    await tx.all(q.workers_set_back)
    await tx.all(q.limits_set_back)
    await tx.all(q.deliveries_set_back)
    await tx.all(q.counts_set_back)
    await tx.all(q.grace_set_back)
    return True
