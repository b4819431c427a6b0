"""`holdfast migrate`, as a person types it."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path


def holdfast(*arguments: str, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        cwd=folder,
        env={"HOLDFAST_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_migrating_twice_is_harmless(tmp_path: Path) -> None:
    first, second = (holdfast("migrate", folder=tmp_path) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, "applied 0001_core\n")
    assert (second.returncode, second.stdout) == (0, "the schema is current\n")
    assert (tmp_path / ".holdfast" / "holdfast.db").stat().st_mode & 0o077 == 0, "payloads are nobody else's business"


def test_the_printed_sql_creates_the_schema_and_printing_changes_nothing(tmp_path: Path) -> None:
    printed = holdfast("migrate", "--sql", folder=tmp_path)
    assert printed.returncode == 0
    assert list(tmp_path.iterdir()) == []
    database = sqlite3.connect(tmp_path / "by_hand.db")
    database.executescript(printed.stdout)
    assert (
        holdfast("migrate", folder=tmp_path, url=f"sqlite:///{tmp_path}/by_hand.db").stdout == "the schema is current\n"
    )
    database.close()


def test_a_postgres_schema_is_printed_without_a_server(tmp_path: Path) -> None:
    printed = holdfast("migrate", "--sql", folder=tmp_path, url="postgresql://nowhere.invalid/jobs")
    assert "LANGUAGE plpgsql" in printed.stdout
    as_json = holdfast("migrate", "--sql", "--json", folder=tmp_path, url="postgresql://nowhere.invalid/jobs")
    assert json.loads(as_json.stdout) == {"dialect": "postgres", "sql": printed.stdout}


def test_a_database_in_memory_is_rejected(tmp_path: Path) -> None:
    answer = holdfast("migrate", folder=tmp_path, url="sqlite:///:memory:")
    assert answer.returncode == 2
    assert "would be another database for each connection; name a file" in answer.stderr


def test_an_invalid_url_is_an_error_message_without_traceback(tmp_path: Path) -> None:
    answer = holdfast("migrate", folder=tmp_path, url="mysql://x")
    assert answer.returncode == 2
    assert answer.stderr == "holdfast: a database URL starts with postgresql:// or sqlite:///, got 'mysql'\n"


def test_an_unreachable_server_is_an_error_that_says_so(tmp_path: Path) -> None:
    answer = holdfast("migrate", folder=tmp_path, url="postgresql://127.0.0.1:1/jobs")
    assert answer.returncode == 1
    assert answer.stderr.startswith("holdfast: cannot connect to PostgreSQL at 127.0.0.1:1: ")
    assert answer.stderr.endswith("; is the server up, and is the database URL right?\n")
