"""kill -9 of a worker with all its processes, and of single worker processes."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from holdfast.model import Job
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually, parent

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

WATCHED_SECONDS = 3.5  # longer than the crash detector needs
RECOVERED_SECONDS = 60  # on a busy machine: 5 is the aim, and printed
SURVIVAL_SECONDS = 60  # on a busy machine: 1 is the aim


async def test_jobs_of_a_killed_worker_restart_within_seconds_and_no_process_is_left(harness: OpenHarness) -> None:
    on = await harness()  # the lease is 30 s: recovery must not wait for it
    doomed = await on.start("--name", "the same")
    running = [
        await jobs.on_the_loop.enqueue(seconds=100),
        await jobs.in_a_thread.enqueue(seconds=100),
        await jobs.in_a_process.enqueue(seconds=100),
    ]
    for job in running:
        await on.started(job)
    await on.start("--name", "the same")
    await asyncio.sleep(WATCHED_SECONDS)
    assert [await on.outcomes(job) for job in running] == [[], [], []]  # K21: it has left the live leases alone

    assert [len(doomed.workers), len(doomed.heartbeat_processes), len(doomed.children)] == [1, 1, 1]
    killed_at = time.time()
    doomed.signal(signal.SIGKILL)
    await eventually(lambda: not doomed.pids(), SURVIVAL_SECONDS)
    print(f"nothing of it was left after {time.time() - killed_at:.2f} s")

    for job in running:
        await one_attempt_lost(on, await on.final(job), killed_at)
        lost, done = await on.attempts(job)
        assert lost.worker_id != done.worker_id  # K11: a name is no identity
        assert lost.instance != done.instance


async def test_a_killed_worker_process_is_replaced_and_its_jobs_restart(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start("--processes", "3", "--concurrency", "1", ready=3)
    command.signal(signal.SIGKILL, [min(command.workers)])  # idle
    await command.ready(4)

    beside = await jobs.in_a_process.enqueue(seconds=100)
    inside = await jobs.on_the_loop.enqueue(seconds=100)
    busy = {await on.started(inside), parent(await on.started(beside))}
    by_themselves = [await jobs.killed_before_start.enqueue(), await jobs.killed_after_return.enqueue()]
    with_them = set().union(*(command.kin(pid) for pid in busy))
    assert (len(busy), len(with_them)) == (2, 3)  # two heartbeat processes and a child
    killed_at = time.time()
    command.signal(signal.SIGKILL, busy)
    await eventually(lambda: not with_them & command.pids(), SURVIVAL_SECONDS)

    for job in (beside, inside):
        await one_attempt_lost(on, await on.final(job), killed_at)
    for job in by_themselves:
        done = await on.final(job)
        [struck] = on.handler_log.notes("signalled", job.id)
        await one_attempt_lost(on, done, struck["at"])
    assert await command.stop() == 0


async def one_attempt_lost(on: WorkerHarness, job: Job, killed_at: float) -> None:
    assert (job.state, job.attempt, job.lost) == (State.SUCCEEDED, 2, 1)
    lost, *given_back, done = await on.attempts(job)  # a worker that is being replaced may have had it for a moment
    assert {attempt.outcome for attempt in given_back} <= {"released"}
    assert (lost.outcome, lost.reason, done.outcome) == ("lost", "worker_died", "succeeded")
    took = await on.claimed_at(job, 2) - killed_at
    print(f"{job.type} started again after {took:.2f} s")
    assert took < RECOVERED_SECONDS
