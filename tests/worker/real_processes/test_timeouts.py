"""A job with `timeout=1` that takes longer fails with `timeout`, wherever its handler runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.lifecycle import State
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

LATE = {
    jobs.sleeps_on_the_loop: "an async handler",
    jobs.returns_when_interrupted: "an async handler that catches its cancellation and returns a value",
    jobs.in_a_thread: "a function in a thread",
    jobs.in_a_process: "a function in a child process",
    jobs.returns_when_interrupted_in_a_process: "an async handler in a child process",
}


async def test_a_result_after_the_timeout_is_never_accepted(harness: OpenHarness) -> None:
    on = await harness()
    await on.start()
    late = {await job.options(timeout=1, max_attempts=1).enqueue(seconds=3): kind for job, kind in LATE.items()}
    ends = await asyncio.gather(*map(on.final, late))
    assert {
        kind: (job.state, (job.error or {}).get("code")) for kind, job in zip(late.values(), ends, strict=True)
    } == dict.fromkeys(LATE.values(), (State.DEAD, "timeout"))


async def test_a_timed_out_thread_fails_at_its_deadline_and_keeps_its_slot_until_it_returns(
    harness: OpenHarness, tmp_path: Path
) -> None:
    on = await harness()
    command = await on.start("--concurrency", "2")
    late = await jobs.waits_for_a_file.options(timeout=1, max_attempts=1).enqueue(path=str(tmp_path / "gate"))
    assert (await on.final(late)).error["code"] == "timeout"
    assert not on.handler_log.notes("returned", late.id), "reported at its deadline, not when the function returned"
    both = [await jobs.waits_for_a_file.enqueue(path=str(tmp_path / "gate")) for _ in range(2)]
    await eventually(lambda: any(on.handler_log.notes("started", job.id) for job in both))
    assert not all(on.handler_log.notes("started", job.id) for job in both), "one of two slots is still occupied"
    (tmp_path / "gate").touch()
    assert {(await on.final(job)).state for job in both} == {State.SUCCEEDED}
    assert "worker process exited" not in command.log, "a slot that comes back is no reason for a new process"


async def test_the_timeout_grace_setting_lets_a_handler_clean_up(
    harness: OpenHarness,
) -> None:
    on = await harness(timeout_grace_seconds=30)
    await on.start()
    job = await jobs.cleans_up_in_a_process.options(timeout=1, max_attempts=1).enqueue()
    assert (await on.final(job)).error["code"] == "timeout"
    assert await eventually(lambda: on.handler_log.notes("cleaned up", job.id))
