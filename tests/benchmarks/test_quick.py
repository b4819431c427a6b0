"""The benchmarks run from end to end, small: what is seldom run must not rot in between.

`make test` runs some of them, chosen by the commit, and `make soak` all.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    core,
    dispatch,
    generation,
    hints,
    hooks,
    http,
    idle,
    images,
    latency,
    leases,
    load,
    observability,
    outage,
    remote,
    streams,
)
from benchmarks.backlogs import backlogs
from benchmarks.brokers import MODES
from benchmarks.budget import stacks
from benchmarks.budget.parts import without_rows

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3, of="benchmarks")]


@pytest.fixture(params=[pytest.param(store, marks=getattr(pytest.mark, store)) for store in ("sqlite", "postgres")])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def results_of(benchmark: Any, store: str, directory: Path) -> list[Any]:
    benchmark.main(["--quick", "--store", store, "--results", str(directory)])
    [file] = directory.iterdir()
    results = json.loads(file.read_text())
    assert results["quick"]
    return list(results["stores"][store])


def test_the_budget_names_the_cost_of_every_part(store: str, tmp_path: Path) -> None:
    benchmark: Any = importlib.import_module("benchmarks.budget.__main__")
    benchmark.main(["--quick", "--store", store, "--results", str(tmp_path)])
    [file] = tmp_path.iterdir()
    found = json.loads(file.read_text())["stores"][store]
    operations = found["parts"]["operations"]
    assert list(operations) == ["claim+complete by 100", "claim+complete by 1", "create one", "create 1,000"]
    assert "rows of holdfast_events" in operations["create one"]["without"]
    assert all(each["all"]["cpu_micros"] > 0 for each in operations.values())
    assert list(found["workers"]) == ["1", "2"]
    assert found["ceiling"]["jobs_per_second"] > 0
    assert sum(each["share"] for each in found["modules"]) == pytest.approx(1.0, abs=0.01)
    if store == "postgres":
        by_100 = operations["claim+complete by 100"]
        assert by_100["without"]["rows of holdfast_events"]["wal_bytes"] < by_100["all"]["wal_bytes"]
        assert {each["of"] for each in found["wal"]} & {"holdfast_jobs", "holdfast_events"} or not found["wal"]
        assert [(each["by"], each["processes"]) for each in found["processes"]] == [(100, 1), (100, 2), (1, 1), (1, 2)]
        assert len(found["limits"]) == 8


def test_a_report_says_whether_the_machine_was_quiet() -> None:
    seen = load.look()
    assert 0.0 <= seen["busy"] <= 1.0
    assert ": quiet" in load.told({"busy": 0.02, "load": [0.1], "cores": 2})
    assert "NOT QUIET" in load.told({"busy": 0.5, "load": [3.0], "cores": 2})


def test_a_sample_of_the_database_belongs_to_its_most_specific_stage() -> None:
    stack = ["_bt_search", "_bt_doinsert", "[unknown]", "ExecInsertIndexTuples", "standard_ExecutorRun", "PostgresMain"]
    sample = "\n".join(f"\t  5c7ccd {function}" for function in stack)
    assert stacks.stage_of(sample) == "inserts into indexes"
    assert stacks.stage_of("\t  1 heap_update\n\t 2 standard_ExecutorRun") == "heap: update"
    assert stacks.stage_of("\t  1 hash_search\n\t 2 [unknown]") == stacks.REST
    assert stacks.shares(f"{sample}\n\n{sample}\n") == [{"stage": "inserts into indexes", "share": 1.0}]


def test_rows_that_are_taken_away_are_those_of_the_named_table_alone() -> None:
    text = "WITH m AS (INSERT INTO a (x) SELECT 1 FROM b WHERE y), h AS (INSERT INTO c (x) SELECT x FROM m WHERE z)"
    assert without_rows(text, frozenset({"c"})) == text.replace("WHERE z", "WHERE FALSE AND z")
    assert without_rows(text, frozenset({"d"})) == text


def test_the_hooks_benchmark_measures_every_figure(store: str, tmp_path: Path) -> None:
    results = results_of(hooks, store, tmp_path)
    assert [(one["figure"], one["side"]) for one in results] == [
        (figure.name, side) for figure in hooks.figures(hooks.QUICK) for side in (hooks.BESIDE, hooks.HOOKED)
    ]
    assert all(one["ratio"] > 0 for one in results)


def test_the_core_benchmark_measures_every_figure_and_concurrency(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = results_of(core, store, tmp_path)
    sizes = core.QUICK
    assert [result["figure"] for result in results] == [
        *(figure.name for figure in core.figures(sizes)),
        *(f"beside {backlog.name}" for backlog in backlogs(sizes.million)),
    ]
    assert all(result["ratio"] > 0 for result in results)
    assert "claim+complete by 100" in capsys.readouterr().out


def test_the_lease_benchmark_measures_every_strategy(store: str, tmp_path: Path) -> None:
    results = results_of(leases, store, tmp_path)
    assert len(results) == 2 * len(leases.PAYLOADS)
    assert all(list(result["ways"]) == list(leases.WAYS) for result in results)


def test_the_hint_benchmark_measures_every_way_to_create_jobs(store: str, tmp_path: Path) -> None:
    """K32."""
    results = [result["figure"] for result in results_of(hints, store, tmp_path)]
    assert results == [*hints.figures(1), "waiting"]


def test_the_stream_benchmark_measures_every_figure(store: str, tmp_path: Path) -> None:
    """F39."""
    [result] = results_of(streams, store, tmp_path)
    assert result["streams"] == streams.QUICK.streams
    assert result["pace"] > 0
    assert result["more_memory_mb"] < streams.MEMORY_MAX_MB


@pytest.mark.postgres
def test_the_http_benchmark_measures_every_figure(tmp_path: Path) -> None:
    rounds, *figures = results_of(http, "postgres", tmp_path)
    assert list(rounds["rounds"]) == ["bare POST", "POST /jobs", "bare GET", "GET /jobs/{id}", "inserts"]
    assert [figure["figure"] for figure in figures] == [*http.TARGETS, "POST /jobs, p99 over p50"]
    assert all(figure["value"] > 0 for figure in figures)


def test_the_image_benchmark_measures_every_figure(store: str, tmp_path: Path) -> None:
    results = results_of(images, store, tmp_path)
    aims = [result["figure"] for result in results if result["reached"] is not None]
    assert aims == [images.UPLOAD.format(1), images.PROCESSING, images.SMALL_THREE, images.SMALL_NINE]
    assert all(len(result["service"]["rounds"]) == 1 for result in results)


def test_the_generation_benchmark_measures_every_figure(store: str, tmp_path: Path) -> None:
    rounds, *figures = results_of(generation, store, tmp_path)
    assert list(rounds["rounds"]) == [generation.JOBS, generation.GENERATIONS, generation.ONE_USER]
    assert [figure["target"] for figure in figures] == [generation.SHARE_MIN, None, generation.PAGE_MAX]
    assert all(figure["value"] > 0 for figure in figures)


def test_the_remote_worker_benchmark_compares_it_with_a_local_worker(store: str, tmp_path: Path) -> None:
    results = results_of(remote, store, tmp_path)
    assert [result["figure"] for result in results] == [f"drain, {slots} slots" for slots in remote.SLOTS]


@pytest.mark.postgres
def test_the_idle_benchmark_counts_the_queries_of_idle_workers(tmp_path: Path) -> None:
    """A few processes, for a moment: that each of them polls, and a broker is used, shows in the statements."""
    idle.main(["--quick", "--results", str(tmp_path)])
    [file] = tmp_path.iterdir()
    without, with_broker = json.loads(file.read_text())["stores"]["postgres"]
    assert [without["mode"], with_broker["mode"]] == ["database", "redis"]
    assert without["per_second"] > 0
    assert any("seen_at" in statement for statement in without["statements"])
    assert with_broker["share"] > 0


def test_the_observability_benchmark_measures_every_figure(store: str, tmp_path: Path) -> None:
    """R000-72: what metrics, logs and traces take from the drain of a queue."""
    results = results_of(observability, store, tmp_path)
    assert [result["figure"] for result in results] == [*observability.TARGETS]
    assert all(result["ratio"] > 0 for result in results)


@pytest.mark.postgres
def test_the_dispatch_benchmark_measures_every_broker(tmp_path: Path) -> None:
    results = results_of(dispatch, "postgres", tmp_path)
    figures = [*(f"start, {mode}" for mode in dispatch.QUICK.processes), "drain", *hints.figures(1)]
    assert [result["figure"] for result in results] == figures
    assert all(ratio > 0 for result in results if "ratios" in result for ratio in result["ratios"].values())


@pytest.mark.postgres
def test_the_outage_benchmark_measures_every_broker(tmp_path: Path) -> None:
    """L6."""
    results = results_of(outage, "postgres", tmp_path)
    assert len(results) == (len(MODES) - 1) * len(outage.QUICK.cases) * len(outage.BOUNDS)
    assert all(0 < second < 60 for result in results for second in result["seconds"])


def test_the_latency_benchmark_measures_starts_and_results(store: str, tmp_path: Path) -> None:
    results = results_of(latency, store, tmp_path)
    assert [one["figure"] for one in results] == ["enqueue to start", "end to result", "enqueue to result"]
    assert all(0 < one["ms"][0] <= one["ms"][1] for one in results)
