"""The promises of a lease, as stories."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import LeaseLost
from holdfast.lifecycle import State
from holdfast.model import NewJob


async def test_a_reaped_job_cannot_be_completed_by_its_old_holder(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    job = await engine.create(NewJob(type="echo"))
    [held] = await engine.claim(worker)
    clock.advance(31)
    await engine.reap()

    with pytest.raises(LeaseLost):
        await engine.complete(worker, held.id, held.token)

    assert (await engine.get(job.id)).state is State.RETRYING
