"""Canceling a running job ends it soon, on the loop, in a thread and in a process, even if it ignores the request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

SHORT = {"cancel_grace_seconds": 3}


async def test_a_canceled_job_ends_on_the_loop_in_a_thread_and_in_a_process(
    harness: OpenHarness,
) -> None:
    on = await harness()
    await asyncio.gather(
        check_handlers_that_end_or_are_killed(on, "polite"),
        check_thread_that_ends_with_its_worker_process(on, "stubborn"),
    )


async def check_handlers_that_end_or_are_killed(on: WorkerHarness, queue: str) -> None:
    command = await on.start("--queues", queue)
    running = [
        await jobs.on_the_loop.options(queue=queue).enqueue(seconds=100),
        await jobs.until_canceled.options(queue=queue).enqueue(),
        await jobs.in_a_process.options(queue=queue, policy=SHORT).enqueue(seconds=100),  # it holds the GIL
    ]
    for job in running:
        await on.started(job)
    assert [await job.cancel() for job in running] == [False] * 3
    for job in running:
        done = await on.final(job)
        assert (done.state, done.attempt) == (State.CANCELED, 1)
        took = (done.finished_at - done.cancel_requested_at).total_seconds()
        print(f"{done.type} ended {took:.2f} s after its cancel")
    await eventually(lambda: not command.children)


async def check_thread_that_ends_with_its_worker_process(on: WorkerHarness, queue: str) -> None:
    """A thread that ignores the cancel keeps its slot, the only one."""
    command = await on.start("--queues", queue, "--concurrency", "1")
    job = await jobs.in_a_thread.options(queue=queue, policy=SHORT).enqueue(seconds=100)
    worker = await on.started(job)
    await job.cancel()
    assert (await on.final(job)).state is State.CANCELED
    await command.ready(2)
    assert worker not in command.workers
    after = await jobs.innocent.options(queue=queue).enqueue()
    assert (await on.final(after)).state is State.SUCCEEDED
