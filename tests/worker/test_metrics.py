"""The metrics of workers: exact names, one port for all processes, and counters that never decrease."""

import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from holdfast.model import NewJob
from holdfast.observe.instruments import Histogram
from holdfast.observe.worker_metrics import WorkerMetrics
from tests.worker.counted_app import app as counted
from tests.worker.real_processes.conftest import harness
from tests.worker.real_processes.harness import Command, WorkerHarness, eventually
from tests.worker.test_http_source import remote

__all__ = ["harness"]

APP = ("--app", "tests.worker.counted_app:app")
OURS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800)
# As documents 000 and 002 have them; 002 names neither buckets nor labels for the last four but one each.
LIST: dict[str, tuple[str, set[str], tuple[float, ...]]] = {
    "job_processing_duration_seconds": ("histogram", {"job_type", "status"}, (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)),
    "job_queue_latency_milliseconds": (
        "histogram",
        {"job_type"},
        (
            *(10, 30, 50, 70, 100, 300, 500, 700, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000, 5500, 6000),
            *(6500, 7000, 7500, 8000, 8500, 9000, 9500, 10000),
        ),
    ),
    "job_processed_total": ("counter", {"job_type", "status"}, ()),
    "image_processing_errors_total": ("counter", {"error_type"}, ()),
    "s3_operation_duration_seconds": ("histogram", {"operation", "bucket"}, (0.1, 0.3, 0.5, 1, 3, 5, 7, 10)),
    "s3_operation_errors_total": ("counter", {"operation", "bucket", "error_code"}, ()),
    "db_query_duration_seconds": ("histogram", {"query_type"}, (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)),
    "db_query_errors_total": ("counter", {"query_type", "error_type"}, ()),
    "cloudfront_operation_duration_seconds": ("histogram", {"operation"}, (0.1, 0.3, 0.5, 1, 3, 5, 7, 10)),
    "cloudfront_operation_errors_total": ("counter", {"operation", "error_code"}, ()),
    "job_active_count": ("gauge", {"job_type"}, ()),
    "job_queue_depth": ("gauge", {"job_type"}, ()),
    "jobs_inflight": ("gauge", {"type"}, ()),
    "job_duration_seconds": ("histogram", set(), (0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10)),
    "job_failures_total": ("counter", {"code"}, ()),
    "retry_attempts_total": ("counter", set(), ()),
    "holdfast_wait_seconds": ("histogram", {"queue"}, OURS),
    "holdfast_run_seconds": ("histogram", {"job_type"}, OURS),
    "holdfast_attempts_total": ("counter", {"job_type", "outcome"}, ()),
    "holdfast_attempt_seconds": ("histogram", {"job_type", "outcome"}, OURS),
    "holdfast_leases_lost_total": ("counter", set(), ()),
    "holdfast_leases_reaped_total": ("counter", set(), ()),
    "holdfast_hook_failures_total": ("counter", {"extension", "verb"}, ()),
    "holdfast_stale_writes_rejected_total": ("counter", set(), ()),
    "holdfast_hints_total": ("counter", {"way", "outcome"}, ()),
    "holdfast_broker_up": ("gauge", set(), ()),
    "holdfast_breaker_open": ("gauge", set(), ()),
    "holdfast_slots": ("gauge", set(), ()),
    "holdfast_slots_busy": ("gauge", set(), ()),
    "holdfast_worker_processes": ("gauge", set(), ()),
}
NEVER_RECORDED = {name for name in LIST if name.startswith(("image_", "s3_", "cloudfront_"))}
NOT_RECORDED_HERE = {  # no faults, no broker
    *("db_query_errors_total", "holdfast_hook_failures_total", "holdfast_hints_total", "holdfast_broker_up"),
    "holdfast_attempt_seconds",
}

