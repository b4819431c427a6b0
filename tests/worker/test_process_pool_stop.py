"""Canceling handlers in child processes, and closing the pool."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.worker.outcomes import Abandoned, Released
from holdfast.worker.processes.process_pool import ChildExecution
from tests.worker.child_pool import (
    PATIENCE_SECONDS,
    Pool,
    Recorder,
    failure_of,
    is_alive,
    pool_of,
    result_of,
    until,
)


async def test_a_canceled_async_handler_is_interrupted(pool: Pool) -> None:
    async with pool.running("wait_for_cancel") as (execution, job):
        execution.cancel()

        assert await job == Released()  # which the engine turns into canceled
    assert await pool.pid() == execution.pid


async def test_a_cancel_during_the_start_interrupts_the_handler(pool: Pool) -> None:
    assert await pool.run("wait_for_cancel", on_started=ChildExecution.cancel) == Released()
    assert await pool.pid()


async def test_a_child_can_withdraw_another_job(pool: Pool) -> None:
    """R000-32: also where it has no database."""
    assert result_of(await pool.run("withdraws", line=Recorder(), job="other")) == "dead"
    assert failure_of(await pool.run("withdraws", line=Recorder(), job="none")).code == "job_not_found"


async def test_a_handler_whose_lease_was_lost_is_abandoned(pool: Pool) -> None:
    async with pool.running("wait_for_cancel") as (execution, job):
        execution.lose()

        assert await job == Abandoned()


async def test_a_handler_may_swallow_its_cancellation(pool: Pool) -> None:
    async with pool.running("swallow_cancel") as (execution, job):
        execution.cancel()

        assert result_of(await job) == {"canceled": True, "lost": False}


@pytest.mark.parametrize(
    ("tell", "flag"),
    [(ChildExecution.cancel, "canceled"), (ChildExecution.lose, "lost"), (ChildExecution.stopping, "stopping")],
)
async def test_a_sync_handler_sees_cancel_lost_and_stopping_flags(
    pool: Pool, tell: Callable[[ChildExecution], None], flag: str
) -> None:
    async with pool.running("look_at_the_flags") as (execution, job):
        tell(execution)

        assert [name for name, is_set in result_of(await job).items() if is_set] == [flag]


@pytest.mark.parametrize("job_type", ["loop_for_ever", "hold_the_gil"])
async def test_a_handler_that_ignores_the_cancel_is_killed(pool: Pool, job_type: str) -> None:
    started: asyncio.Future[ChildExecution] = asyncio.get_running_loop().create_future()
    job = asyncio.create_task(pool.run(job_type, on_started=started.set_result))
    execution = await started
    execution.cancel()
    done, _ = await asyncio.wait({job}, timeout=0.3)
    assert not done

    execution.kill()

    assert failure_of(await job).context == {"signal": "SIGKILL", "rssBytes": pytest.approx(2**26, rel=1)}
    assert await pool.pid()


async def test_commands_for_a_finished_execution_do_not_reach_the_next_one(pool: Pool) -> None:
    executions: list[ChildExecution] = []
    await pool.run("add", on_started=executions.append, a=1, b=1)

    async with pool.running("look_at_the_flags") as (execution, job):
        executions[0].kill()
        executions[0].cancel()
        execution.stopping()

        assert result_of(await job) == {"canceled": False, "stopping": True, "lost": False}
    assert execution.pid == executions[0].pid


async def test_a_run_that_is_canceled_kills_its_child(pool: Pool) -> None:
    async with pool.running("loop_for_ever") as (execution, job):
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        await until(lambda: not is_alive(execution.pid))
    assert await pool.pid()


async def test_a_handler_that_cancels_itself_has_failed(pool: Pool) -> None:
    assert failure_of(await pool.run("cancel_myself")).code == "E_CANCELLED"


async def test_signals_for_the_worker_do_not_end_its_children(pool: Pool) -> None:
    assert result_of(await pool.run("signal_myself")) == "still here"


async def test_close_ends_idle_children_and_kills_busy_ones() -> None:
    async with pool_of(most=2) as pool:
        async with pool.running("loop_for_ever") as (execution, job):
            idle = await pool.pid()

            await pool.children.close()

            assert not is_alive(idle)
            assert not is_alive(execution.pid)
            assert failure_of(await job).code == "E_CRASHED"
        assert await pool.run("add", a=1, b=1) == Released()


async def test_close_releases_a_job_whose_child_is_still_starting(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    async with pool_of("slow:app", path=[str(tmp_path), *sys.path]) as pool:
        job = asyncio.create_task(pool.run("add", a=1, b=1))
        await until(lambda: bool(pool.children._alive))

        await pool.children.close()

        assert await job == Released()


async def test_an_idle_child_exits_its_lifespan_when_the_pool_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    monkeypatch.setenv("HOLDFAST_TEST_LEFT_FILE", str(left))
    async with pool_of() as pool:
        await pool.pid()

    assert left.read_text() == "left"


@pytest.mark.parametrize("job_type", ["loop_for_ever", "hold_the_gil"])
async def test_a_child_exits_when_its_worker_is_killed(job_type: str) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.poison_parent", job_type, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        child = int(await parent.stdout.readline())
    assert is_alive(child)

    parent.kill()
    await parent.wait()

    assert await until(lambda: not is_alive(child)) < 5  # usually milliseconds
