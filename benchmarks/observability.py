"""The cost of observability: how fast a worker drains a queue with and without metrics, logs and traces.

    python -m benchmarks.observability [--store postgres] [--quick]

Lines go to a file. Of attempts as many a second are recorded as in a worker that is not told otherwise; a round is
short, so it begins with nothing left of what an idle worker may record at once. Spans are batched and encoded, and then
sent nowhere; what is left of that when the last job has ended counts, too. Exit status 1: a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.databases import Host, host
from benchmarks.implementations import EngineCalls
from benchmarks.measurement import Candidate, Score, one_by_one
from benchmarks.operations import filled
from benchmarks.remote import app, left, on_the_database
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from holdfast.assembly.worker import measure
from holdfast.clock import Clock
from holdfast.observe.log_formats import Json
from holdfast.observe.logs import Log, Logs
from holdfast.observe.traces import SpanRateLimit, Traces
from holdfast.observe.transition_log import TransitionLog
from holdfast.settings import Settings
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.executor import HandlerResources
from holdfast.worker.metrics import WorkerCounters
from holdfast.worker.runtime import Worker, WorkerConfig
from holdfast.worker.source import Source

METRICS, LOGS, TRACES, NOTHING = "metrics", "metrics, logs", "metrics, logs, traces", "nothing"
TARGETS = {METRICS: 0.97, LOGS: 0.9, TRACES: 0.9}  # of the rate of a worker without them
SLOTS = 100


@dataclass
class Seen:
    """The metrics, logs and traces of a worker."""

    by: dict[str, Any]  # fields of `HandlerResources`
    attempt_log: AttemptLog | None = None
    begin: Callable[[], object] = lambda: None
    finish: Callable[[], object] = lambda: None


class Nowhere(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


@contextmanager
def seen(ours: EngineCalls, what: str) -> Iterator[Seen]:
    if what == NOTHING:
        yield Seen({})
        return
    by: dict[str, Any] = {"metrics": WorkerCounters(sorted(app.handlers))}
    measure(ours.engine, by["metrics"])
    provider = TracerProvider(shutdown_on_exit=False)
    ration = SpanRateLimit(Settings().traces_per_second, Clock())
    attempt_log = None
    with tempfile.TemporaryFile() as file:
        if what in (LOGS, TRACES):
            log, lifecycles = Log(Logs(), file.fileno(), Json()), ours.engine.ctx.lifecycles
            ours.engine.ctx.observers.append(TransitionLog(log, lifecycles))
            attempt_log = AttemptLog(log, lifecycles)
        if what == TRACES:
            provider.add_span_processor(BatchSpanProcessor(Nowhere()))
            by["traces"] = Traces(provider.get_tracer("holdfast"), ration)
        yield Seen(by, attempt_log, partial(spend, ration), provider.force_flush)
        assert (what == METRICS) == (os.fstat(file.fileno()).st_size == 0), "the log is not as it was to be"
    provider.shutdown()


def spend(ration: SpanRateLimit) -> None:
    while ration.take():
        pass


async def drain(source: Source, seen: Seen, *, jobs: int) -> int:
    left.begin(jobs)
    seen.begin()
    config, resources = WorkerConfig(concurrency=SLOTS, heartbeats=False), HandlerResources(**seen.by)
    worker = Worker(source, app.handlers, config=config, resources=resources, attempt_log=seen.attempt_log)
    running = asyncio.create_task(worker.run())
    await left.none.wait()
    worker.stop()
    await running
    seen.finish()
    return jobs


async def pair(store: str, machine: Host, what: str, *, rounds: int, jobs: int) -> dict[str, Score]:
    async with AsyncExitStack() as stack:
        candidates = []
        for name in (what, NOTHING):
            ours = await EngineCalls.open(await stack.enter_async_context(machine.fresh()))
            stack.push_async_callback(ours.close)
            source = await stack.enter_async_context(on_the_database(ours))
            run = partial(drain, source, stack.enter_context(seen(ours, name)), jobs=jobs)
            candidates.append(Candidate(name, ours.database, partial(filled, ours, jobs=jobs), run))
        return await one_by_one(f"{store}, {what}", candidates, rounds)


async def draining(store: str, machine: Host, **sizes: int) -> list[dict[str, Any]]:
    found, rows = [], []
    for what, target in TARGETS.items():
        scores = await pair(store, machine, what, **sizes)
        ratio = scores[what].ratio_to(scores[NOTHING])
        rates = [f"{scores[name].rate:,.0f}" for name in (what, NOTHING)]
        rows.append([what, *rates, f"{ratio:.3f}", f">= {target}"])
        found.append({"figure": what, "ratio": round(ratio, 3), "met": ratio >= target, **rounds_of(scores)})
    print_table(await machine.version(), [f"{SLOTS} slots, with", "drained/s", "without/s", "ratio", "target"], rows)
    return found


async def compare(options: argparse.Namespace) -> bool:
    logging.getLogger("holdfast").setLevel(Logs().level.upper())  # as in a process that is told nothing
    sizes = {"rounds": 1, "jobs": 200} if options.quick else {"rounds": 40, "jobs": 5000}
    stores: dict[str, Any] = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            stores[store] = await draining(store, machine, **sizes)
    write_results(options.results, "observability", quick=options.quick, stores=stores)
    return options.quick or all(figure["met"] for results in stores.values() for figure in results)


def main(words: list[str] | None = None) -> int:
    options = arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)
    return 0 if asyncio.run(compare(options)) else 1


if __name__ == "__main__":
    sys.exit(main())
