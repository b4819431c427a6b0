"""SIGTERM and Ctrl-C: finish what can be finished, give the rest back, lose nothing, and end when told twice."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast.lifecycle import State
from tests.worker.stories import app as jobs
from tests.worker.stories.stage import Stage, eventually

pytestmark = pytest.mark.slow
OpenStage = Callable[..., Awaitable[Stage]]

CLAIM_SECONDS = 1.0  # generous: no claim begins later than 0.1 s after the signal, and the last may be under way


async def test_a_worker_told_to_stop_under_load_finishes_or_gives_back_everything(stage: OpenStage) -> None:
    on = await stage(stop_grace_seconds=3)
    command = await on.start("--concurrency", "12")
    too_long = [await job.enqueue(seconds=100) for job in (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process)]
    told = await jobs.until_told.enqueue()
    short = await jobs.on_the_loop.enqueue_many([{"seconds": 0.05}] * 500)
    for job in (*too_long, told):
        await on.started(job)
    in_time = await jobs.in_a_thread.options(priority=50).enqueue(seconds=2)
    await on.started(in_time)
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


async def last_claim_at(on: Stage) -> float:
    events, _ = await (await on.engine()).feed(limit=10_000)
    return max(event.at.timestamp() for event in events if event.verb == "claim")


async def test_a_stop_may_be_said_to_the_parent_to_the_group_or_to_every_process(stage: OpenStage) -> None:
    on = await stage()
    for whom in ("the group, by Ctrl-C", "the group", "every process"):
        command = await on.start()
        job = await jobs.until_told.enqueue()
        await on.started(job)
        match whom:
            case "the group, by Ctrl-C":
                os.killpg(command.pid, signal.SIGINT)
            case "the group":
                os.killpg(command.pid, signal.SIGTERM)
            case "every process":  # as a service manager does
                command.signal(signal.SIGTERM, command.pids())
        assert await command.ended() == 0, whom
        assert ((await on.final(job)).result, await on.outcomes(job)) == ("saved", ["succeeded"]), whom


async def test_a_stop_said_to_every_process_while_one_is_busy_counts_once(stage: OpenStage) -> None:
    on = await stage()
    command = await on.start()
    job = await jobs.holding_the_gil.enqueue(seconds=3)
    await on.started(job)
    command.signal(signal.SIGTERM, command.pids())
    assert await command.ended() == 0
    assert ((await on.final(job)).result, await on.outcomes(job)) == (1, ["succeeded"])


async def test_a_second_stop_ends_it_at_once_and_the_job_starts_again_elsewhere(stage: OpenStage) -> None:
    on = await stage()  # the grace is 25 s
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
    assert time.monotonic() - told < 10
    await eventually(lambda: not command.pids(), 5)
    await on.start()
    assert (await on.final(job)).result == 2
    assert await on.outcomes(job) == ["lost", "succeeded"]


async def test_twenty_stops_in_a_row_leave_nothing_stuck(stage: OpenStage) -> None:
    on = await stage(stop_grace_seconds=0.2)
    slow = await jobs.on_the_loop.enqueue_many([{"seconds": 0.5}] * 40)
    quick = await jobs.in_a_thread.enqueue_many([{"seconds": 0.02}] * 400)
    for _ in range(10):
        pair = [await on.start("--concurrency", "2", ready=0) for _ in range(2)]
        for command in pair:
            await command.ready()
        assert [await command.stop() for command in pair] == [0, 0]
    await on.start("--concurrency", "50")
    finals = [await on.final(job) for job in (*slow, *quick)]
    assert {(job.state, job.attempt, job.lost) for job in finals} == {(State.SUCCEEDED, 1, 0)}
    releases = sum(job.epoch - 1 for job in finals)
    print(f"{releases} releases")
    assert releases
