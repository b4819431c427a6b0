"""Exports the spans of Holdfast processes: OTLP over HTTP, configured by the `OTEL_` variables."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import ProxyTracerProvider, get_current_span, get_tracer_provider, set_tracer_provider

log = logging.getLogger("holdfast.traces")

# They log every batch that the collector rejects; `QuietExporter` logs it once.
_VERBOSE = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")


class OtelExport:
    """Sets up a tracer provider, unless the app has one, which then exports the spans itself."""

    def __init__(self, service: str) -> None:
        self._provider: TracerProvider | None = None
        if isinstance(get_tracer_provider(), ProxyTracerProvider):
            self._provider = _provider(service)
            set_tracer_provider(self._provider)

    async def flush(self, seconds: float) -> None:
        """Send the last spans within a time limit: an unreachable collector does not delay the exit."""
        if self._provider is None:
            return
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down(provider: TracerProvider) -> None:
            provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, args=(self._provider,), daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            log.warning("the last spans could not be sent within %g s", seconds)


def _provider(service: str) -> TracerProvider:
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):  # the default
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.sampler = LinkedSampler(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(QuietExporter(OTLPSpanExporter())))
    return provider


class LinkedSampler(Sampler):
    """Records a new trace if it links to a recorded one; otherwise the wrapped sampler decides.

    Without this, at a sampling rate of 0.1 the attempts of a recorded job would be recorded only one time in ten.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        *more: Any,
        **named: Any,
    ) -> SamplingResult:
        recorded = links and any(link.context.trace_flags.sampled for link in links)
        follows = recorded and not get_current_span(parent_context).get_span_context().is_valid
        sampler = ALWAYS_ON if follows else self._sampler
        return sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, *more, **named)

    def get_description(self) -> str:
        return f"LinkedSampler({self._sampler.get_description()})"


class QuietExporter(SpanExporter):
    """Logs once that the collector is unreachable, and once that it is reachable again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._works = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:
            result = SpanExportResult.FAILURE
        works = result is SpanExportResult.SUCCESS
        if works != self._works:
            self._works = works
            if works:
                log.info("the trace collector accepts spans again")
            else:
                log.warning("the trace collector does not accept spans; spans are dropped until it does")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
