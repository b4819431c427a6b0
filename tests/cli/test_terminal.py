"""On a terminal there are tables, colours and questions; nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import holdfast, on_terminal, without_escapes


@pytest.fixture
def two_jobs(tmp_path: Path) -> list[str]:
    """The newer one first."""
    created = [holdfast("jobs", "create", kind, folder=tmp_path).stdout.strip() for kind in ("first", "second")]
    return created[::-1]


def test_a_list_is_a_table_with_titles_and_whole_ids(tmp_path: Path, two_jobs: list[str]) -> None:
    for columns in (120, 200):
        code, seen = on_terminal("jobs", "list", folder=tmp_path, columns=columns)
        assert code == 0
        lines = without_escapes(seen).splitlines()
        assert lines[0].split() == [
            *("job", "type", "queue", "state", "attempt", "progress", "created", "(UTC)", "reason")
        ]
        assert [line.split()[:3] for line in lines[1:]] == [
            [job, kind, "default"] for job, kind in zip(two_jobs, ("second", "first"), strict=True)
        ]


def test_an_empty_list_says_that_there_are_no_jobs(tmp_path: Path) -> None:
    holdfast("migrate", folder=tmp_path)
    code, seen = on_terminal("jobs", "list", folder=tmp_path)
    assert (code, without_escapes(seen).splitlines()[-1]) == (0, "no jobs")
    assert holdfast("jobs", "list", folder=tmp_path).stderr == ""


def test_no_color_disables_colors(tmp_path: Path, two_jobs: list[str]) -> None:
    holdfast("jobs", "cancel", *two_jobs, folder=tmp_path)
    _, coloured = on_terminal("doctor", folder=tmp_path)
    _, plain = on_terminal("doctor", folder=tmp_path, NO_COLOR="1")
    assert "\x1b[32m" in coloured
    assert "\x1b[32m" not in plain


def test_a_pipe_gets_no_escapes_and_no_titles(tmp_path: Path, two_jobs: list[str]) -> None:
    piped = holdfast("jobs", "list", folder=tmp_path).stdout
    assert "\x1b" not in piped
    assert [line.split("\t")[0] for line in piped.splitlines()] == two_jobs


def test_text_that_looks_like_markup_is_printed_verbatim(tmp_path: Path) -> None:
    job_id = holdfast("jobs", "create", "[red]a[/red]", "--tag", ":smile:", folder=tmp_path).stdout.strip()
    _, listed = on_terminal("jobs", "list", folder=tmp_path)
    _, shown = on_terminal("jobs", "show", job_id, folder=tmp_path)
    assert "[red]a[/red]" in without_escapes(listed)
    assert ":smile:" in without_escapes(shown)


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, 0), ("\n", 1, 2)])
def test_a_question_is_asked_and_answered(
    tmp_path: Path, two_jobs: list[str], typed: str, code: int, left: int
) -> None:
    answered, seen = on_terminal("jobs", "cancel", "--state", "queued", folder=tmp_path, typed=typed)
    assert (answered, "cancel 2 jobs? [y/N]" in seen) == (code, True)
    queued = holdfast("jobs", "list", "--state", "queued", folder=tmp_path).stdout
    assert len(queued.splitlines()) == left


def test_ctrl_c_at_a_question_means_no(tmp_path: Path, two_jobs: list[str]) -> None:
    code, seen = on_terminal("jobs", "cancel", "--state", "queued", folder=tmp_path, interrupt_at="[y/N]")
    assert (code, "Traceback" in seen) == (130, False)
    assert len(holdfast("jobs", "list", "--state", "queued", folder=tmp_path).stdout.splitlines()) == len(two_jobs)


def test_ctrl_c_during_bulk_work_prints_what_was_done(tmp_path: Path, two_jobs: list[str]) -> None:
    holdfast("jobs", "cancel", *two_jobs, folder=tmp_path)
    code, seen = on_terminal(
        *("jobs", "redrive", *two_jobs, "--rate", "0.01"), folder=tmp_path, interrupt_at="redriven as"
    )
    assert (code, "Traceback" in seen, seen.count("redriven as")) == (130, False, 1)
    assert holdfast("jobs", "redrive", "--state", "canceled", "--yes", folder=tmp_path).stdout == (
        "1 job skipped: already redriven\n1 job redriven\n"
    ), "and goes on where it was stopped"


def test_bulk_work_shows_a_progress_bar(tmp_path: Path) -> None:
    script = "; ".join(
        [
            "import asyncio",
            "from holdfast.assembly.engine import open_engine",
            "from holdfast.model import NewJob",
            "engine = asyncio.run(open_engine())",
            "asyncio.run(engine.create_many([NewJob(type='a')] * 600))",
            "asyncio.run(engine.close())",
        ]
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    code, seen = on_terminal("jobs", "cancel", "--type", "a", "--yes", folder=tmp_path)
    assert code == 0
    assert "600/600" in without_escapes(seen)
    assert without_escapes(seen).rstrip().endswith("600 jobs canceled")


def test_history_is_aligned(tmp_path: Path, two_jobs: list[str]) -> None:
    holdfast("jobs", "cancel", two_jobs[0], folder=tmp_path)
    _, seen = on_terminal("jobs", "events", two_jobs[0], folder=tmp_path)
    first, second = without_escapes(seen).splitlines()
    assert first.index("#0") == second.index("#0")
