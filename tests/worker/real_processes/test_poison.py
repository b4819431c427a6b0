"""Jobs that crash, block or return invalid results: each ends, and no other job is affected."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.lifecycle import State
from holdfast.sdk.definitions import Definition
from holdfast.sdk.handle import JobHandle
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

INNOCENT = 30
QUICK_RETRIES = {"backoff_base": 0.1, "backoff_cap": 0.2}


async def test_every_poison_job_ends_and_every_other_job_succeeds(harness: OpenHarness) -> None:
    on = await harness(**QUICK_RETRIES)
    await asyncio.gather(
        check_job_that_crashes_the_worker(on, jobs.exits),
        check_job_that_crashes_the_worker(on, jobs.segfaults),
        check_job_that_blocks_the_loop(on, "blockers"),
        check_jobs_that_only_fail(on, "nuisances"),
    )


async def check_job_that_crashes_the_worker(on: WorkerHarness, crash: Definition[[], Any]) -> None:
    """It crashes two workers, then only the child process that it is given: nothing else loses a third lease.

    Each has a queue and a worker of its own: beside a second one, the third attempt could be lost with the worker.
    """
    queue = f"jobs-beside-{crash.name}"
    command = await on.start("--queues", queue)
    around = await innocents(queue)
    job = await crash.options(queue=queue, max_attempts=3).enqueue()
    around += await innocents(queue)
    done = await on.final(job)
    assert (done.state, done.reason) == (State.DEAD, "poison")
    assert await executions(on, job) == ["lost", "lost", "failed"]
    await all_done(on, around)
    assert deaths(command) <= 3  # K18


async def check_job_that_blocks_the_loop(on: WorkerHarness, queue: str) -> None:
    """A job that blocks the event loop is ended with its worker process."""
    command = await on.start("--queues", queue)
    around = await innocents(queue)
    job = await jobs.spins_on_the_loop.options(queue=queue, max_attempts=1).enqueue()
    around += await innocents(queue)
    done = await on.final(job)
    assert (done.state, done.error["code"], await executions(on, job)) == (State.DEAD, "E_TIMEOUT", ["lost"])
    await all_done(on, around)
    assert "killing unresponsive worker process" in command.log
    assert deaths(command) == 1


async def check_jobs_that_only_fail(on: WorkerHarness, queue: str) -> None:
    """Jobs that fail without affecting their worker process."""
    command = await on.start("--queues", queue, "--concurrency", "20")
    around = await innocents(queue)
    endings = {
        jobs.exits_in_a_process: "E_CRASHED",
        jobs.segfaults_in_a_process: "E_CRASHED",
        jobs.out_of_memory: "MemoryError",
        jobs.spins_in_a_process: "timeout",
        jobs.spins_in_a_thread: "timeout",
        jobs.swallows_cancellation: "timeout",
        jobs.swallows_cancellation_in_a_process: "timeout",
        jobs.returns_no_json: "result_not_json",
        jobs.returns_too_much: "result_too_large",
    }
    bad = {await job.options(queue=queue, max_attempts=1).enqueue(): code for job, code in endings.items()}
    retried = await jobs.exits_in_a_process.options(queue=queue, max_attempts=2).enqueue()
    loud = await jobs.prints.options(queue=queue).enqueue(mebibytes=64)
    for job, code in bad.items():
        done = await on.final(job)
        assert (done.state, done.error["code"], await executions(on, job)) == (State.DEAD, code, ["failed"])
    assert (await on.final(retried)).state is State.DEAD
    assert await executions(on, retried) == ["failed", "failed"]
    assert (await on.final(loud)).result == command.printed == 64 * 2**20
    await all_done(on, around)
    assert deaths(command) == 0


async def test_a_job_that_prints_a_gibibyte_succeeds(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    loud = await jobs.prints.enqueue(mebibytes=1024)
    assert (await on.final(loud)).result == command.printed == 2**30


async def executions(on: WorkerHarness, job: JobHandle[Any]) -> list[str]:
    """A job on its last attempt may be claimed and given back: it must not wait beside others."""
    return [outcome for outcome in await on.outcomes(job) if outcome != "released"]


async def innocents(queue: str) -> list[JobHandle[Any]]:
    return await jobs.innocent.options(queue=queue, max_attempts=3).enqueue_many([{}] * INNOCENT)


async def all_done(on: WorkerHarness, around: list[JobHandle[Any]]) -> None:
    finals = [await on.final(job) for job in around]
    print(f"innocent jobs by losses: {[[job.lost for job in finals].count(n) for n in range(3)]}")
    assert {job.state for job in finals} == {State.SUCCEEDED}


def deaths(command: Command) -> int:
    return command.log.count("worker process exited with")
