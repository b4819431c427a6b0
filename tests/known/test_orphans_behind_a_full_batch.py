"""Jobs that only other processes may accept do not hide orphans from maintenance (K2)."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits
from holdfast.ids import SeededIds
from holdfast.lifecycle import Lifecycles, State
from holdfast.model import NewJob
from holdfast.store import open_store
from tests.pure.declared import declare

BY_HAND = declare(
    "approval", words={"created": "drafted"}, moves=["accept: created -> queued by api"]
)  # the system may not accept these
BATCH = 10


@pytest.mark.parametrize("policies", [1, 25], ids=["of one policy", "of many policies"])
async def test_orphans_are_found_behind_a_full_batch_of_jobs_that_only_others_may_accept(
    store_url: str, clock: MovableClock, policies: int
) -> None:
    ids = SeededIds(3)
    engine = Engine(
        await open_store(store_url, clock, ids),
        lifecycles=Lifecycles(BY_HAND),
        clock=clock,
        ids=ids,
        limits=EngineLimits(sweep_batch=BATCH),
    )
    drafts = [
        NewJob(type="draft", lifecycle="approval", policy={"lease_seconds": 30 + n % policies})
        for n in range(5 * BATCH)
    ]
    await engine.create_many(drafts, accept=False)
    clock.advance(1)
    orphans = await engine.create_many([NewJob(type="n", lifecycle="orchestration")] * (BATCH + 2), accept=False)
    clock.advance(60)

    assert await engine.maintenance.accept_orphans() == BATCH
    assert await engine.maintenance.accept_orphans() == 2

    states = [(await engine.reads.get(orphan.id)).state for orphan in orphans]
    assert states == [State.QUEUED] * len(orphans)
    assert await engine.maintenance.accept_orphans() == 0
    await engine.close()
