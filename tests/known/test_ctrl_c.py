"""What a worker prints when it is stopped by Ctrl-C, once or twice."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.background import Background, until
from tests.cli.processes import holdfast

TASKS = """
import time
from holdfast import App, Snooze

app = App()


@app.job("in-a-thread")
def in_a_thread():
    time.sleep(600)


@app.job("later")
async def later():
    return Snooze(seconds=600)
"""
STARTS = {"worker": "ready: ", "dev": "Ctrl-C stops it"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def shown(folder: Path, url: str, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(holdfast("jobs", "show", job, "--json", folder=folder, url=url).stdout)
    return found


def started(command: Background, name: str, folder: Path, url: str) -> str:
    """A job that runs."""
    command.until_it_says(STARTS[name])
    job = holdfast("jobs", "create", "in-a-thread", folder=folder, url=url).stdout.strip()
    until(lambda: shown(folder, url, job)["state"] == "running")
    return job


@pytest.mark.parametrize("name", ["worker", "dev"])
def test_a_second_ctrl_c_prints_one_line_and_exits_with_the_signal_code(
    folder: Path, fresh_sqlite_url: str, name: str
) -> None:
    port = ("--port", "0") if name == "dev" else ()
    with Background(
        *(name, "--app", "tasks:app", *port), folder=folder, HOLDFAST_DATABASE_URL=fresh_sqlite_url
    ) as command:
        started(command, name, folder, fresh_sqlite_url)
        command.process.send_signal(signal.SIGINT)
        command.until_it_says("a second signal exits at once")
        assert command.end(signal.SIGINT) == 130
        *_, before_last, last = command.said.splitlines()
        assert "a second signal exits at once" in before_last
        assert "second signal: exiting without waiting" in last


def test_a_job_released_by_a_stopping_worker_is_not_reported_as_snoozed(folder: Path, store_url: str) -> None:
    settings = {"HOLDFAST_DATABASE_URL": store_url, "HOLDFAST_STOP_GRACE_SECONDS": "0.1"}
    holdfast("migrate", folder=folder, url=store_url)
    with Background("worker", "--app", "tasks:app", folder=folder, **settings) as worker:
        job = started(worker, "worker", folder, store_url)
        snoozed = holdfast("jobs", "create", "later", folder=folder, url=store_url).stdout.strip()
        until(lambda: shown(folder, store_url, snoozed)["reason"] == "snoozed")
        assert worker.end(signal.SIGINT) == 0
    found = shown(folder, store_url, job)
    assert (found["state"], found["reason"]) == ("queued", "released")
