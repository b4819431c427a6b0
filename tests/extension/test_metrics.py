"""Metrics of extensions: declared once, fed anywhere, and told by each server and worker that has the extension."""

import asyncio
import logging
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import httpx2
import msgspec
import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.model import NewJob
from holdfast.observe.extension_metrics import COMBINATIONS_MAX, Declarations
from holdfast.observe.instruments import MetricsRegistry
from holdfast.observe.worker_metrics import WorkerMetrics
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.testing import fake_context
from holdfast.worker.metrics import WorkerCounters
from holdfast.worker.processes.child_process import ChildProcess
from holdfast.worker.processes.child_protocol import MetricsUpdate, to_child, to_worker
from tests.cli.background import Background
from tests.extension import toy
from tests.server.steps import serving
from tests.worker.in_process import until
from tests.worker.real_processes.harness import eventually
from tests.worker.test_metrics import Page

REPOSITORY = str(Path(__file__).parents[2])
WORKER = ("worker", "--app", "tests.extension.toy:app", "--metrics-port", "0")


@pytest.fixture
def pages() -> Extension:
    return Extension("pages", package="tests")


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def text_of(*extensions: Extension) -> str:
    registry = MetricsRegistry()
    for each in extensions:
        registry.adopt(each.metrics.values())
    return registry.text().decode()


# -- declaring --------------------------------------------------------------------------------------------------


def test_a_metric_has_the_prefix_of_the_extension_and_is_exposed_before_its_first_value(pages: Extension) -> None:
    pages.counter("read", "Pages that were read.", ["kind"])
    pages.gauge("image_processing_rate", "Images a second.", exact=True)
    pages.histogram("size", "How large.", buckets=[1, 2])
    told = text_of(pages)
    assert "# HELP pages_read_total Pages that were read.\n# TYPE pages_read_total counter\n" in told
    assert "# TYPE image_processing_rate gauge\nimage_processing_rate 0.0\n" in told
    assert 'pages_size_bucket{le="2.0"} 0.0' in told


@pytest.mark.parametrize(
    ("kind", "words", "options"),
    [
        ("counter", ("not a name", "x"), {}),
        ("counter", ("values", "x"), {}),
        ("counter", ("read", ""), {}),
        ("counter", ("read", "x", ["le"]), {}),
        ("counter", ("read", "x", ["__a"]), {}),
        ("counter", ("read", "x", ["a", "a"]), {}),
        ("counter", ("read", "x", [f"l{n}" for n in range(11)]), {}),
        ("counter", ("read", "x"), {"exact": True}),
        ("gauge", ("holdfast_slots", "x"), {"exact": True}),
        ("gauge", ("known", "x"), {}),
        ("counter", ("known_total", "x"), {}),
        ("histogram", ("size", "x"), {"buckets": [2, 1]}),
        ("histogram", ("size", "x"), {"buckets": []}),
        ("histogram", ("size", "x"), {"buckets": [float("inf")]}),
    ],
)
def test_an_invalid_metric_is_rejected_where_it_is_declared(
    pages: Extension, kind: str, words: tuple[Any, ...], options: dict[str, Any]
) -> None:
    pages.counter("known", "x")
    with pytest.raises(Invalid, match="extension 'pages'") as refused:
        getattr(pages, kind)(*words, **options)
    assert refused.value.code == "invalid_metric"


@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        ("counter", "notes_indexed_total", "notes_indexed_total of the extension notes"),
        ("gauge", "notes_length_count", "notes_length of the extension notes"),
        ("counter", "job_processed_total", "job_processed_total of the core"),
        ("gauge", "http_requests", "http_requests_total of the core"),
    ],
)
def test_a_metric_name_in_use_is_an_error_that_names_both(pages: Extension, kind: str, name: str, other: str) -> None:
    app = App(name="other")
    app.extensions["notes"] = toy.ext
    getattr(pages, kind)(name, "x", exact=True)
    with pytest.raises(Invalid, match="of the extension pages") as refused:
        app.include(pages)
    assert refused.value.code == "duplicate_metric"
    assert other in refused.value.message


