"""How a command starts and how it ends: quickly, quietly, with the right code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from holdfast.cli import main
from holdfast.cli.commands import make_parser
from holdfast.cli.completion import places
from tests.cli.processes import PROGRAM, SECONDS, environment, holdfast


def test_the_installed_program_prints_its_version() -> None:
    said = subprocess.run(
        [Path(sys.executable).with_name("holdfast"), "--version"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert said.stdout.startswith("holdfast 0.")


@pytest.mark.parametrize(
    ("first", "also"),
    [("--help", {"holdfast.workloads"}), ("credits", {"holdfast.workloads"}), ("--version", set()), ("jobs", set())],
)
def test_parsing_loads_no_database_drivers_and_manifests_only_if_they_may_be_needed(first: str, also: set[str]) -> None:
    script = f"import sys, holdfast.cli.commands as commands; commands.make_parser({first!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS, check=True)
    watched = {"asyncpg", "sqlite3", "rich", "holdfast.engine", "holdfast.server", "holdfast.workloads"}
    assert watched & set(loaded.stdout.split()) == also


LEAVES = [place.path.strip("/").split("/") for place in places(make_parser()) if "--json" in place.everything]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_help_of_every_command_has_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    taught = capsys.readouterr().out
    assert left.value.code == 0
    assert f"holdfast {' '.join(words)}" in taught.partition("examples:\n")[2]


def test_a_closed_output_pipe_is_no_error(tmp_path: Path) -> None:
    """`holdfast ... | head -1`: the pipe is closed while there is more to come."""
    process = subprocess.Popen(
        [*PROGRAM, "lifecycle", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=SECONDS)
    assert (said, process.returncode) == (b"", 141)


def test_ctrl_c_ends_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    job_id = holdfast("jobs", "create", "a", folder=tmp_path).stdout.strip()
    process = subprocess.Popen(
        [*PROGRAM, "jobs", "events", job_id, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert process.stdout is not None
    assert "create" in process.stdout.readline(), "it is at work"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said) == (130, "")


def test_a_character_outside_the_terminal_encoding_is_escaped(tmp_path: Path) -> None:
    created = subprocess.run(
        [*PROGRAM, "jobs", "create", "ü", "--payload", '{"a": "→"}'],
        env=environment(PYTHONUTF8="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    shown = subprocess.run(
        [*PROGRAM, "jobs", "show", created.stdout.strip()],
        env=environment(PYTHONIOENCODING="ascii"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert r"\xfc" in shown.stdout


@pytest.mark.parametrize(
    "arguments", [["jobs", "list"], ["queues", "list"], ["workers", "list"], ["jobs", "create", "a"]]
)
async def test_on_postgresql_an_old_schema_exits_with_1_and_names_migrate(
    fresh_postgres_url: str, tmp_path: Path, arguments: list[str]
) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute("DELETE FROM holdfast_migrations")
    await connection.close()
    answer = holdfast(*arguments, folder=tmp_path, url=fresh_postgres_url)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.endswith("; run `holdfast migrate`\n")


def test_on_sqlite_the_first_command_creates_the_database(tmp_path: Path) -> None:
    answer = holdfast("jobs", "list", "--json", folder=tmp_path)
    assert (answer.returncode, json.loads(answer.stdout)["jobs"]) == (0, [])
    assert (tmp_path / ".holdfast" / "holdfast.db").is_file()


def test_the_command_line_overrides_the_environment(tmp_path: Path) -> None:
    answer = holdfast("migrate", "--database", f"sqlite:///{tmp_path}/mine.db", folder=tmp_path, url="mysql://x")
    assert (answer.returncode, (tmp_path / "mine.db").is_file()) == (0, True)


@pytest.mark.parametrize("arguments", [["jobs"], ["jobs", "explode"], ["explode"], ["jobs", "show"]])
def test_an_unknown_command_is_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    answer = holdfast(*arguments, folder=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("usage: holdfast")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "usage", "says"),
    [
        (["worker", "--ap", "tasks:app"], "holdfast worker ", "unknown option --ap; did you mean --app?"),
        (["worker", "--concurency=3"], "holdfast worker ", "unknown option --concurency; did you mean --concurrency?"),
        (["jbos", "list"], "holdfast ", "unknown command 'jbos'; did you mean 'jobs'?"),
        (["jobs", "lst"], "holdfast jobs ", "unknown command 'lst'; did you mean 'list'?"),
        (["queues", "xyzzy"], "holdfast queues ", "unknown command 'xyzzy'; there are list, pause, resume"),
        (["jobs", "list", "--xyzzy"], "holdfast jobs list ", "unknown option --xyzzy"),
        (["jobs", "show", "a", "b"], "holdfast jobs show ", "unexpected arguments: b"),
        (["jobs", "list", "--database", ""], "holdfast jobs list ", "--database: give a database URL"),
        (["dev", "--queues", ","], "holdfast dev ", "--queues: give at least one name"),
        (["dev", "--queues", ""], "holdfast dev ", "--queues: give at least one name"),
    ],
)
def test_an_unknown_option_is_reported_by_its_command(
    arguments: list[str], usage: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {usage}")
    assert f"{says}" in said.splitlines()[-1]


def test_with_json_a_usage_error_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "--json", "--limt", "3"]) == 2
    assert json.loads(capsys.readouterr().err) == {
        "code": "usage",
        "message": "unknown option --limt; did you mean --limit?",
    }


def test_a_value_that_looks_like_an_option_is_accepted_after_two_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["migrate"]) == 0
    assert main(["jobs", "show", "--", "--limt"]) == 3
    assert capsys.readouterr().err.startswith("holdfast: no job '--limt'; the database is SQLite in ")


def test_ctrl_c_during_imports_prints_no_traceback(tmp_path: Path) -> None:
    """Pressed by the first of its own modules that is loaded after the entry."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'holdfast.cli.commands':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [*PROGRAM, "jobs", "list"],
        env=environment(PYTHONPATH=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
