"""Cancel of a job that runs: it ends soon, wherever it runs and however little it cares."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Stage

pytestmark = pytest.mark.slow
OpenStage = Callable[..., Awaitable[Stage]]

SHORT = {"cancel_grace_seconds": 3}


async def test_a_running_job_that_is_canceled_ends_wherever_it_runs(stage: OpenStage) -> None:
    on = await stage()
    command = await on.start()
    running = [
        await jobs.on_the_loop.enqueue(seconds=100),
        await jobs.until_canceled.enqueue(),
        await jobs.in_a_process.options(policy=SHORT).enqueue(seconds=100),  # it holds the GIL: only a kill helps
    ]
    for job in running:
        await on.started(job)
    assert [await job.cancel() for job in running] == [False] * 3
    for job in running:
        done = await on.final(job, seconds=20)
        assert (done.state, done.attempt) == (State.CANCELED, 1)
        took = (done.finished_at - done.cancel_requested_at).total_seconds()
        print(f"{done.type} ended {took:.2f} s after its cancel")
    assert not command.children


async def test_a_thread_that_ignores_everything_costs_a_slot_and_then_the_process(stage: OpenStage) -> None:
    on = await stage()
    command = await on.start("--concurrency", "1")
    job = await jobs.in_a_thread.options(policy=SHORT).enqueue(seconds=100)
    worker = await on.started(job)
    await job.cancel()
    done = await on.final(job, seconds=20)
    assert done.state is State.CANCELED
    await command.ready(2)
    assert worker not in command.workers
    after = await jobs.innocent.enqueue()
    assert (await on.final(after)).state is State.SUCCEEDED
