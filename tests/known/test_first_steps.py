"""The first minutes after `pip install`: `holdfast` alone, `holdfast init`, and what it wrote at work."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.cli.processes import PROGRAM, environment, holdfast

SECONDS = 60


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    answer = holdfast("init", folder=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    return tmp_path


def test_holdfast_without_arguments_prints_five_lines_on_how_to_start(tmp_path: Path) -> None:
    answer = holdfast(folder=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert len(lines) == 5
    assert all(len(line) <= 110 for line in lines)
    assert "holdfast init" in answer.stdout
    assert not list(tmp_path.iterdir())


def test_init_writes_an_app_a_test_and_a_compose_file_and_says_what_to_type_next(tmp_path: Path) -> None:
    answer = holdfast("init", folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"tasks.py", "test_tasks.py", "compose.yaml"}
    for typed in ("holdfast dev --app tasks:app", "pytest", "docker compose up"):
        assert typed in answer.stdout


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("mine")
    answer = holdfast("init", folder=tmp_path)
    assert (answer.returncode, answer.stdout) == (4, "")
    assert "compose.yaml exists" in answer.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("compose.yaml", "mine")]
    elsewhere = holdfast("init", "shop", "--json", folder=tmp_path)
    assert elsewhere.returncode == 0
    assert len(list((tmp_path / "shop").iterdir())) == 3


def test_the_test_that_init_wrote_passes(begun: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=begun,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout


def until(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not found():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def test_dev_runs_the_app_that_init_wrote(begun: Path) -> None:
    made = holdfast("jobs", "create", "send_email", "--payload", '{"to": "a@example.com"}', folder=begun)
    with subprocess.Popen(
        [*PROGRAM, "dev", "--app", "tasks:app", "--port", "0"],
        cwd=begun,
        env=environment(),
        stdout=subprocess.DEVNULL,
        text=True,
    ) as dev:
        try:
            until(
                lambda: '"COMPLETED"' in holdfast("jobs", "show", made.stdout.strip(), "--json", folder=begun).stdout,
                dev,
            )
        finally:
            dev.terminate()


def test_the_services_of_the_compose_file_work_together(begun: Path, fresh_postgres_url: str) -> None:
    """Each with its command and environment, on this machine instead of in a container."""
    services = yaml.safe_load((begun / "compose.yaml").read_text())["services"]
    keys = begun / "keys"
    keys.mkdir()
    (begun / "bin").mkdir()
    (begun / "bin" / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast.cli "$@"\n')
    (begun / "bin" / "holdfast").chmod(0o755)
    (begun / "bin" / "python").symlink_to(sys.executable)

    def here(text: str) -> str:
        return text.replace("/keys", str(keys)).replace(
            "postgresql://postgres:holdfast@postgres:5432/postgres", fresh_postgres_url
        )

    def started(name: str, *more: str) -> subprocess.Popen[str]:
        variables = {variable: here(value) for variable, value in services[name]["environment"].items()}
        path = f"{begun / 'bin'}{os.pathsep}{os.environ['PATH']}"
        command = [here(word) for word in services[name]["command"]] + list(more)
        return subprocess.Popen(
            command, cwd=begun, env=environment(PATH=path, **variables), stderr=subprocess.PIPE, text=True
        )

    for _ in range(2):  # also where everything exists
        with started("setup") as setup:
            assert setup.wait(SECONDS) == 0
    with started("worker") as worker, started("server", "--port", "0") as server:
        try:
            assert server.stderr is not None
            ready = next(filter(None, (re.search(r"ready: http://0\.0\.0\.0:(\d+)", line) for line in server.stderr)))
            url = f"http://127.0.0.1:{ready[1]}"
            key = {"Authorization": f"Bearer {(keys / 'client.key').read_text().strip()}"}
            intent = {"jobType": "send_email", "payload": {"to": "a@example.com"}}
            job = httpx2.post(f"{url}/jobs", json=intent, headers=key).json()
            until(lambda: httpx2.get(f"{url}/jobs/{job['jobId']}", headers=key).json()["status"] == "COMPLETED", server)
        finally:
            for process in (server, worker):
                process.terminate()
