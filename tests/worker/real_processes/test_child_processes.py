"""Child processes cost memory: no more than there are cores, and idle ones end."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.sdk.handle import JobHandle
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]


async def test_ten_slots_of_process_jobs_start_no_more_children_than_cores_and_idle_ones_end(
    harness: OpenHarness,
) -> None:
    on = await harness(child_idle_seconds=1)
    command = await on.start("--concurrency", "10")
    many = [await jobs.in_a_process.options(max_attempts=1).enqueue() for _ in range(10)]
    seen: set[int] = set()
    ends = asyncio.gather(*map(on.final, many))
    while not ends.done():
        seen |= (now := command.children)
        assert len(now) <= len(os.sched_getaffinity(0))
        await asyncio.sleep(0.02)
    assert {job.state for job in await ends} == {State.SUCCEEDED}
    assert seen
    await eventually(lambda: not command.children)
    again = await jobs.in_a_process.enqueue()
    assert (await on.final(again)).state is State.SUCCEEDED


async def test_a_process_job_stays_queued_while_no_child_is_free_and_other_jobs_run(
    harness: OpenHarness,
) -> None:
    """Held by the worker it could be reaped although it never started."""
    on = await harness(child_processes_max=1)
    first = await jobs.in_a_process.enqueue(seconds=8)
    second = await jobs.in_a_process.enqueue()
    third = await jobs.in_a_thread.enqueue()
    await on.start("--concurrency", "4")
    ended = {job: await on.final(job) for job in (third, first, second)}
    assert {job.state for job in ended.values()} == {State.SUCCEEDED}
    assert ended[third].finished_at < ended[first].finished_at < ended[second].finished_at
    assert await verbs(on, [second]) == {"create": 1, "claim": 1, "complete": 1}


async def test_a_queue_of_slow_process_jobs_among_others_completes_without_releases(
    harness: OpenHarness,
) -> None:
    """A worker claims as many of them as child processes are free, whatever else it has slots for."""
    on = await harness(child_processes_max=2)
    slow = [await jobs.in_a_process.enqueue(seconds=1) for _ in range(8)]
    quick = [await jobs.on_the_loop.enqueue(seconds=0.02) for _ in range(100)]
    await on.start("--concurrency", "10")
    assert {(await on.final(job)).state for job in slow + quick} == {State.SUCCEEDED}
    assert await verbs(on, slow + quick) == dict.fromkeys(("create", "claim", "complete"), 108)


async def verbs(on: WorkerHarness, handles: list[JobHandle[Any]]) -> Counter[str]:
    engine = await on.engine()
    return Counter([event.verb for job in handles for event in await engine.reads.history(job.id)])
