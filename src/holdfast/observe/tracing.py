"""Traces, where they are wanted: only then is OpenTelemetry loaded, and only then must it be there."""

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

FLUSH_SECONDS = 1.5  # less than a worker leaves its children to say goodbye
_NEEDED = ("opentelemetry.trace", "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@cache
def traces() -> Traces:
    """They need no more than the API: what becomes of spans is decided by whatever provider the process has."""
    _require(_NEEDED[0])
    from holdfast.observe.traces import Traces

    return Traces()


def trace_headers() -> Mapping[str, str]:
    """`traceparent` and `tracestate` of the current span: `Client(url, key, trace_headers=trace_headers)`."""
    return traces().headers()


@asynccontextmanager
async def exported(service: str, *, wanted: bool, per_second: float | None = None) -> AsyncIterator[Traces | None]:
    """In a process of ours: spans go to a collector while we are here, and the last ones when we leave."""
    if not wanted:
        yield None
        return
    require_traces()
    from holdfast.observe.otel_export import OtelExport
    from holdfast.observe.traces import Ration, Traces

    exporting = OtelExport(service)
    try:
        yield Traces(ration=None if per_second is None else Ration(per_second, Clock()))
    finally:
        await exporting.flush(FLUSH_SECONDS)


def require_traces() -> None:
    """For a process that will send its spans itself."""
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
