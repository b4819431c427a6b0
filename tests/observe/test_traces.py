"""Traces: a span where a job is handed in, one for each attempt, and a link between them (issue 5)."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from holdfast import App, Client, Permanent, trace_headers
from holdfast.errors import HoldfastError
from holdfast.model import NewJob
from holdfast.observe.otel_export import LinkedSampler, OtelExport
from holdfast.observe.traces import SpanRateLimit, Traces, origin_of
from holdfast.observe.tracing import traces
from holdfast.settings import Settings
from tests.cli.background import Background
from tests.cli.processes import PROGRAM, environment
from tests.clocks import WholeClock
from tests.observe.collector import Collector, collecting
from tests.server.processes import server_process
from tests.server.steps import serving
from tests.worker.in_process import until, working

ROOT = Path(__file__).parents[2]
APP = "tests.observe.traced_app:app"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
UNRECORDED = f"00-{TRACE}-{SPAN}-00"


@pytest.fixture(scope="session")
def memory() -> InMemorySpanExporter:
    """OpenTelemetry takes one provider in the life of a process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    memory.clear()
    yield memory
    memory.clear()


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url, traces=True))
    yield app
    await app.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def place_of(span: ReadableSpan) -> tuple[str, str]:
    assert span.context
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def place_in(carried: Any) -> tuple[str, str]:
    _, trace_id, span_id, _ = carried["traceparent"].split("-")
    return trace_id, span_id


# -- handing in -------------------------------------------------------------------------------------------------------


async def test_a_job_stores_the_span_that_created_it(app: App, spans: InMemorySpanExporter) -> None:
    @app.job(queue="letters")
    async def greet(name: str) -> None: ...

    with trace.get_tracer("test").start_as_current_span("request") as request:
        handle = await greet.enqueue(name="Ann")

    [produced] = named(spans, "enqueue greet")
    assert produced.kind is SpanKind.PRODUCER
    assert produced.parent == request.get_span_context()
    assert produced.attributes == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "letters",
        "messaging.message.id": handle.id,
        "holdfast.job.type": "greet",
    }
    assert place_in((await handle.get()).trace) == place_of(produced)


async def test_many_jobs_share_one_span(app: App, spans: InMemorySpanExporter) -> None:
    @app.job()
    async def greet(name: str) -> None: ...

    handles = await greet.enqueue_many({"name": name} for name in ("Ann", "Bob", "Cid"))
    [produced] = spans.get_finished_spans()
    assert produced.attributes
    assert produced.attributes["messaging.batch.message_count"] == 3
    assert {place_in((await handle.get()).trace) for handle in handles} == {place_of(produced)}


def test_sync_code_is_traced_too(store_url: str, spans: InMemorySpanExporter) -> None:
    app = App(Settings(database_url=store_url, traces=True))

    @app.job()
    def greet(name: str) -> None: ...

    with trace.get_tracer("test").start_as_current_span("request") as request:
        handle = greet.enqueue_sync(name="Ann")
    app.close_sync()
    [produced] = named(spans, "enqueue greet")
    assert produced.parent == request.get_span_context()
    assert produced.attributes
    assert produced.attributes["messaging.message.id"] == handle.id


async def test_a_failed_create_span_has_the_error_code_without_the_message(
    app: App, spans: InMemorySpanExporter
) -> None:
    with pytest.raises(HoldfastError):
        await app.create([NewJob(type="a", tags=["ein Geheimnis\n"])])
    [produced] = spans.get_finished_spans()
    assert produced.status.description == "invalid_field"
    assert not produced.events
    assert "Geheimnis" not in produced.to_json()


async def test_a_retry_with_another_trace_is_the_same_request(app: App, spans: InMemorySpanExporter) -> None:
    @app.job()
    async def greet(name: str) -> None: ...

    first = await greet.options(idempotency_key="hello").enqueue(name="Ann")
    again = await greet.options(idempotency_key="hello").enqueue(name="Ann")
    assert (again.id, again.existed) == (first.id, True)
    assert place_in((await first.get()).trace) == place_of(named(spans, "enqueue greet")[0])


# -- attempts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def traced(app: App, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> App:
    """Its workers make spans."""
    import tests.worker.in_process as here

    original = here.HandlerResources
    monkeypatch.setattr(here, "HandlerResources", lambda **given: original(traces=traces(), **given))
    return app


