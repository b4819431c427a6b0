"""Workers that fall silent, and workers that only seem to: who keeps a lease, and whose word counts."""

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
    worker = await on.started(lingering)
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


async def test_jobs_of_five_leases_stay_where_they_are_while_twenty_workers_come_and_go(stage: OpenStage) -> None:
    on = await stage(**SHORT, stop_grace_seconds=0.2)
    steady, deaf = await on.start("--queues", "steady"), await on.start("--queues", "deaf")
    seconds = LEASES * SHORT["lease_seconds"]
    long = [
        await job.options(queue="steady").enqueue(seconds=seconds)
        for job in (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process)
    ]
    long.append(await jobs.holding_the_gil.options(queue="deaf").enqueue(seconds=seconds))
    for job in long:
        await on.started(job)
    assert deaf.keepers
    steady.signal(signal.SIGKILL, steady.keepers)  # another one takes over

    slow = await jobs.innocent.options(queue="passing").enqueue_many([{"seconds": 0.5}] * 40)
    quick = await jobs.in_a_thread.options(queue="passing").enqueue_many([{"seconds": 0.02}] * 400)
    await come_and_go(on, times=20)
    for job in long:  # K12, K21, K25
        done = await on.final(job)
        assert (done.state, done.result, await on.outcomes(job)) == (State.SUCCEEDED, 1, ["succeeded"])
    await on.start("--queues", "passing", "--concurrency", "50")
    finals = [await on.final(job) for job in (*slow, *quick)]
    assert {(job.state, job.attempt, job.lost) for job in finals} == {(State.SUCCEEDED, 1, 0)}  # K20
    print(f"given back {(given_back := sum(job.epoch - 1 for job in finals))} times")
    assert given_back


async def come_and_go(on: Stage, *, times: int) -> None:
    """Two at a time: SIGTERM as soon as they work."""
    for _ in range(times // 2):
        pair = [await on.start("--queues", "passing", "--concurrency", "2", ready=0) for _ in range(2)]
        for command in pair:
            await command.ready()
        assert [await command.stop() for command in pair] == [0, 0]
