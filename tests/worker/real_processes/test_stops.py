"""SIGTERM and Ctrl-C: finish running jobs, release the rest, lose nothing; a second signal ends immediately."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

CLAIM_SECONDS = 2.5  # less than the grace: no claim begins later than 0.1 s after the signal, if it has a core


async def test_a_worker_stopped_under_load_finishes_or_releases_every_job(harness: OpenHarness) -> None:
    on = await harness(stop_grace_seconds=3)
    command = await on.start("--concurrency", "12")
    too_long = [await job.enqueue(seconds=100) for job in (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process)]
    told = await jobs.until_told.enqueue()
    for job in (*too_long, told):
        await on.started(job)
    in_time = await jobs.in_a_thread.options(priority=50).enqueue(seconds=2)
    await on.started(in_time)
    short = await jobs.on_the_loop.enqueue_many([{"seconds": 0.25}] * 500)  # more than 15 seconds of work
    await on.started(short[0])
    signalled_at = time.time()
    assert await command.stop() == 0
    took = time.time() - signalled_at
    assert not command.pids()

    last_claim = await last_claim_at(on)
    print(f"stopped after {took:.2f} s; the last claim was {last_claim - signalled_at:+.3f} s from the signal")
    assert last_claim < signalled_at + CLAIM_SECONDS
    assert [await on.outcomes(job) for job in too_long] == [["released"]] * 3
    assert (await on.final(in_time)).state is State.SUCCEEDED
    assert (await on.final(told)).result == "saved"
    left = [job for job in short if not (await job.get()).final]
    assert left, "it was not under load when it stopped"
    assert {(await job.get()).state for job in left} == {State.QUEUED}

    await on.start("--concurrency", "50")
    finals = [await on.final(job) for job in (*short, *too_long)]
    assert {(job.state, job.attempt, job.lost, job.failures) for job in finals} == {(State.SUCCEEDED, 1, 0, 0)}


async def last_claim_at(on: WorkerHarness) -> float:
    events, _ = await (await on.engine()).reads.feed(limit=10_000)
    return max(event.at.timestamp() for event in events if event.verb == "claim")


async def test_a_stop_signal_to_parent_group_or_every_process_counts_once(
    harness: OpenHarness,
) -> None:
    on = await harness()
    ways = {
        "parent": lambda command: command.signal(signal.SIGTERM),
        "ctrl-c": lambda command: os.killpg(command.pid, signal.SIGINT),
        "group": lambda command: os.killpg(command.pid, signal.SIGTERM),
        "service": lambda command: command.signal(signal.SIGTERM, command.pids()),
    }
    await asyncio.gather(*(check_graceful_stop(on, name, stop) for name, stop in ways.items()))


async def check_graceful_stop(on: WorkerHarness, queue: str, stop: Callable[[Command], None]) -> None:
    command = await on.start("--queues", queue)
    told = await jobs.until_told.options(queue=queue).enqueue()
    busy = await jobs.holding_the_gil.options(queue=queue).enqueue(seconds=2)
    await on.started(busy)
    stop(command)  # the worker hears of it when it can: by its parent and by the signal at the same time
    assert await command.ended() == 0, queue
    assert await on.outcomes(busy) == ["succeeded"]
    assert await on.outcomes(told) in ([], ["succeeded"])  # it may not have begun


async def test_a_second_stop_signal_ends_the_worker_immediately_and_its_job_restarts(harness: OpenHarness) -> None:
    on = await harness(stop_grace_seconds=600)
    command = await on.start()
    job = await jobs.in_a_thread.enqueue(seconds=100)
    await on.started(job)
    command.signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert command.workers
    command.signal(signal.SIGTERM)
    told = time.monotonic()
    await command.ended()
    print(f"ended {time.monotonic() - told:.2f} s after the second signal")
    await eventually(lambda: not command.pids())
    await on.start()
    assert (await on.final(job)).result == 2
    assert await on.outcomes(job) == ["lost", "succeeded"]


async def test_a_stop_while_a_child_process_starts_uses_no_attempt(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    job = await jobs.in_a_process.enqueue()
    await eventually(lambda: command.children)
    command.signal(signal.SIGTERM, command.pids())
    assert await command.ended() == 0
    assert await on.outcomes(job) in (["released"], ["succeeded"])