async def test_an_attempt_is_a_trace_of_its_own_linked_to_where_the_job_came_from(
    traced: App, spans: InMemorySpanExporter
) -> None:
    @traced.job(max_attempts=3)
    async def greet(name: str) -> None:
        raise Permanent("E_NOBODY", "nobody is called so")

    handle = await greet.enqueue(name="Ann")
    async with working(traced):
        await until(lambda: named(spans, "run greet"))
    [produced], [attempt] = named(spans, "enqueue greet"), named(spans, "run greet")
    assert attempt.kind is SpanKind.CONSUMER
    assert attempt.parent is None
    assert [link.context.span_id for link in attempt.links] == [produced.context.span_id]
    assert attempt.attributes == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": handle.id,
        "holdfast.job.type": "greet",
        "holdfast.attempt": 1,
        "holdfast.max_attempts": 3,
        "holdfast.outcome": "failed",
        "error.type": "E_NOBODY",
    }
    assert attempt.status.description == "E_NOBODY"


async def test_an_attempt_of_an_unsampled_trace_is_not_recorded(traced: App, spans: InMemorySpanExporter) -> None:
    """Nor of the jobs that it hands in itself; but the trace goes on through all of them."""
    seen: list[str] = []

    @traced.job()
    async def outer() -> None:
        await inner.enqueue()

    @traced.job()
    async def inner() -> None:
        seen.append(trace_headers()["traceparent"])

    await traced.create([NewJob(type="outer", trace={"traceparent": UNRECORDED})])
    async with working(traced):
        await until(lambda: seen)
    [parent] = seen
    assert parent.startswith(f"00-{TRACE}-")
    assert parent.endswith("-00")
    assert not spans.get_finished_spans()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        {"traceparent": "nonsense"},
        {"traceparent": "00-xyz-1-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    ],
)
def test_an_invalid_trace_context_is_ignored(stored: dict[str, str] | None) -> None:
    assert origin_of(stored) is None


def test_an_origin_keeps_its_tracestate() -> None:
    origin = origin_of({"traceparent": PARENT, "tracestate": "vendor=1,other=2"})
    assert origin
    assert origin.trace_state.to_header() == "vendor=1,other=2"


def test_an_attempt_is_recorded_whenever_its_producer_was() -> None:
    """One in ten jobs, not one in ten of the attempts of one in ten."""
    provider = TracerProvider(sampler=LinkedSampler(ParentBased(ALWAYS_OFF)))
    tracer = provider.get_tracer("test")
    recorded, unrecorded = (SpanContext(1, 2, True, TraceFlags(flags)) for flags in (1, 0))
    assert tracer.start_span("run", links=[Link(recorded)]).is_recording()
    assert not tracer.start_span("run", links=[Link(unrecorded)]).is_recording()
    assert not tracer.start_span("run").is_recording()


def attempt(carried: dict[str, str] | None = None) -> Any:
    lease: Any = msgspec.defstruct("L", ["trace", "type", "queue", "id", "attempt", "max_attempts"])
    return lease(carried, "a", "q", "1", 1, 1)


async def test_recorded_attempts_per_second_are_limited() -> None:
    """However many there are: telling must not cost more than doing."""
    clock = WholeClock()
    traces = Traces(TracerProvider().get_tracer("test"), SpanRateLimit(5, clock))
    assert [traces.begun(attempt()) is not None for _ in range(8)] == [True] * 5 + [False] * 3
    clock.advance(0.4)
    assert [traces.begun(attempt({"traceparent": PARENT})) is not None for _ in range(3)] == [True, True, False]


async def test_an_unrecorded_attempt_propagates_an_unsampled_trace() -> None:
    traces = Traces(TracerProvider().get_tracer("test"), SpanRateLimit(1, WholeClock()))
    assert traces.begun(attempt({"traceparent": PARENT})) is not None
    assert traces.begun(attempt({"traceparent": PARENT})) is None
    assert traces.headers()["traceparent"] == f"{PARENT[:-2]}00"
    assert traces.carrying(attempt(), None).trace == traces.headers()


