"""A command typed in the wrong directory says so, and makes no empty database there."""

import json
from pathlib import Path

import pytest

from tests.cli.processes import holdfast

ID = "01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f"


@pytest.mark.parametrize(
    "typed",
    [
        *("jobs list", f"jobs show {ID}", f"jobs events {ID}", f"jobs why {ID}"),
        *(f"jobs cancel {ID}", "jobs cancel --state queued --dry-run", f"jobs redrive {ID}"),
        *("queues list", "queues pause mail", "queues resume mail", "top --once"),
        *("workers list", "workers disable encoder", "workers enable encoder", "workers revoke encoder"),
        *("keys list", "keys revoke k_1"),
    ],
)
def test_a_command_in_the_wrong_directory_makes_no_database(tmp_path: Path, typed: str) -> None:
    answer = holdfast(*typed.split(), folder=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"{tmp_path.resolve()}/.holdfast/holdfast.db" in answer.stderr
    assert all(way in answer.stderr for way in ("holdfast dev", "HOLDFAST_DATABASE_URL", "--app"))
    assert list(tmp_path.iterdir()) == []


def test_the_error_has_a_code_of_its_own_in_json(tmp_path: Path) -> None:
    answer = holdfast("jobs", "list", "--json", folder=tmp_path)
    assert json.loads(answer.stderr)["code"] == "no_database"


def test_a_database_that_is_named_and_not_there_is_not_made(tmp_path: Path) -> None:
    answer = holdfast("jobs", "list", "--database", "sqlite:///typo.db", folder=tmp_path)
    assert (answer.returncode, f"{tmp_path.resolve()}/typo.db" in answer.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_doctor_finds_that_there_is_no_database(tmp_path: Path) -> None:
    answer = holdfast("doctor", "--json", folder=tmp_path)
    assert answer.returncode == 1
    assert [check["name"] for check in json.loads(answer.stdout)["checks"] if check["level"] == "fail"] == ["database"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typed", ["jobs create hello", "keys create --name shop", "workers register --name encoder"])
def test_a_command_that_adds_something_makes_a_database(tmp_path: Path, typed: str) -> None:
    answer = holdfast(*typed.split(), folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert holdfast("jobs", "list", folder=tmp_path).returncode == 0


def test_a_job_in_a_new_database_comes_with_a_warning_that_names_it(tmp_path: Path) -> None:
    made = f"warning: there was no database at {tmp_path.resolve()}/.holdfast/holdfast.db; a new one is made"
    assert made in holdfast("jobs", "create", "hello", folder=tmp_path).stderr
    assert made not in holdfast("jobs", "create", "hello", folder=tmp_path).stderr