def test_an_extension_can_implement_a_reserved_core_metric(pages: Extension) -> None:
    """R000-63, R000-68, R000-69: to the letter, or it collides."""
    operation_seconds = (0.1, 0.3, 0.5, 1, 3, 5, 7, 10)
    errors = pages.counter("image_processing_errors_total", "x", ["error_type"], exact=True)
    took = pages.histogram(
        "cloudfront_operation_duration_seconds", "x", ["operation"], buckets=operation_seconds, exact=True
    )
    failed = pages.counter("cloudfront_operation_errors_total", "x", ["operation", "error_code"], exact=True)
    app = App(name="other")
    app.include(pages)
    errors.add(1, "corrupt")
    took.observe(0.4, "invalidate")
    failed.add(1, "invalidate", "throttled")
    page = Page(WorkerCounters([], declarations=app.declarations()).registry.text().decode())
    assert page.value("image_processing_errors_total", error_type="corrupt") == 1
    assert page.value("cloudfront_operation_duration_seconds_bucket", operation="invalidate", le="0.5") == 1
    assert page.value("cloudfront_operation_errors_total", operation="invalidate", error_code="throttled") == 1


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("counter", "image_processing_errors_total", {"labels": ["reason"]}),
        ("histogram", "cloudfront_operation_duration_seconds", {"labels": ["operation"], "buckets": [1, 2]}),
        ("counter", "s3_operation_errors_total", {"labels": ["operation", "bucket", "error_code"]}),
    ],
)
def test_a_reserved_core_metric_of_another_type_is_rejected(
    pages: Extension, kind: str, name: str, options: dict[str, Any]
) -> None:
    getattr(pages, kind)(name, "x", exact=True, **options)
    with pytest.raises(Invalid, match="of the core"):
        App(name="other").include(pages)


def test_declaring_a_metric_after_include_is_an_error(pages: Extension) -> None:
    App(name="other").include(pages)
    with pytest.raises(Invalid, match="declared after"):
        pages.gauge("late", "x")


# -- feeding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "feed", "words"),
    [
        ("read", "add", (1,)),
        ("read", "add", (1, "a", "b")),
        ("read", "add", (1, 5)),
        ("read", "add", (-1, "a")),
        ("read", "add", (float("nan"), "a")),
        ("read", "add", (10**5000, "a")),
        ("read", "add", ("1", "a")),
        ("open", "set", (float("inf"),)),
        ("open", "add", (True,)),
        ("size", "observe", (None,)),
    ],
)
def test_an_invalid_metric_value_is_an_error(pages: Extension, name: str, feed: str, words: tuple[Any, ...]) -> None:
    pages.counter("read", "x", ["kind"])
    pages.gauge("open", "x")
    pages.histogram("size", "x")
    before = text_of(pages)
    with pytest.raises(Invalid, match="metric pages_") as refused:
        getattr(pages.metrics[name], feed)(*words)
    assert refused.value.code == "invalid_metric_value"
    assert text_of(pages) == before


def test_an_undeclared_metric_is_an_error_that_lists_the_declared_ones(pages: Extension) -> None:
    pages.counter("read", "x")
    with pytest.raises(AttributeError, match="declares no metric 'red'; it has: read"):
        fake_context(metrics=pages.metrics).metrics.red.add(1)


def test_label_values_are_text_and_their_number_is_bounded(pages: Extension, caplog: pytest.LogCaptureFixture) -> None:
    read = pages.counter("read", "x", ["kind"])
    for number in range(COMBINATIONS_MAX + 5):
        read.add(1, f"{number}")
    assert (len(read.values), read.value("other")) == (COMBINATIONS_MAX + 1, 5)
    assert [line.getMessage() for line in caplog.records] == [
        "metric pages_read_total has 1000 label sets, the maximum; further ones are counted as 'other'"
    ]
    size = pages.histogram("size", "x", ["kind"])
    size.observe(1, "\udc80" + "x" * 1000)
    assert size.value("?" + "x" * 199) == (1, 1.0)
    assert text_of(pages)


