"""The growth benchmark runs from end to end, small; what it asserts does not depend on the speed of the machine."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.databases import Host, host
from benchmarks.growth.__main__ import MEASURED, SERVER, TUNING, main, needed_bytes, room
from benchmarks.growth.figures import Figure, Sizes, percentile
from benchmarks.growth.retention import growing
from tests.sampling import Sample

KEPT = "attempts"  # prune keeps their record


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=getattr(pytest.mark, one)) for one in ("sqlite", "postgres")]
)
def machine(request: pytest.FixtureRequest) -> Iterator[Host]:
    with host(request.param, settings=SERVER, tuning=TUNING) as found:
        yield found


@pytest.fixture(scope="module")
def sizes(sample: Sample) -> Sizes:
    chance = random.Random(sample.number)
    return Sizes(
        drained=1_000 * chance.randint(1, 2),
        pinned_seconds=0.5,
        paced=100 * chance.randint(1, 3),
        workers=2,
        by_workers=100 * chance.randint(1, 5),
        through=2_000 * chance.randint(2, 4),
        lanes=chance.randint(20, 80),
        claims=chance.randint(2, 5),
        flood=1_000,
        waits=chance.randint(2, 5),
    )


def figures(name: str, machine: Host, sizes: Sizes) -> list[Figure]:
    store = "postgres" if hasattr(machine, "configure") else "sqlite"
    return asyncio.run(MEASURED[name](store, machine, sizes))


def assert_measured(found: list[Figure]) -> None:
    for figure in found:
        assert figure.value is not None
        assert figure.value > 0
        assert figure.met is not None
        assert figure.details
        json.dumps(figure.as_json())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in MEASURED if name not in ("lanes", "limits", "retention")])
def test_every_figure_is_measured(name: str, machine: Host, sizes: Sizes) -> None:
    found = figures(name, machine, sizes)
    assert found
    assert_measured(found)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_claims_are_measured_by_tenant_and_queue_local_and_remote_waiting_and_canceled(
    machine: Host, sizes: Sizes
) -> None:
    found = figures("lanes", machine, sizes)
    assert_measured(found)
    names = [figure.name for figure in found]
    assert len(names) == 8
    for word in ("tenants", "queues", "local", "remote", "jobs waiting", "all canceled"):
        assert sum(word in name for name in names) == 4


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tables_and_indexes_stop_growing_when_jobs_are_pruned(machine: Host, sizes: Sizes) -> None:
    [figure] = figures("retention", machine, sizes)
    assert [name for name in figure.details["growing"] if KEPT not in name] == []
    assert len(figure.details["bytes"]) == 20


def test_only_what_grows_in_the_second_half_counts_as_growing() -> None:
    steady = [100_000, 900_000, 900_000, 900_000]
    sampled = [
        {"steady": one, "grows": two, "small": three}
        for one, two, three in zip(steady, (10, 200_000, 400_000, 600_000), (1, 2, 3, 4), strict=True)
    ]
    assert growing(sampled) == ["grows"]


def test_a_figure_without_a_measurement_is_neither_reached_nor_missed() -> None:
    assert Figure("limits", None, 1.3).met is None
    assert Figure("limits", None, 1.3).row()[1] == "not measured"
    assert Figure("ratio", 0.9, 0.85, at_least=True).met
    assert not Figure("ratio", 1.6, 1.5).met


def test_a_figure_that_fails_does_not_cost_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def failing(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
        raise RuntimeError("the worker does not drain its queue")

    monkeypatch.setitem(MEASURED, "drain", failing)
    assert main(["--only", "drain,limits", "--store", "sqlite", "--scale", "0.001", "--results", str(tmp_path)]) == 1
    assert "limit keys" in capsys.readouterr().out
    [file] = tmp_path.iterdir()
    first, *others = json.loads(file.read_text())["stores"]["sqlite"]
    assert first["error"] == "the worker does not drain its queue"
    assert all(other["value"] > 0 for other in others)


def test_too_little_disk_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 1_000_000})())
    assert main(["--results", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"It needs {needed_bytes(Sizes()) / 1e9:.1f} GB" in said
    assert "--scale" in said
    assert list(tmp_path.iterdir()) == []


def test_a_smaller_scale_needs_less_room() -> None:
    small = Sizes().scaled(0.01)
    assert small.drained == 10_000
    assert small.workers == 2
    assert needed_bytes(small) < needed_bytes(Sizes()) / 20
    assert Sizes().scaled(1.0) == Sizes()
    enough, _ = room(Sizes().scaled(0.0001), Path("/"))
    assert enough


def test_percentiles_are_those_of_the_sorted_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0
