"""Child processes cost memory: there are no more than a machine can use, and none that nobody uses."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Stage, eventually

pytestmark = pytest.mark.slow
OpenStage = Callable[..., Awaitable[Stage]]


async def test_ten_slots_of_process_jobs_start_no_more_children_than_cores_and_idle_ones_end(stage: OpenStage) -> None:
    on = await stage(child_idle_seconds=1)
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


async def test_a_process_job_for_which_no_child_is_free_is_given_back_and_other_jobs_go_on(stage: OpenStage) -> None:
    """Held by the worker it could be reaped although it never started."""
    on = await stage(child_processes_max=1)
    first = await jobs.in_a_process.enqueue(seconds=8)
    second = await jobs.in_a_process.enqueue()
    third = await jobs.in_a_thread.enqueue()
    await on.start("--concurrency", "4")
    ended = {job: await on.final(job) for job in (third, first, second)}
    assert {job.state for job in ended.values()} == {State.SUCCEEDED}
    assert ended[third].finished_at < ended[first].finished_at < ended[second].finished_at
    history = [event.verb for event in await (await on.engine()).history(second.id)]
    assert "release" in history
    assert ended[second].attempt == 1
