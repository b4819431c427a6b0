"""Stopped and busy workers: which one keeps its lease, and whose report is accepted."""

import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.sdk.handle import JobHandle
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

SHORT = {"lease_seconds": 3, "heartbeat_seconds": 0.5, "sweep_seconds": 1, "startup_grace_seconds": 0}
STEADY = {**SHORT, "lease_seconds": 6}  # a busy machine may keep a heartbeat waiting for some seconds
LEASES = 3


async def test_a_worker_stopped_past_its_lease_loses_its_jobs_and_its_late_reports_are_rejected(
    harness: OpenHarness,
) -> None:
    on = await harness(**SHORT)
    held = [await stopped(on, "itself"), await stopped(on, "frozen", all_processes=True)]
    await on.start()
    for _, *both in held:
        assert [(await on.final(job)).result for job in both] == [2, 2]
    for command, lingering, returned in held:
        command.signal(signal.SIGCONT, command.pids())
        await eventually(lambda job=lingering: on.handler_log.notes("interrupted", job.id))
        assert [note["lost"] for note in on.handler_log.notes("interrupted", lingering.id)] == [True]
        await eventually(lambda log=command, job=returned: f"job {job.id}: its outcome was rejected" in log.log)
        for job in (lingering, returned):
            done = await on.final(job)
            assert (done.state, done.result, done.lost) == (State.SUCCEEDED, 2, 1)
            assert [(attempt.outcome, attempt.reason) for attempt in await on.attempts(job)] == [
                ("lost", "lease_expired"),
                ("succeeded", None),
            ]
    more = await jobs.on_the_loop.enqueue_many([{}] * 20)  # all go on
    assert {(await on.final(job)).attempt for job in more} == {1}


async def stopped(
    on: WorkerHarness, queue: str, *, all_processes: bool = False
) -> tuple[Command, JobHandle[Any], JobHandle[Any]]:
    """A worker process that is stopped while it runs one job and has not yet reported another."""
    for number in range(1, 6):
        command, lingering, returned = await stopped_by_its_job(on, f"{queue}-{number}")
        if await on.writable():
            if all_processes:
                await on.freeze(command, command.pids() - command.workers)
            return command, lingering, returned
        await command.close()
    raise AssertionError("each worker was stopped in the middle of a transaction")


async def stopped_by_its_job(on: WorkerHarness, queue: str) -> tuple[Command, JobHandle[Any], JobHandle[Any]]:
    command = await on.start("--queues", queue)
    await eventually(on.all_kept)
    lingering = await jobs.on_the_loop.options(queue=queue).enqueue(seconds=100)
    await on.started(lingering)
    returned = await jobs.stopped_after_return.options(queue=queue).enqueue()  # it stops its process itself
    await eventually(lambda: on.handler_log.notes("signalled", returned.id))
    return command, lingering, returned


async def test_long_jobs_keep_their_worker_while_twenty_workers_start_and_stop(harness: OpenHarness) -> None:
    on = await harness(**STEADY, stop_grace_seconds=0.2)
    for queue in ("steady", "deaf"):
        await on.start("--queues", queue)
    await eventually(on.all_kept)
    seconds = LEASES * STEADY["lease_seconds"]
    long = [
        await job.options(queue="steady").enqueue(seconds=seconds)
        for job in (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process)
    ]
    long.append(await jobs.holding_the_gil.options(queue="deaf").enqueue(seconds=seconds))
    for job in long:
        await on.started(job)

    slow = await jobs.innocent.options(queue="passing").enqueue_many([{"seconds": 0.5}] * 40)
    quick = await jobs.in_a_thread.options(queue="passing").enqueue_many([{"seconds": 0.02}] * 400)
    await start_and_stop_workers(on, times=20)
    for job in long:  # K12, K21, K25
        done = await on.final(job)
        assert (done.state, done.result, await on.outcomes(job)) == (State.SUCCEEDED, 1, ["succeeded"])
    await on.start("--queues", "passing", "--concurrency", "50")
    finals = [await on.final(job) for job in (*slow, *quick)]
    assert {(job.state, job.attempt, job.lost) for job in finals} == {(State.SUCCEEDED, 1, 0)}  # K20
    print(f"given back {(given_back := sum(job.epoch - 1 for job in finals))} times")
    assert given_back


async def start_and_stop_workers(on: WorkerHarness, *, times: int) -> None:
    """Two at a time: SIGTERM as soon as they work."""
    for _ in range(times // 2):
        pair = [await on.start("--queues", "passing", "--concurrency", "2", ready=0) for _ in range(2)]
        for command in pair:
            await command.ready()
        assert [await command.stop() for command in pair] == [0, 0]