ON_SQLITE = pytest.mark.parametrize("store_url", [pytest.param("sqlite", marks=pytest.mark.sqlite)], indirect=True)
ON_POSTGRES = pytest.mark.parametrize(
    "store_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)

OpenHarness = Callable[..., Awaitable[WorkerHarness]]


class Page:
    """A parsed response of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {}
        for family in text_string_to_metric_families(text):
            self.families[family.name + ("_total" if family.type == "counter" else "")] = family

    def value(self, sample: str, **labels: str) -> float | None:
        found = [
            each.value
            for family in self.families.values()
            for each in family.samples
            if each.name == sample and each.labels == labels
        ]
        return found[0] if found else None

    @property
    def counts(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All values that must never decrease."""
        return {
            (each.name, tuple(sorted(each.labels.items()))): each.value
            for family in self.families.values()
            if family.type != "gauge"
            for each in family.samples
        }


def port_of(command: Command) -> int:
    found = re.search(r"metrics: http://0\.0\.0\.0:(\d+)/metrics", command.log)
    assert found, command.log
    return int(found[1])


async def ask(command: Command, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as http:
        return await http.get(f"http://127.0.0.1:{port_of(command)}{path}")


async def read(command: Command) -> Page:
    answer = await ask(command, "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Page(answer.text)


async def until(command: Command, condition: Callable[[Page], object]) -> Page:
    """The first response for which the condition is true."""

    async def look() -> Page | None:
        page = await read(command)
        return page if condition(page) else None

    found: Page = await eventually(look)
    return found


async def create(on: WorkerHarness, *types: str, **payload: Any) -> None:
    await (await on.engine()).create_many([NewJob(type=each, payload=payload) for each in types])


def check_form(page: Page) -> None:
    """Every name once, with HELP and TYPE, and nothing else; of those with samples, labels and buckets too."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page.text, re.MULTILINE))
    helped = re.findall(r"^# HELP (\S+) \S", page.text, re.MULTILINE)
    assert kinds == {name: kind for name, (kind, _, _) in LIST.items()}
    assert sorted(helped) == sorted(LIST)
    for name, (kind, labels, buckets) in LIST.items():
        for sample in page.families[name].samples:
            assert set(sample.labels) - {"le"} == labels, name
        if kind == "histogram" and page.families[name].samples:
            bounds = [each.labels["le"] for each in page.families[name].samples if each.name == f"{name}_bucket"]
            assert [float(bound) for bound in bounds[: len(buckets) + 1]] == [*buckets, float("inf")], name


# -- names, labels and buckets ----------------------------------------------------------------------------------------


def test_metrics_without_samples_have_their_labels_and_buckets() -> None:
    """R000-63..65, R000-68, R000-69: no sample shows them yet."""
    registry = WorkerMetrics()
    assert set(registry.instruments) == set(LIST)
    for name, instrument in registry.instruments.items():
        _, labels, buckets = LIST[name]
        assert set(instrument.labels) == labels, name
        assert (instrument.buckets if isinstance(instrument, Histogram) else ()) == buckets, name


async def test_two_processes_report_all_metrics_on_one_port(harness: OpenHarness, tmp_path: Path) -> None:
    """R000-60..72, R002-50..53: success, retry, death and rejection, as Prometheus reads them; C-35."""
    on = await harness()
    command = await on.start(*APP, "--processes", "2", "--concurrency", "4", "--metrics-port", "0", ready=2)
    first = await read(command)
    check_form(first)
    assert {first.value("job_active_count", job_type=name) for name in counted.handlers} == {0}
    assert {first.value("job_queue_depth", job_type=name) for name in counted.handlers} == {0}
    assert {first.value("jobs_inflight", type=name) for name in counted.handlers} == {0}
    assert (first.value("holdfast_slots"), first.value("holdfast_worker_processes")) == (8, 2)

    done = tmp_path / "done"
    await create(on, *["passes"] * 20, *["wavers"] * 5, "breaks", "rejects")
    await create(on, "waits", until=str(done))
    page = await until(
        command, lambda page: page.value("job_duration_seconds_count") == 32 and page.value("holdfast_slots_busy") == 1
    )
    check_form(page)
    assert not [
        name for name in LIST if not page.families[name].samples and name not in NEVER_RECORDED | NOT_RECORDED_HERE
    ]
    assert page.value("job_active_count", job_type="waits") == page.value("jobs_inflight", type="waits") == 1
    for name, status, number in (
        ("passes", "succeeded", 20),
        ("wavers", "retrying", 5),
        ("wavers", "succeeded", 5),
        ("breaks", "dead", 1),
        ("rejects", "rejected", 1),
    ):
        assert page.value("job_processed_total", job_type=name, status=status) == number
        assert page.value("job_processing_duration_seconds_count", job_type=name, status=status) == number
        assert page.value("holdfast_attempts_total", job_type=name, outcome=status) == number
    assert page.value("job_queue_latency_milliseconds_count", job_type="wavers") == 10
    assert page.value("holdfast_wait_seconds_count", queue="default") == 33, "of one that runs, too"
    assert page.value("holdfast_run_seconds_count", job_type="wavers") == 10
    assert page.value("job_failures_total", code="ConnectionError") == 5
    assert page.value("job_failures_total", code="E_BROKEN") == 1
    assert page.value("retry_attempts_total") == 5
    assert (page.value("db_query_duration_seconds_count", query_type="claim_jobs") or 0) > 0
    assert page.value("db_query_duration_seconds_bucket", query_type="claim_jobs", le="+Inf") == page.value(
        "db_query_duration_seconds_count", query_type="claim_jobs"
    )
    assert "is_never_asked_for" not in {key for _, labels in page.counts for _, key in labels}

    done.touch()
    await until(command, lambda page: page.value("holdfast_slots_busy") == 0)
    assert await command.stop() == 0
    ours = [line for line in command.log.splitlines() if '"logger":"holdfast.attempts"' not in line]
    assert not any("Traceback" in line for line in ours)  # but those of its handlers


async def test_queue_depth_is_reported_once_for_all_processes(harness: OpenHarness) -> None:
    """R000-71: each of them sees the same queue."""
    on = await harness()
    command = await on.start(*APP, "--queues", "elsewhere", "--processes", "2", "--metrics-port", "0", ready=2)
    await create(on, *["passes"] * 7)
    page = await until(command, lambda page: page.value("job_queue_depth", job_type="passes"))
    assert page.value("job_queue_depth", job_type="passes") == 7
    assert page.value("job_queue_depth", job_type="breaks") == 0
    assert page.value("job_processed_total", job_type="passes", status="succeeded") is None


# -- several processes ------------------------------------------------------------------------------------------------


@ON_POSTGRES
async def test_counters_never_decrease_when_processes_are_killed(harness: OpenHarness) -> None:
    """A process that dies loses its running jobs, and not the counters it has reported."""
    on = await harness(lease_seconds=3, heartbeat_seconds=1, sweep_seconds=0.5)
    command = await on.start(*APP, "--processes", "2", "--metrics-port", "0", ready=2)
    await create(on, *["passes"] * 10)
    before = await until(
        command, lambda page: page.value("job_processed_total", job_type="passes", status="succeeded") == 10
    )
    workers = command.workers
    await create(on, "kills")
    pages = [before]

    async def replaced() -> bool:
        pages.append(await read(command))
        assert {name for name, value in pages[-2].counts.items() if pages[-1].counts.get(name, -1) < value} == set()
        return pages[-1].value("job_processed_total", job_type="kills", status="succeeded") == 1 and (
            pages[-1].value("holdfast_worker_processes") == 2
        )

    await eventually(replaced)
    assert command.workers != workers
    check_form(pages[-1])
    assert pages[-1].value("job_processed_total", job_type="passes", status="succeeded") == 10
    assert pages[-1].value("job_active_count", job_type="kills") == 0
    assert pages[-1].value("holdfast_slots") == before.value("holdfast_slots")
    command.signal(signal.SIGKILL, command.workers)
    gone = await until(command, lambda page: page.value("holdfast_worker_processes") == 0)
    assert gone.value("job_processed_total", job_type="passes", status="succeeded") == 10
    assert gone.value("job_active_count", job_type="passes") == 0, "still shown"


@ON_SQLITE
async def test_a_process_that_does_not_answer_keeps_its_last_metrics(harness: OpenHarness, tmp_path: Path) -> None:
    on = await harness(lease_seconds=60)
    command = await on.start(*APP, "--metrics-port", "0")
    await create(on, "passes")
    await until(command, lambda page: page.value("job_processed_total", job_type="passes", status="succeeded") == 1)
    thaw = tmp_path / "thaw"
    await create(on, "freezes", until=str(thaw))
    await eventually(Path(f"{thaw}.begun").exists)
    page = await read(command)
    assert page.value("job_processed_total", job_type="passes", status="succeeded") == 1
    assert page.value("holdfast_worker_processes") == 1
    assert (await ask(command, "/readyz")).status_code == 200, "it looked for jobs a moment ago"
    thaw.touch()
    await until(command, lambda page: page.value("job_processed_total", job_type="freezes", status="succeeded") == 1)


@ON_SQLITE
async def test_readyz_fails_while_a_worker_process_is_missing(harness: OpenHarness) -> None:
    on = await harness(stop_grace_seconds=60)
    command = await on.start(*APP, "--processes", "2", "--metrics-port", "0", ready=2)

    async def ready() -> bool:
        return (await ask(command, "/readyz")).status_code == 200

    await eventually(ready)
    assert (await ask(command, "/livez")).json() == {"status": "ok"}
    assert (await ask(command, "/else")).json()["code"] == "route_not_found"
    command.signal(signal.SIGKILL, [min(command.workers)])

    async def short_of_one() -> bool:
        answer = await ask(command, "/readyz")
        return answer.status_code == 503 and answer.json()["detail"] == "1 of 2 processes can take jobs"

    await eventually(short_of_one)
    await eventually(ready)


@ON_SQLITE
async def test_readyz_fails_while_the_maintenance_loop_keeps_crashing(
    harness: OpenHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = tmp_path / "mended"
    monkeypatch.setenv("MENDED_FILE", str(mended))
    on = await harness()
    command = await on.start("--app", "tests.worker.dying_loop_app:app", "--metrics-port", "0")

    async def names_the_loop() -> bool:
        answer = await ask(command, "/readyz")
        return answer.status_code == 503 and "(maintenance)" in answer.json()["detail"]

    async def ready() -> bool:
        return (await ask(command, "/readyz")).status_code == 200

    await eventually(names_the_loop)
    assert "hunter2" not in (await ask(command, "/readyz")).text, "the error is in the log only"
    mended.touch()
    await eventually(ready)


# -- remote workers ---------------------------------------------------------------------------------------------------


async def test_a_remote_worker_has_all_metrics_except_those_of_the_database(
    fresh_sqlite_url: str, tmp_path: Path
) -> None:
    """It cannot know the queue depth, so it does not report it."""
    async with remote(fresh_sqlite_url, tmp_path) as (gate, on):
        command = await on.start(*APP, "--server", gate.url, "--metrics-port", "0")
        check_form(await read(command))
        await create(on, "passes", "breaks")
        await create(on, "wavers")
        page = await until(command, lambda page: page.value("job_duration_seconds_count") == 4)
        check_form(page)
        assert page.value("job_processed_total", job_type="wavers", status="retrying") == 1
        assert page.value("job_processed_total", job_type="breaks", status="dead") == 1
        assert page.value("job_active_count", job_type="passes") == 0
        assert not page.families["job_queue_depth"].samples
        assert not page.families["db_query_duration_seconds"].samples
        assert await command.stop() == 0