def test_metrics_are_thread_safe(pages: Extension) -> None:
    read = pages.counter("read", "x")
    threads = [threading.Thread(target=lambda: [read.add(1) for _ in range(2000)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert read.value() == 8000


# -- child processes --------------------------------------------------------------------------------------------


def test_counters_of_a_child_process_are_added_and_its_gauges_end_with_it(pages: Extension) -> None:
    here, there = Extension("pages", package="tests"), pages
    for each in (here, there):
        each.counter("read", "x", ["kind"])
        each.gauge("open", "x")
        each.histogram("size", "x", buckets=[1])
    child, worker = Declarations(there.metrics.values()), Declarations(here.metrics.values())
    here.metrics["read"].add(1, "a")  # type: ignore[union-attr]
    here.metrics["open"].set(1)  # type: ignore[union-attr]
    for _ in range(2):
        there.metrics["read"].add(1, "a")  # type: ignore[union-attr]
        there.metrics["open"].add(2)  # type: ignore[union-attr]
        there.metrics["size"].observe(0.5)  # type: ignore[union-attr]
        for message in child.take():
            worker.merge("child", raw(message))
    assert list(child.take()) == []
    assert (here.metrics["read"].value("a"), here.metrics["open"].value()) == (3, 5)
    assert here.metrics["size"].value() == (2, 1.0)
    worker.forget("child")
    assert (here.metrics["read"].value("a"), here.metrics["open"].value()) == (3, 1)


async def test_gauges_in_the_last_report_of_a_child_are_dropped(pages: Extension) -> None:
    pages.counter("read", "x")
    pages.gauge("open", "x")
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    child = ChildProcess(process, await to_child(ours), Clock(), Declarations(pages.metrics.values()))
    said = await to_worker(theirs)
    await child.exited
    await said.send(MetricsUpdate(raw({"pages_read_total": [[[], 2]], "pages_open": [[[], 3]]})))
    said.close()
    assert await child._serve(cast(Any, None)) is None
    child.channel.close()
    assert (pages.metrics["read"].value(), pages.metrics["open"].value()) == (2, 0)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (raw({"pages_new_total": [[["a"], 1]]}), "metric pages_new_total of a child process is unknown here"),
        (
            raw({"pages_read_total": [[["a", "b"], 1]]}),
            "metric pages_read_total of a child process has different labels",
        ),
        (raw({"pages_read_total": [[["a"], None]]}), "metric pages_read_total of a child process has different labels"),
        (raw({"pages_size": [[[], [1, 2]]]}), "metric pages_size of a child process has different labels"),
        (raw([1]), "metrics of a child process cannot be decoded and are dropped"),
    ],
)
def test_metrics_of_an_incompatible_child_are_dropped_and_logged_once(
    pages: Extension,
    message: msgspec.Raw,
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.observe.instruments._warned", set())
    pages.counter("read", "x", ["kind"])
    pages.histogram("size", "x", buckets=[1])
    worker, before = Declarations(pages.metrics.values()), text_of(pages)
    for _ in range(3):
        worker.merge("child", message)
    assert text_of(pages) == before
    [line] = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert said in line


def test_metrics_of_a_process_of_another_version_are_dropped_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.observe.instruments._warned", set())
    registry = WorkerMetrics()
    for _ in range(2):
        registry.show_labels({"newer_total": [(("a",), 1)], "job_failures_total": [(("a", "b"), 1)]})
        registry.keep_counters({"newer_total": [(("a",), 1)], "job_failures_total": [(("E_X",), 1)]})
    assert registry.failures.values == {("E_X",): 2}
    assert len(caplog.records) == 2


# -- servers and workers ----------------------------------------------------------------------------------------


async def test_a_server_exposes_metrics_of_routes_hooks_and_maintenance(store_url: str) -> None:
    """On SQLite hooks run in the thread of the writer."""
    maintained = toy.indexed.value("maintenance")
    async with serving(store_url, app=toy.app) as served:

        async def read() -> Page:
            return Page((await served.http.get("/metrics")).text)

        await until(lambda: toy.indexed.value("maintenance") > maintained, seconds=60)
        before = await read()
        assert {"notes_indexed_total", "notes_length", "open_pages", "s3_operation_errors_total"} <= {*before.families}
        assert (await served.http.post("/notes", json={"text": "hello"})).status_code == 201
        after = await read()
        for place in ("route", "effect"):
            counted = after.value("notes_indexed_total", place=place) or 0
            assert counted - (before.value("notes_indexed_total", place=place) or 0) == 1
        assert after.value("notes_indexed_total", place="maintenance") == maintained + 1
    async with serving(store_url) as without:
        assert "notes_indexed" not in (await without.http.get("/metrics")).text


@pytest.fixture
async def app(fresh_sqlite_url: str) -> AsyncIterator[App]:
    toy.app.settings = Settings(database_url=fresh_sqlite_url)
    await migrate(fresh_sqlite_url, toy.app.extensions.values())
    yield toy.app
    await toy.app.close()


async def test_a_worker_exposes_metrics_of_handlers_in_all_processes(app: App, tmp_path: Path) -> None:
    variables = {"PYTHONPATH": REPOSITORY, "HOLDFAST_DATABASE_URL": app.settings.url, "HOLDFAST_CONCURRENCY": "2"}
    with Background(*WORKER, "--processes", "2", folder=tmp_path, **variables) as worker:
        first = await read_when_ready(worker)
        assert {"notes_indexed_total", "notes_length", "open_pages"} <= {*first.families}
        engine = await app.engine()
        jobs = [*[NewJob(type="NOTE_INDEX", payload={"text": "hello"})] * 6]
        await engine.create_many([*jobs, NewJob(type="NOTE_SCAN", payload={"text": "hi"})])
        page = await page_where(
            worker,
            lambda page: (
                page.value("notes_indexed_total", place="worker") == 6
                and page.value("notes_indexed_total", place="child") == 1
                and page.value("notes_indexed_total", place="effect") == 7  # of their ends; another process made them
            ),
        )
        assert (page.value("notes_length_count"), page.value("notes_length_sum")) == (6, 30)
        assert page.value("open_pages") == 3, "while the child lives"
        assert worker.end() == 0
        assert "Traceback" not in worker.said, worker.said


async def test_a_remote_worker_exposes_metrics_of_its_handlers(fresh_sqlite_url: str, tmp_path: Path) -> None:
    async with serving(fresh_sqlite_url, app=toy.app) as served:
        key = (await served.register())["apiKey"]
        variables = {"PYTHONPATH": REPOSITORY, "HOLDFAST_WORKER_KEY": key}
        with Background(*WORKER, "--server", served.url, folder=tmp_path, **variables) as worker:
            await read_when_ready(worker)
            await served.engine.create_many(
                [NewJob(type=name, payload={"text": "hello"}) for name in ("NOTE_INDEX", "NOTE_SCAN")]
            )
            await page_where(
                worker,
                lambda page: (
                    page.value("notes_indexed_total", place="worker") == 1
                    and page.value("notes_indexed_total", place="child") == 1
                ),
            )


async def read_when_ready(worker: Background) -> Page:
    await eventually(lambda: "ready: " in worker.said or worker.process.poll() is not None)
    return await read(worker)


async def read(worker: Background) -> Page:
    found = re.search(r"metrics: http://0\.0\.0\.0:(\d+)/metrics", worker.said)
    assert found, worker.said
    async with httpx2.AsyncClient(timeout=30) as http:
        return Page((await http.get(f"http://127.0.0.1:{found[1]}/metrics")).text)


async def page_where(worker: Background, condition: Callable[[Page], bool]) -> Page:
    async def look() -> Page | None:
        page = await read(worker)
        return page if condition(page) else None

    found: Page = await eventually(look)
    return found


# -- storage ----------------------------------------------------------------------------------------------------


async def test_storage_operations_of_an_extension_are_counted(pages: Extension, tmp_path: Path) -> None:
    """R000-64: by itself."""
    storage = pages.open_storage(str(tmp_path / "objects"))
    app = App(name="other")
    app.include(pages)
    took = app.declarations().by_name["s3_operation_duration_seconds"]
    before, _ = took.value("put", storage.bucket)  # type: ignore[misc]
    await storage.put("a", b"x")
    assert took.value("put", storage.bucket)[0] == before + 1  # type: ignore[index]
