"""Child processes that cannot start."""

import sys
from pathlib import Path

import pytest

from holdfast.worker.processes import child_process
from tests.worker.child_pool import Pool, failure_of, pool_of
from tests.worker.poison_app import app


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("tests.worker.no_such_module:app", "No module named 'tests.worker.no_such_module'"),
        ("tests.worker.poison_app:nothing", "has no 'nothing'"),
        ("tests.worker.poison_app", "names no app"),
        ("tests.worker.poison_app:HOARD", "lifespan_state"),
    ],
)
async def test_an_app_that_cannot_be_imported_fails_the_job_with_the_reason(reference: str, reason: str) -> None:
    async with pool_of(reference) as pool:
        for _ in range(2):
            failed = failure_of(await pool.run("add", a=1, b=2))
            assert failed.code == "E_CHILD_START"
            assert reason in failed.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("import os; os._exit(5)", "ended with exit code 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
    ],
)
async def test_an_app_that_exits_on_import_fails_the_job(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text)
    async with pool_of("broken:app", path=[str(tmp_path), *sys.path]) as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, reason in failed.message) == ("E_CHILD_START", True), failed


async def test_an_app_that_starts_too_slowly_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(child_process, "START_SECONDS", 0.5)
    async with pool_of("slow:app", path=[str(tmp_path), *sys.path]) as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, "not ready within 0.5 s" in failed.message) == ("E_CHILD_START", True)


async def test_a_child_that_cannot_be_started_fails_the_job_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with pool_of() as pool:
        failed = failure_of(await pool.run("add", a=1, b=2))

    assert (failed.code, "No such file" in failed.message) == ("E_CHILD_START", True)


async def test_a_job_type_unknown_to_the_child_fails_the_job(pool: Pool) -> None:
    failed = failure_of(await pool.run("unheard_of", handler=app.handlers["add"]))

    assert failed.code == "E_CHILD_START"
    assert "unheard_of" in failed.message
