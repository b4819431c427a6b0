"""An async handler that blocks the event loop is named in the log while it blocks."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from holdfast.lifecycle import State
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import Command, WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]


def warnings(command: Command) -> list[dict[str, object]]:
    lines = [msgspec.json.decode(line) for line in command.log.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if "has blocked the event loop" in line["message"]]


async def test_a_job_that_blocks_the_event_loop_is_logged_once_with_its_stack_and_advice(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    blocking = await jobs.sleeps_on_the_loop.enqueue(seconds=4)
    [warning] = await eventually(lambda: warnings(command))
    assert (warning["level"], warning["job_id"], warning["job_type"]) == ("warning", blocking.id, "sleeps_on_the_loop")
    assert "time.sleep(seconds)" in str(warning["stack"]), "where it blocks"
    assert "in invoke" not in str(warning["stack"]), "and not how it was called"
    for advice in ("`def` instead of `async def`", "asyncio.to_thread", 'isolation="process"'):
        assert advice in str(warning["message"])
    assert (await on.final(blocking)).state is State.SUCCEEDED
    assert len(warnings(command)) == 1, "one for each block"


async def test_a_blocking_task_is_logged_with_the_job_that_created_it(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    blocking = await jobs.blocks_in_a_task_of_its_own.enqueue(seconds=4)
    [warning] = await eventually(lambda: warnings(command))
    assert blocking.id in str(warning["message"])
    assert "time.sleep(seconds)" in str(warning["stack"])
    assert (await on.final(blocking)).state is State.SUCCEEDED


async def test_code_that_holds_the_gil_is_logged_when_it_releases_it(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    blocking = await jobs.computes_with_the_gil.enqueue()
    [warning] = await eventually(lambda: warnings(command))
    assert warning["job_id"] == blocking.id
    assert "the stack may show a line that ran later" in str(warning["message"])
    assert "Stack (most recent call last)" in str(warning["stack"])


async def test_no_warning_is_logged_for_jobs_that_await_or_run_in_threads_and_processes(harness: OpenHarness) -> None:
    on = await harness()
    command = await on.start()
    fine = [await jobs.on_the_loop.enqueue(seconds=3), await jobs.in_a_thread.enqueue(seconds=3)]
    fine.append(await jobs.in_a_process.enqueue(seconds=3))
    for job in fine:
        assert (await on.final(job)).state is State.SUCCEEDED
    assert not warnings(command)
