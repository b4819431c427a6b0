"""Where spans go from the processes that Holdfast itself starts: by OTLP over HTTP, as the `OTEL_` variables say."""

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

# They complain of each batch that a collector did not take; we say it once.
_TALKATIVE = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")


class OtelExport:
    """Set up unless the app has a provider of its own, which then also sees to what becomes of its spans."""

    def __init__(self, service: str) -> None:
        self._provider: TracerProvider | None = None
        if isinstance(get_tracer_provider(), ProxyTracerProvider):
            self._provider = _provider(service)
            set_tracer_provider(self._provider)

    async def flush(self, seconds: float) -> None:
        """What is left goes out, if that can be done in time: a collector that is away keeps no process from ending."""
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
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):  # as it says when nobody said
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.sampler = Following(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(Quiet(OTLPSpanExporter())))
    return provider


class Following(Sampler):
    """A new trace with a link to one that is recorded is recorded too; otherwise the sampler in here decides.

    Else, of the jobs that one in ten is recorded of, one in ten attempts would be: a link would mostly lead nowhere.
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
        return f"Following({self._sampler.get_description()})"


class Quiet(SpanExporter):
    """Says once that the collector takes nothing, and once that it does again."""

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
                log.info("the collector takes spans again")
            else:
                log.warning("the collector takes no spans; they are lost until it does, and the work goes on")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
