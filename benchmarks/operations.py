"""The operations of a round, the same for both implementations: preparations, and what is timed."""

from __future__ import annotations

from benchmarks.implementations import REAP_BATCH, Implementation

CREATE_MAX = 1000

# -- preparations ------------------------------------------------------------------------------------------------


async def empty(side: Implementation) -> None:
    await side.database.clear(*side.tables)


async def fill(side: Implementation, *, jobs: int, priority: int = 0) -> None:
    for start in range(0, jobs, CREATE_MAX):
        await side.create(min(CREATE_MAX, jobs - start), priority=priority)
    await side.database.settle(*side.tables)


async def filled(side: Implementation, *, jobs: int) -> None:
    await empty(side)
    await fill(side, jobs=jobs)


async def holding(side: Implementation, *, jobs: int) -> None:
    await filled(side, jobs=jobs)
    side.held = await side.claim(jobs)


async def abandoned(side: Implementation, *, jobs: int) -> None:
    """All jobs are claimed, and every lease has expired."""
    await filled(side, jobs=jobs)
    for _ in range(jobs // CREATE_MAX):
        await side.claim(CREATE_MAX)
    await side.database.run(f"UPDATE {side.tables[0]} SET lease_expires_at = claimed_at")
    await side.database.settle(*side.tables)


# -- timed: each returns its units of work -------------------------------------------------------------------------


async def create(side: Implementation, *, calls: int, by: int) -> int:
    for _ in range(calls):
        await side.create(by)
    return calls * by


async def drain(side: Implementation, *, jobs: int, by: int) -> int:
    for _ in range(jobs // by):
        leases = await side.claim(by)
        assert len(leases) == by
        await side.complete(leases)
    return jobs


async def beat(side: Implementation) -> int:
    await side.heartbeat(side.held)
    return len(side.held)


async def reap(side: Implementation) -> int:
    found = await side.reap()
    assert found == REAP_BATCH
    return found
