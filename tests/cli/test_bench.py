"""`holdfast bench`: it measures, it asks before it disturbs, and it removes what it made."""

import asyncio
from pathlib import Path

import pytest

from holdfast.cli.bench.app import NAME
from holdfast.cli.bench.figures import MEANINGS, percentile
from holdfast.cli.bench.workers import workers_running
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.lifecycle import State
from holdfast.model import NewJob
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.processes import holdfast as run_holdfast
from tests.cli.processes import on_terminal, without_escapes
from tests.cli.sample_jobs import succeeded

pytestmark = pytest.mark.slow


async def counted(engine: Engine) -> dict[tuple[str, State], int]:
    return {(kind, state): jobs for _, kind, state, jobs in await engine.reads.counts()}


def test_bench_prints_figures_and_leaves_no_jobs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: succeeded(engine, type="older"))
    measured = holdfast("bench", "--jobs", "200", "--yes", "--json").json
    assert (measured["jobs"], measured["processes"], measured["concurrency"]) == (200, 1, 10)
    assert [figure["name"] for figure in measured["figures"]] == list(MEANINGS)
    assert all(figure["value"] > 0 for figure in measured["figures"])
    compared = {figure["name"] for figure in measured["figures"] if figure["byHand"]}
    assert compared == {"enqueue_one_by_one", "enqueue_bulk", "drain"}
    assert (measured["removed"] > 200, measured["stays"]) == (True, 0)
    assert meanwhile(counted) == {("older", State.SUCCEEDED): 1}
    assert holdfast("queues", "list", "--json").json["queues"][0]["pausedAt"] is None


def test_bench_with_several_processes_prints_a_table(tmp_path: Path) -> None:
    code, seen = on_terminal("bench", "--jobs", "100", "--processes", "2", "--concurrency", "3", folder=tmp_path)
    said = without_escapes(seen)
    assert code == 0
    assert "figure" in said
    assert all(name.replace("_", " ") in said for name in MEANINGS)
    assert "worker processes: 2, slots in each: 3" in said
    assert "what remains:" in said


def test_bench_asks_for_confirmation_when_the_database_is_in_use(tmp_path: Path) -> None:
    job = run_holdfast("jobs", "create", "send-email", folder=tmp_path).stdout.strip()
    refused = run_holdfast("bench", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "this database has other work: 1 unfinished job" in refused.stderr
    code, seen = on_terminal("bench", folder=tmp_path, typed="\n")
    assert (code, "Continue? [y/N]" in seen, "nothing was done" in seen) == (1, True, True)
    assert run_holdfast("jobs", "list", folder=tmp_path).stdout.split("\t")[0] == job


def test_ctrl_c_removes_the_jobs_created_so_far(tmp_path: Path) -> None:
    code, seen = on_terminal("bench", "--jobs", "3000", folder=tmp_path, interrupt_at="raw SQL, drain")
    assert (code, "Traceback" in seen) == (130, False)
    assert run_holdfast("jobs", "list", "--type", NAME, folder=tmp_path).stdout == ""
    assert run_holdfast("queues", "list", folder=tmp_path).stdout == "", "nor is the queue still paused"


def test_jobs_left_by_a_killed_run_are_removed_first(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: engine.create_many([NewJob(type=NAME, queue=NAME, payload={"text": "x"})] * 3))
    assert holdfast("bench", "--jobs", "20", "--json").code == 0
    assert meanwhile(counted) == {(NAME, State.CANCELED): 3}


def test_a_worker_that_does_not_start_is_an_error_that_says_why(tmp_path: Path) -> None:
    async def start() -> None:
        async with workers_running(["--concurrency", "0", "--database", f"sqlite:///{tmp_path}/jobs.db"], 1):
            raise AssertionError("it started")

    with pytest.raises(HoldfastError, match=r"a worker did not start: holdfast: --concurrency must be"):
        asyncio.run(start())


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--jobs", "many"], ["--processes", "0"]])
def test_invalid_numbers_are_usage_errors(holdfast: Holdfast, arguments: list[str]) -> None:
    assert holdfast("bench", *arguments).code == 2


@pytest.mark.parametrize(
    ("values", "part", "found"), [([1.0], 99, 1.0), ([3.0, 1.0, 2.0], 50, 2.0), ([*map(float, range(1, 201))], 99, 198)]
)
def test_a_percentile_is_one_of_the_values(values: list[float], part: int, found: float) -> None:
    assert percentile(values, part) == found
