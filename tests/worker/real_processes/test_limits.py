"""Limits with real worker processes, one of which is killed: its units are free after recovery, and never exceeded."""

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import pytest

from holdfast.lifecycle import State
from holdfast.model import Job
from holdfast.model.limits import Limit
from tests.engine.limiting import held_by_jobs
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]


async def test_the_units_of_a_killed_worker_are_free_after_recovery_and_no_limit_is_exceeded(
    harness: OpenHarness,
) -> None:
    on = await harness()  # the lease is 30 s: recovery must not wait for it
    engine = await on.engine()
    await engine.job_limits.set("type:on_the_loop", Limit(2), by="olga")
    await engine.job_limits.set("key:on_the_loop", Limit(1), by="olga")
    doomed = await on.start("--name", "doomed")
    held = [await jobs.on_the_loop.options(limit_key=key).enqueue(seconds=100) for key in "ab"]
    for job in held:
        await on.started(job)
    waiting = [await jobs.on_the_loop.options(limit_key=key).enqueue() for key in "abcabc"]
    beside = await jobs.innocent.enqueue(seconds=0)
    await on.start("--name", "heir")
    assert (await on.final(beside)).state is State.SUCCEEDED  # what has no limit is not affected
    assert await held_by_jobs(engine) == {"type:on_the_loop": 2, "key:on_the_loop a": 1, "key:on_the_loop b": 1}
    doomed.signal(signal.SIGKILL)

    done = [await on.final(job) for job in (*held, *waiting)]
    assert {job.state for job in done} == {State.SUCCEEDED}
    assert [job.lost for job in done] == [1, 1, *[0] * len(waiting)]
    assert await held_by_jobs(engine) == {}
    assert await most_at_once(on, done) <= 2
    for key in "abc":
        assert await most_at_once(on, [job for job in done if job.limit_key == key]) <= 1


async def most_at_once(on: WorkerHarness, done: Iterable[Job]) -> int:
    """How many of these jobs ran at the same time, by their histories."""
    changes: Counter[tuple[float, int]] = Counter()
    for job in done:
        for event in await (await on.engine()).reads.history(job.id):
            if event.verb == "claim":
                changes[event.at.timestamp(), 1] += 1
            elif event.from_state == State.RUNNING and event.to_state is not None:
                changes[event.at.timestamp(), -1] += 1
    running = most = 0
    for _, change in sorted(changes.elements()):
        running += change
        most = max(most, running)
    return most
