"""The comparison with peers runs from end to end, small, and the page shows what was measured."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.aims import aims
from benchmarks.peers.bench import Sizes
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.cells import cells
from benchmarks.peers.complete import Partial, missing
from benchmarks.peers.environments import DRIVERS, REQUIREMENTS, available
from benchmarks.peers.marks import Mark, all_at_work
from benchmarks.peers.page import PAGE, RESULTS, publish, with_results
from benchmarks.peers.plots import plots

peers_main: Any = importlib.import_module("benchmarks.peers.__main__")
PEER = "huey"  # needs nothing but itself and SQLite


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.sampled(3, of="benchmarks")
@pytest.mark.timeout(400)
def test_every_cell_is_measured_for_holdfast_and_a_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, missing = available([PEER])
    if missing:
        pytest.skip(f"{PEER} is not available: {missing[PEER]}")
    assert main(["--quick", "--only", f"holdfast,{PEER}", "--results", str(tmp_path)]) == 0, capsys.readouterr().out
    [file] = tmp_path.iterdir()
    results = json.loads(file.read_text())
    stores = results["stores"]
    assert "POST /jobs, of the bare endpoint" in [figure["figure"] for figure in results["http"]]
    [ours] = stores["postgres"]["peers"]
    assert set(ours["cells"]) == {cell.name for cell in cells()}
    assert ours["cells"]["drain-1"]["rate"] > 0
    assert ours["cells"]["drain-1"]["wal_bytes"] > 0
    assert ours["cells"]["latency"]["p50"] > 0
    assert [peer["name"] for peer in stores["sqlite"]["peers"]] == ["holdfast on SQLite", "huey on SQLite"]
    shown = capsys.readouterr().out
    assert "drain, 1 process" in shown
    assert "What Holdfast is to reach" in shown
    for drawing in plots(stores, watched=10.0).values():
        ElementTree.fromstring(drawing)


def complete() -> dict[str, Any]:
    """The results of a run that lacks nothing."""
    rounds: dict[bool, list[Any]] = {True: [{}] * Sizes.rounds, False: [{}]}
    stores: dict[str, Any] = {}
    for peer in PEERS:
        measured = {cell.name: {"rounds": rounds[cell.repeated]} for cell in cells() if cell.applies(peer)}
        stores.setdefault(peer.store, {"peers": []})["peers"].append({"name": peer.name, "cells": measured})
    return {"quick": False, "stores": stores, "http": [{"figure": "POST /jobs", "value": 0.5, "target": 0.5}]}


def lacks_a_peer(results: dict[str, Any]) -> str:
    return str(results["stores"]["redis"]["peers"].pop(0)["name"])


def lacks_a_cell(results: dict[str, Any]) -> str:
    del results["stores"]["sqlite"]["peers"][0]["cells"]["latency"]
    return "holdfast on SQLite: latency when idle"


def has_a_failed_cell(results: dict[str, Any]) -> str:
    results["stores"]["postgres"]["peers"][1]["cells"]["drain-2"] = {"error": "no job began\nat all"}
    return "drain, 2 processes, which failed: no job began"


def lacks_a_round(results: dict[str, Any]) -> str:
    results["stores"]["postgres"]["peers"][0]["cells"]["one"]["rounds"] = [{}]
    return "1 of 2 rounds"


def lacks_http(results: dict[str, Any]) -> str:
    results["http"] = None
    return "POST /jobs"


def was_quick(results: dict[str, Any]) -> str:
    results["quick"] = True
    return "quick"


@pytest.mark.parametrize(
    "spoiled", [lacks_a_peer, lacks_a_cell, has_a_failed_cell, lacks_a_round, lacks_http, was_quick]
)
def test_a_partial_run_is_not_published(spoiled: Callable[[dict[str, Any]], str], tmp_path: Path) -> None:
    results = complete()
    assert missing(results) == []
    named = spoiled(results)
    file = tmp_path / "peers.json"
    file.write_text(json.dumps(results))
    before = PAGE.read_text(encoding="utf-8")
    with pytest.raises(Partial, match="not published") as refused:
        publish(file)
    assert named in str(refused.value)
    assert PAGE.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("words", [["--only", "huey"], ["--cells", "one"], ["--quick"], ["--rounds", "1"]])
def test_options_that_leave_something_out_are_refused_before_the_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers_main, "available", lambda packages: ({}, {}))
    assert main(["--publish", *words]) == 1
    assert f"what {words[0]}" in capsys.readouterr().out


def test_a_peer_that_cannot_be_installed_is_named_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers_main, "available", lambda packages: ({}, {"chancy": "no such version"}))
    assert main(["--publish"]) == 1
    assert "chancy: no such version" in capsys.readouterr().out


def test_the_second_process_is_judged_by_its_gain_or_by_the_ceiling() -> None:
    def judged(two: float) -> bool:
        drained = {"cpu_micros": 20.0, "store_cpu_micros": 30.0}
        measured = {"drain-1": {"rate": 20_000.0, **drained}, "drain-2": {"rate": two, **drained}}
        peers = [{"name": "holdfast", "package": "holdfast", "cells": measured}]
        results = {"stores": {"postgres": {"peers": peers}}, "machine": {"cores": 2}}
        [found] = [aim for aim in aims(results) if aim.about.startswith("2 processes, times 1 process")]
        assert "40,000 jobs/s" in found.about
        return found.met

    assert [judged(two) for two in (27_000.0, 28_000.0, 34_000.0)] == [False, True, True]


def test_every_peer_has_a_driver_and_exact_versions() -> None:
    for peer in PEERS:
        assert list(DRIVERS.glob(f"{peer.package.replace('-', '_')}_jobs.*")), peer.name
    for file in REQUIREMENTS.glob("*.txt"):
        assert all("==" in line for line in file.read_text().splitlines()), file.name


def test_a_run_is_measured_from_the_time_when_all_processes_work() -> None:
    marks = [Mark(1, 10), Mark(1, 20), Mark(2, 30), Mark(1, 40)]
    assert all_at_work(marks, processes=2) == 30
    assert all_at_work([*marks, Mark(3, 50)], processes=2) == 10  # a process for each job


def test_the_performance_page_shows_the_stored_results() -> None:
    if not RESULTS.exists():
        pytest.skip("no benchmark results are published yet: run make bench-peers")
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_results(page, json.loads(RESULTS.read_text()))


def test_an_unknown_peer_or_cell_is_an_error_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--only", "sidekiq"], ["--cells", "lunch"]):
        with pytest.raises(SystemExit):
            main(words)
        assert f"{words[1]} not among" in capsys.readouterr().err
