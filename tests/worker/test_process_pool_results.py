"""Results, errors, progress and output of handlers in child processes."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.worker.processes.rlimits import rss_bytes
from tests.worker.child_pool import (
    PATIENCE_SECONDS,
    Pool,
    Recorder,
    failure_of,
    pool_of,
    result_of,
)


@contextlib.contextmanager
def output_to_nowhere() -> Iterator[None]:
    stdout = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


@pytest.mark.parametrize(
    ("job_type", "payload", "code"),
    [
        ("no_json", {}, "result_not_json"),
        ("not_a_number", {}, "result_not_json"),
        ("huge_result", {"bytes_": 300 * 1024}, "result_too_large"),
        ("huge_result", {"bytes_": 64 * 2**20}, "result_too_large"),
        ("odd_error", {"what": "number"}, "invalid_outcome"),
        ("odd_error", {"what": "object"}, "invalid_outcome"),
        ("add", {"a": "one", "b": 2}, "invalid_payload"),
    ],
)
async def test_a_result_that_cannot_be_stored_is_a_permanent_failure(
    pool: Pool, job_type: str, payload: dict[str, Any], code: str
) -> None:
    failed = failure_of(await pool.run(job_type, **payload))

    assert (failed.code, failed.permanent) == (code, True)
    assert await pool.pid()


@pytest.mark.parametrize("length", [0, 10_000_000])
async def test_an_error_message_with_invalid_text_is_cleaned_and_truncated(pool: Pool, length: int) -> None:
    failed = failure_of(await pool.run("complain", length=length))

    assert (failed.code, failed.permanent) == ("E_NAME", True)
    assert failed.message.startswith("no such file: ?")
    assert len(failed.message) < 100_000
    assert failed.context == {"name": "?", "length": length}, "R002-40: a number stays one"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("nan", "counters_not_json"),
        ("object", "checkpoint_not_json"),
        ("huge", "checkpoint_too_large"),
        ("step", "invalid_progress"),
    ],
)
async def test_progress_that_cannot_be_stored_raises_in_the_child(pool: Pool, what: str, code: str) -> None:
    line = Recorder()

    failed = failure_of(await pool.run("report_nonsense", line=line, what=what))

    assert (failed.code, line.reports) == (code, [])


async def test_the_output_of_a_child_does_not_use_memory_of_the_worker() -> None:
    before = rss_bytes()

    with output_to_nowhere():
        async with pool_of() as pool, asyncio.timeout(PATIENCE_SECONDS):
            assert result_of(await pool.run("print_much", mebibytes=1024)) == 2**30

    assert rss_bytes() - before < 50 * 2**20


async def test_a_child_inherits_only_its_socket_and_the_standard_streams(tmp_path: Path) -> None:
    with (tmp_path / "worker.lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)  # even then
        async with pool_of(most=2) as pool, pool.running("look_at_the_flags") as (execution, job):
            files = result_of(await pool.run("open_files"))
            execution.cancel()
            await job

    assert not [target for target in files.values() if target.endswith("worker.lock")]
    assert len([target for target in files.values() if target.startswith("socket:")]) == 3  # and its loop's own pair
