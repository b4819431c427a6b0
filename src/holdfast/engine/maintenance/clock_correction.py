"""A clock that was set back: times that lie in the future, though they are past, are corrected.

Without that, an hour back stops retries, recovery and webhooks for an hour. The last sweep shows it: it cannot have
been after now.
"""

from __future__ import annotations

import logging

from holdfast.engine.context import EngineContext
from holdfast.store import PostgresStore, SqliteStore, Tx, q

STEPS_MAX = 100  # of one statement in one call; the next sweep goes on

log = logging.getLogger(__name__)


async def correct_times(store: PostgresStore | SqliteStore, ctx: EngineContext) -> None:
    """In bounded steps, each of which may be repeated; the last one says that it is done."""
    most, jobs = ctx.limits.sweep_batch, 0
    for query in (q.leases_set_back, q.delays_set_back, q.retries_set_back):
        for _ in range(STEPS_MAX):
            corrected = len(await store.write(lambda tx, query=query: tx.all(query, limit=most)))  # type: ignore[misc]
            jobs += corrected
            if corrected < most:
                break
        else:
            log.warning("the database's clock was set back: corrected the times of %d jobs, more are left", jobs)
            return
    if await store.write(_correct_the_rest):
        log.warning("the database's clock was set back: corrected the times of %d jobs", jobs)


async def _correct_the_rest(tx: Tx) -> bool:
    if await tx.one(q.sweeps_set_back) is None:  # another process was faster
        return False
    await tx.all(q.workers_set_back)
    await tx.all(q.deliveries_set_back)
    await tx.all(q.counts_set_back)
    await tx.all(q.grace_set_back)
    return True
