"""Turns tracing on. OpenTelemetry is imported, and required, only then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.observe.traces import Traces

FLUSH_SECONDS = 1.5  # less than a worker waits for its child processes to exit
_NEEDED = ("opentelemetry.trace", "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@cache
def traces() -> Traces:
    """Needs the OpenTelemetry API only: the tracer provider of the process exports the spans."""
    _require(_NEEDED[0])
    from holdfast.observe.traces import Traces

    return Traces()


def trace_headers() -> Mapping[str, str]:
    """`traceparent` and `tracestate` of the current span: `Client(url, key, trace_headers=trace_headers)`."""
    return traces().headers()


@asynccontextmanager
async def exported(service: str, *, wanted: bool, per_second: float | None = None) -> AsyncIterator[Traces | None]:
    """In a Holdfast process: export spans to a collector while the context is open, and flush at the end."""
    if not wanted:
        yield None
        return
    require_traces()
    from holdfast.observe.otel_export import OtelExport
    from holdfast.observe.traces import SpanRateLimit, Traces

    export = OtelExport(service)
    try:
        yield Traces(limit=None if per_second is None else SpanRateLimit(per_second, Clock()))
    finally:
        await export.flush(FLUSH_SECONDS)


def require_traces() -> None:
    """Check that the libraries for exporting spans are installed."""
    for name in _NEEDED:
        _require(name)


def _require(module: str) -> None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise Invalid(
            f"HOLDFAST_TRACES is on, but {module} is not installed: pip install 'holdfast[traces]'",
            code="extra_missing",
        )
