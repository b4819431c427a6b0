"""The comparison with peers runs from end to end, small, and the page shows what was measured."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.cells import cells
from benchmarks.peers.environments import DRIVERS, REQUIREMENTS, available
from benchmarks.peers.marks import Mark, all_at_work
from benchmarks.peers.page import PAGE, RESULTS, with_results
from benchmarks.peers.plots import plots

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
    stores = json.loads(file.read_text())["stores"]
    [ours] = stores["postgres"]["peers"]
    assert set(ours["cells"]) == {cell.name for cell in cells()}
    assert ours["cells"]["drain-1"]["rate"] > 0
    assert ours["cells"]["drain-1"]["wal_bytes"] > 0
    assert ours["cells"]["latency"]["p50"] > 0
    assert [peer["name"] for peer in stores["sqlite"]["peers"]] == ["holdfast on SQLite", "huey on SQLite"]
    shown = capsys.readouterr().out
    assert "drain, 1 process" in shown
    assert "What Holdfast set out to reach" in shown
    for drawing in plots(stores, watched=10.0).values():
        ElementTree.fromstring(drawing)


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
