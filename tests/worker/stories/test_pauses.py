"""Workers that fall silent, and workers that only seem to: who keeps a lease, and whose word counts."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Stage, eventually

pytestmark = pytest.mark.slow
OpenStage = Callable[..., Awaitable[Stage]]

SHORT = {"lease_seconds": 3, "heartbeat_seconds": 1, "sweep_seconds": 1, "startup_grace_seconds": 0}
LEASES = 5


async def test_a_worker_stopped_past_its_lease_is_replaced_and_its_late_words_are_refused(stage: OpenStage) -> None:
    on = await stage(**SHORT)
    stopped = await on.start()
    lingering = await jobs.on_the_loop.enqueue(seconds=100)
    [worker] = {await on.started(lingering)}
    returned = await jobs.stopped_after_return.enqueue()  # it stops its process, all of it
    await eventually(lambda: on.diary.notes("struck", returned.id))
    await on.start()
    for job in (lingering, returned):
        assert (await on.final(job)).result == 2

    stopped.signal(signal.SIGCONT, [worker])
    await eventually(lambda: on.diary.notes("interrupted", lingering.id))
    assert [note["lost"] for note in on.diary.notes("interrupted", lingering.id)] == [True]
    await eventually(lambda: f"job {returned.id}: its end was refused" in stopped.log)
    for job in (lingering, returned):
        done = await on.final(job)
        assert (done.state, done.result, done.lost) == (State.SUCCEEDED, 2, 1)
        lost, _ = await on.attempts(job)
        assert (lost.outcome, lost.reason) == ("lost", "lease_expired")

    more = await jobs.on_the_loop.enqueue_many([{}] * 20)  # both go on
    assert {(await on.final(job)).attempt for job in more} == {1}


async def test_a_job_of_five_leases_is_never_taken_from_a_worker_that_lives(stage: OpenStage) -> None:
    on = await stage(**SHORT)
    await on.start()
    long = [
        await job.enqueue(seconds=LEASES * SHORT["lease_seconds"])
        for job in (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process, jobs.holding_the_gil)
    ]
    for job in long:
        await on.started(job)
    for _ in range(3):  # K21: nor do those that come and go look at what is held
        passing = await on.start()
        await asyncio.sleep(SHORT["lease_seconds"] / 2)
        assert await passing.stop() == 0
    for job in long:
        done = await on.final(job)
        assert (done.state, done.result, await on.outcomes(job)) == (State.SUCCEEDED, 1, ["succeeded"])