async def test_attempts_of_jobs_from_unsampled_producers_are_not_recorded() -> None:
    traces = Traces(TracerProvider().get_tracer("test"))
    for unrecorded in (f"{PARENT[:-2]}00", f"{PARENT[:-2]}00", f"{PARENT[:-4]}1-00"):
        assert traces.begun(attempt({"traceparent": unrecorded})) is None
        assert traces.headers()["traceparent"] == unrecorded
    assert traces.begun(attempt({"traceparent": PARENT})) is not None


def test_an_existing_tracer_provider_is_not_replaced(spans: InMemorySpanExporter) -> None:
    own = trace.get_tracer_provider()
    OtelExport("holdfast-worker")
    assert trace.get_tracer_provider() is own


async def test_without_a_tracer_provider_jobs_store_no_trace() -> None:
    tracer = trace.NoOpTracerProvider().get_tracer("test")
    span = Traces(tracer).begun(attempt())
    assert span is not None
    assert not span.is_recording()


# -- over HTTP --------------------------------------------------------------------------------------------------------

BAD = [
    *(f"01-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", f"00-{'0' * 32}-{SPAN}-01"),
    *(f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"{PARENT}, {PARENT}", "", "x" * 3000, "\u00e9"),
]


async def test_the_traceparent_header_is_stored_with_the_job(store_url: str) -> None:
    """Also by a server that makes no spans itself; what has another form is ignored, and never an error."""
    async with serving(store_url) as served:
        for place, (parent, state, kept) in enumerate(
            [
                (PARENT, "", {"traceparent": PARENT}),
                (PARENT, "a=1, b@c=x y,", {"traceparent": PARENT, "tracestate": "a=1,b@c=x y"}),
                (f"01-{TRACE}-{SPAN}-01-more", "", {"traceparent": PARENT}),
                (PARENT, "no member", {"traceparent": PARENT}),
                (PARENT, ",".join(f"k{n}=v" for n in range(33)), {"traceparent": PARENT}),
                (PARENT, f"k={'v' * 250},l={'v' * 250},m={'v' * 250}", {"traceparent": PARENT}),
                *((bad, "a=1", None) for bad in BAD),
            ]
        ):
            headers = [(b"traceparent", parent.encode("latin-1")), (b"tracestate", state.encode())]
            alone = await served.http.post("/jobs", json={"jobType": "t", "payload": {}}, headers=headers)
            batch = {"jobs": [{"jobType": "t", "payload": {}}]}
            together = await served.http.post("/jobs/batch", json=batch, headers=headers)
            assert (alone.status_code, together.status_code) == (202, 202), place
            for job_id in (alone.json()["jobId"], together.json()["jobs"][0]["jobId"]):
                assert (await served.engine.reads.get(job_id)).trace == kept, place


async def test_a_client_sends_the_current_span(store_url: str, spans: InMemorySpanExporter) -> None:
    async with serving(store_url) as served, Client(served.url, trace_headers=trace_headers) as client:
        with trace.get_tracer("test").start_as_current_span("request"):
            here = trace_headers()
            jobs = [await client.create("t"), *await client.create_many([{"job_type": "t"}])]
        jobs.append(await client.create("t"))  # outside of any span
        assert [(await served.engine.reads.get(job.id)).trace for job in jobs] == [here, here, None]


# -- real processes ---------------------------------------------------------------------------------------------------


def worker(folder: Path, *arguments: str, **variables: str) -> Background:
    return Background("worker", "--app", APP, *arguments, folder=folder, PYTHONPATH=str(ROOT), **variables)


