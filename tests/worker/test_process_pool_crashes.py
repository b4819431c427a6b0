"""Child processes that crash or exceed their limits."""

import os
import signal
from pathlib import Path

import pytest

from tests.worker.child_pool import (
    Pool,
    failure_of,
    is_alive,
    pool_of,
    result_of,
    until,
)


async def test_an_exit_of_the_child_fails_the_job_and_the_pool_continues(pool: Pool) -> None:
    failed = failure_of(await pool.run("exit_hard", code=7))

    assert failed.code == "E_CRASHED"
    assert "ended with exit code 7" in failed.message
    assert failed.context is not None
    assert failed.context["exitcode"] == 7
    assert failed.context["rssBytes"] > 2**20
    assert await pool.pid()


async def test_a_segfault_fails_the_job_and_names_the_signal(pool: Pool) -> None:
    failed = failure_of(await pool.run("segfault"))

    assert (failed.code, failed.context and failed.context["signal"]) == ("E_CRASHED", "SIGSEGV")


async def test_a_killed_child_fails_its_job_immediately(pool: Pool) -> None:
    async with pool.running("loop_for_ever") as (execution, job):
        os.kill(execution.pid, signal.SIGKILL)

        failed = failure_of(await job)

    assert (failed.code, failed.context and failed.context["signal"]) == ("E_CRASHED", "SIGKILL")


async def test_system_exit_in_a_handler_fails_the_job_and_keeps_the_child(pool: Pool) -> None:
    pid = await pool.pid()

    assert failure_of(await pool.run("exit_softly")).code == "SystemExit"
    assert await pool.pid() == pid


@pytest.mark.parametrize("how", ["forked", "started"])
async def test_processes_started_by_a_handler_die_with_its_child(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "pid"
    monkeypatch.setenv("HOLDFAST_TEST_PID_FILE", str(left))
    async with pool_of() as pool:
        failed = failure_of(await pool.run("leave_a_process_behind", how=how))

        assert failed.code == "E_CRASHED"
        await until(lambda: not is_alive(int(left.read_text())))


async def test_exceeding_the_memory_limit_raises_memory_error_and_keeps_the_child(pool: Pool) -> None:
    pid = await pool.pid()

    assert failure_of(await pool.run("allocate", megabytes=300)).code == "MemoryError"
    assert result_of(await pool.run("allocate", megabytes=50)) == 50 * 2**20
    assert result_of(await pool.run("hoard", megabytes=300)) == pid  # the limit was that job's own


@pytest.mark.slow
async def test_exceeding_the_cpu_limit_kills_the_child_with_e_cpu_limit(pool: Pool) -> None:
    failed = failure_of(await pool.run("burn"))

    assert failed.code == "E_CPU_LIMIT"
    assert "SIGXCPU" in failed.message
    assert "CPU time 1 s" in failed.message
    assert await pool.pid()


async def test_a_child_is_replaced_after_its_maximum_number_of_jobs() -> None:
    async with pool_of(jobs_max=2) as pool:
        pids = [await pool.pid() for _ in range(5)]

    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_a_child_over_the_memory_threshold_is_replaced() -> None:
    async with pool_of(rss_max_bytes=150 * 2**20) as pool:
        first = await pool.pid()
        assert result_of(await pool.run("hoard", megabytes=200)) == first
        assert await pool.pid() != first
        await until(lambda: not is_alive(first))
