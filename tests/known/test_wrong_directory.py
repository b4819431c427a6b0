"""A command typed in the wrong directory makes an empty database there, and says so."""

import json
from pathlib import Path

import pytest

from tests.cli.processes import holdfast


@pytest.mark.parametrize(
    "typed", ["jobs list", "jobs create hello", "queues list", "top --once", "workers list", "keys list"]
)
def test_a_command_warns_when_it_creates_an_empty_database(tmp_path: Path, typed: str) -> None:
    made = f"warning: no database at {tmp_path.resolve()}/.holdfast/holdfast.db; creating a new, empty one"
    first, second = [holdfast(*typed.split(), folder=tmp_path) for _ in range(2)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert made in first.stderr
    assert all(way in first.stderr for way in ("right directory", "HOLDFAST_DATABASE_URL", "--database", "--app"))
    assert made not in second.stderr


@pytest.mark.parametrize("typed", ["keys create --name shop", "workers register --name encoder"])
def test_setup_commands_create_the_database_without_a_warning(tmp_path: Path, typed: str) -> None:
    answer = holdfast(*typed.split(), folder=tmp_path)
    assert (answer.returncode, "there was no database" in answer.stderr) == (0, False)


def test_a_named_database_that_does_not_exist_is_created_with_a_warning(tmp_path: Path) -> None:
    answer = holdfast("jobs", "list", "--database", "sqlite:///typo.db", folder=tmp_path)
    assert (answer.returncode, f"{tmp_path.resolve()}/typo.db" in answer.stderr) == (0, True)


def test_doctor_warns_when_it_creates_an_empty_database(tmp_path: Path) -> None:
    answer = holdfast("doctor", "--json", folder=tmp_path)
    [database] = [check for check in json.loads(answer.stdout)["checks"] if check["name"] == "database"]
    assert database["level"] == "warn"
    assert "right directory" in database["remedy"]


@pytest.mark.parametrize("command", [["jobs", "list"], ["doctor", "--json"]])
@pytest.mark.parametrize("url", [f"sqlite:///{'long' * 80}.db", "mysql://x"])
def test_an_invalid_database_url_is_reported_without_a_traceback(tmp_path: Path, command: list[str], url: str) -> None:
    answer = holdfast(*command, "--database", url, folder=tmp_path)
    assert answer.returncode in (1, 2)
    assert "Traceback" not in answer.stderr
    if command[0] == "doctor":
        checks = json.loads(answer.stdout)["checks"]
        assert [check["name"] for check in checks if check["level"] == "fail"] == ["database"]