@pytest.mark.slow
async def test_a_worker_process_sends_a_span_for_each_attempt(
    store_url: str, tmp_path: Path, collector: Collector, spans: InMemorySpanExporter
) -> None:
    """SEC-39: neither payloads nor messages of errors go along."""
    from tests.observe.traced_app import SECRET, apart, flaky, mail

    mail._app.settings = Settings(database_url=store_url, traces=True)
    await mail.enqueue(to="ann@example.com")
    await flaky.enqueue()
    await apart.enqueue()
    await mail._app.close()
    with worker(tmp_path, HOLDFAST_DATABASE_URL=store_url, **collector.variables) as process:
        expected = {"run mail", "inside mail", "run print_label", "inside print_label", "run apart", "inside apart"}
        await until(lambda: expected <= {span.name for span in collector.spans}, seconds=60)
        await until(lambda: len(collector.named("run flaky")) == 2, seconds=60)
        assert process.end() == 0, process.said
    assert {span.service for span in collector.spans} == {"holdfast-worker"}

    [produced], attempts = named(spans, "enqueue flaky"), collector.named("run flaky")
    assert [attempt.links for attempt in attempts] == [[place_of(produced)]] * 2
    assert [attempt.attributes["holdfast.attempt"] for attempt in attempts] == [1, 2]
    assert [(attempt.failed, attempt.told) for attempt in attempts] == [(True, "E_BUSY"), (False, "")]

    [outer], [inside], [enqueued] = (
        collector.named(name) for name in ("run mail", "inside mail", "enqueue print_label")
    )
    assert (inside.trace_id, inside.parent_id) == outer.place
    assert (enqueued.trace_id, enqueued.parent_id) == inside.place
    [inner], [in_thread] = collector.named("run print_label"), collector.named("inside print_label")
    assert inner.links == [enqueued.place]
    assert (in_thread.trace_id, in_thread.parent_id) == inner.place

    [outside], [in_child] = collector.named("run apart"), collector.named("inside apart")
    assert (in_child.trace_id, in_child.parent_id) == outside.place
    assert SECRET.encode() not in collector.bytes
    assert b"ann@example.com" not in collector.bytes


@pytest.mark.slow
async def test_a_trace_continues_through_a_server_to_a_remote_worker(
    fresh_sqlite_url: str, tmp_path: Path, collector: Collector
) -> None:
    async with server_process(fresh_sqlite_url, **collector.variables) as server:
        from tests.server.steps import ADMIN

        made = await server.http.post("/api/worker/register", json={"name": "far"}, headers=ADMIN)
        intent = {"jobType": "flaky", "payload": {}}
        posted = await server.http.post("/jobs", json=intent, headers={"traceparent": PARENT})
        assert posted.status_code == 202
        variables = {"HOLDFAST_WORKER_KEY": made.json()["apiKey"], **collector.variables}
        with worker(tmp_path, "--server", server.url, **variables) as process:
            await until(lambda: len(collector.named("run flaky")) == 2, seconds=60)
            assert process.end() == 0, process.said
        await until(lambda: collector.named("enqueue flaky"))
    [produced] = collector.named("enqueue flaky")
    assert (produced.service, produced.trace_id, produced.parent_id) == ("holdfast-server", TRACE, SPAN)
    assert [attempt.links for attempt in collector.named("run flaky")] == [[produced.place]] * 2


@pytest.mark.slow
async def test_an_unreachable_collector_costs_only_spans(fresh_sqlite_url: str, tmp_path: Path) -> None:
    with collecting() as gone:
        pass
    app = App(Settings(database_url=fresh_sqlite_url))
    await app.create([NewJob(type="mail", payload={"to": "ann"}) for _ in range(20)])
    engine = await app.engine()
    with worker(tmp_path, HOLDFAST_DATABASE_URL=fresh_sqlite_url, **gone.variables) as process:

        async def done() -> bool:
            found = (await engine.reads.page(limit=100)).jobs
            return len(found) == 40 and all(job.final for job in found)

        await until(done, seconds=60)
        assert process.end() == 0, process.said
    await app.close()
    assert "opentelemetry" not in process.said
    assert "Traceback" not in process.said
    complaints = [line for line in process.said.splitlines() if "holdfast.traces" in line]
    assert len(complaints) <= 2, complaints


# -- the extra --------------------------------------------------------------------------------------------------------

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize(
    "command", [["worker", "--app", "tests.observe.plain_app:app"], ["serve", "--port", "0"], ["dev"]]
)
@pytest.mark.slow
def test_without_the_extra_the_error_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    variables = environment(PYTHONPATH=f"{tmp_path}:{ROOT}", HOLDFAST_TRACES="true")
    done = subprocess.run(
        [*PROGRAM, *command], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("pip install 'holdfast[traces]'") == 1
    assert "Traceback" not in done.stderr


def test_opentelemetry_is_imported_only_when_enabled() -> None:
    modules = "holdfast.assembly.worker, holdfast.worker.processes.child_main, holdfast.client.client"
    program = f"import sys, json, {modules};"
    program += "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []
