"""Every metric is explained, with the type and the labels it really has."""

import re

from holdfast.observe.instruments import Instrument, MetricsRegistry
from holdfast.observe.server_metrics import ServerMetrics
from holdfast.observe.worker_metrics import MILLISECONDS, OUR_SECONDS, SECONDS, WorkerMetrics
from holdfast.workloads.generation import ext as generation
from tests.docs.pages import PAGES

PAGE = PAGES["docs/reference/metrics.md"]
ROW = re.compile(r"(?m)^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) ?\|")


def part(heading: str) -> str:
    """The text up to the next heading of its level."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def told(heading: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(part(heading))}


def real(registry: MetricsRegistry) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {name: (kind_of(each), each.labels) for name, each in registry.instruments.items()}


def kind_of(instrument: Instrument) -> str:
    return instrument.family().type


def test_the_metrics_of_a_server_are_those_on_the_page() -> None:
    assert told("Server metrics") == real(ServerMetrics())


def test_the_metrics_of_a_worker_are_those_on_the_page() -> None:
    """R000-60..71, R002-50..53."""
    assert told("Worker metrics") == real(WorkerMetrics())


def test_the_metrics_of_the_generation_service_are_those_on_the_page() -> None:
    assert told("Extension metrics") == {each.name: (each.kind, each.labels) for each in generation.metrics.values()}


def test_the_buckets_of_a_worker_are_those_on_the_page() -> None:
    text = " ".join(part("Worker metrics").split()).replace(",000", "000").replace(",800", "800")
    for buckets in (SECONDS, OUR_SECONDS):
        shown = [f"{bound:g}" for bound in buckets]
        assert f"{', '.join(shown[:-1])} and {shown[-1]} seconds" in text
    assert f"{', '.join(str(bound) for bound in MILLISECONDS[:10])} and every 500 up to 10000" in text


def test_the_overlapping_metric_names_exist() -> None:
    names = re.findall(r"`(\w+)`", part("Overlapping names"))
    assert len(names) > 10
    assert {*names} <= {*ServerMetrics().instruments, *WorkerMetrics().instruments}


def test_the_process_metrics_are_documented() -> None:
    families = {family.name: family.type for family in ServerMetrics().collect() if family.name.startswith("process_")}
    shown = {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}
    assert shown == set(re.findall(r"`(process_\w+)`", PAGE))
