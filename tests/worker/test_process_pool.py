"""Handlers in child processes: whatever they do to their own process, the worker process is not affected."""

import asyncio
import os
import signal

import pytest

from holdfast.model import Part, PartStatus
from tests.worker.child_pool import (
    Pool,
    Recorder,
    failure_of,
    is_alive,
    pool_of,
    result_of,
    until,
)


@pytest.mark.parametrize("job_type", ["add", "add_sync"])
async def test_a_handler_runs_in_another_process_and_reports_from_there(pool: Pool, job_type: str) -> None:
    line, started = Recorder(), []

    result = result_of(await pool.run(job_type, line=line, on_started=started.append, a=1, b=2))

    assert result["sum"] == 3
    assert result["pid"] == result["state"] == started[0].pid != os.getpid()
    [report] = line.reports
    assert (report.percent, report.step, report.counters) == (50, "adding", {"terms": 2})


@pytest.mark.parametrize("job_type", ["in_parts", "in_parts_sync"])
async def test_a_child_reports_parts_steps_and_checkpoints(pool: Pool, job_type: str) -> None:
    line = Recorder()

    result = result_of(await pool.run(job_type, line=line))

    assert result == {"did": ["low", "high"], "token": "made here", "checkpoint": {"reached": 2}}
    finished = [part for report in line.reports for part in report.parts if part.status == PartStatus.COMPLETED]
    assert [part.name for part in finished] == ["low", "high", "token"]
    assert line.reports[-1].checkpoint == {"reached": 2}


@pytest.mark.parametrize("job_type", ["in_parts", "in_parts_sync"])
async def test_a_child_skips_parts_and_steps_that_an_earlier_attempt_finished(pool: Pool, job_type: str) -> None:
    low = Part(name="low", status=PartStatus.COMPLETED)
    token = Part(name="token", status=PartStatus.COMPLETED, data={"result": "made before"})

    result = result_of(await pool.run(job_type, line=Recorder([low, token]), epoch=2))

    assert (result["did"], result["token"]) == (["high"], "made before")


async def test_a_rejected_report_raises_the_same_error_in_the_child(pool: Pool) -> None:
    failed = failure_of(await pool.run("add", line=Recorder(lost=True), a=1, b=2))

    assert (failed.code, failed.message) == ("lease_lost", "job 1: the lease is lost")


async def test_children_are_reused_and_started_only_when_needed() -> None:
    async with pool_of(most=2) as pool:
        assert await pool.pid() == await pool.pid()

        async with pool.running("look_at_the_flags") as (execution, job):
            assert await pool.pid() != execution.pid
            execution.cancel()
            await job


async def test_no_more_children_than_allowed_run_at_once() -> None:
    async with pool_of(most=2) as pool:
        results = await asyncio.gather(*(pool.pid() for _ in range(6)))

        assert len(set(results)) == 2


async def test_a_dedicated_job_runs_in_its_own_child(pool: Pool) -> None:
    usual = await pool.pid()

    alone = result_of(await pool.run("add", alone=True, a=1, b=1))["pid"]

    assert alone != usual
    assert await pool.pid() != alone
    await until(lambda: not is_alive(alone) and not is_alive(usual))  # the one had to make room for the other


async def test_a_child_that_dies_while_idle_is_replaced(pool: Pool) -> None:
    first = await pool.pid()
    os.kill(first, signal.SIGKILL)
    await until(lambda: not is_alive(first) and not pool.children._idle)

    assert await pool.pid() != first


async def test_an_app_in_a_script_is_found_by_its_file() -> None:
    async with pool_of("tests/worker/poison_app.py:app") as pool:
        assert result_of(await pool.run("add", a=2, b=2))["sum"] == 4
