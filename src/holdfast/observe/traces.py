"""OpenTelemetry spans: one for each enqueue, and one for each attempt with a link to the span that enqueued the job.

An attempt starts a new trace, because jobs may run days later, several times, and enqueue more jobs. The sampling
decision was made when the job was enqueued.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from holdfast.clock import Clock

if TYPE_CHECKING:
    from holdfast.model import Lease, NewJob

CHARS_MAX = 200
_NOTHING = Context()
Carried = dict[str, str]


class CreatedJob(Protocol):
    """A job as returned by `create`."""

    @property
    def id(self) -> str: ...


M = TypeVar("M", bound=CreatedJob)


def carried_by(context: SpanContext) -> Carried | None:
    if not context.is_valid:
        return None
    carried = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 3:02x}"}
    if context.trace_state:
        carried["tracestate"] = context.trace_state.to_header()
    return carried


def origin_of(carried: Mapping[str, str] | None) -> SpanContext | None:
    """The span that enqueued a job. A malformed stored value counts as none."""
    try:
        _, trace, span, flags = (carried or {})["traceparent"].split("-")
        state = TraceState.from_header([header]) if (header := (carried or {}).get("tracestate")) else None
        context = SpanContext(int(trace, 16), int(span, 16), True, TraceFlags(int(flags, 16)), state)
    except (KeyError, ValueError):
        return None
    return context if context.is_valid else None


class Traces:
    """Creates spans with the tracer provider of the process; without one there are no spans and jobs carry no context.

    `limit`: limits how many attempts per second are recorded, because spans cost more than short jobs.
    """

    def __init__(self, tracer: Tracer | None = None, limit: SpanRateLimit | None = None) -> None:
        self._tracer, self._limit = tracer or get_tracer("holdfast"), limit
        self._unrecorded: tuple[str, Context] = ("", _NOTHING)  # the last one: the jobs of a batch share their context

    # -- enqueue ----------------------------------------------------------------------------------------------

    async def enqueued(
        self,
        jobs: list[NewJob],
        create: Callable[[list[NewJob]], Awaitable[list[M]]],
        *,
        queue: str | None = None,
    ) -> list[M]:
        """Create the jobs under one span, whose context they carry. Its parent is the context they carry already."""
        span = self._tracer.start_span(
            _span_name("enqueue", jobs), _parent_context(jobs), SpanKind.PRODUCER, _producer_attributes(jobs, queue)
        )
        carried = carried_by(span.get_span_context())
        try:
            made = await create([msgspec.structs.replace(job, trace=carried) for job in jobs] if carried else jobs)
            if len(made) == 1:
                span.set_attribute("messaging.message.id", made[0].id)
            return made
        except Exception as error:
            _fail(span, getattr(error, "code", type(error).__name__))
            raise
        finally:
            span.end()

    def headers(self) -> Carried:
        """Headers for a request that creates jobs over HTTP; empty outside a span."""
        return carried_by(get_current_span().get_span_context()) or {}

    # -- attempts ---------------------------------------------------------------------------------------------

    def begun(self, lease: Lease) -> Span | None:
        """Start the span of an attempt and make it current in the running task. None: this attempt is not recorded."""
        if lease.trace is None:  # the usual case: enqueue is not traced
            return self._recorded(lease, None) if self._limit is None or self._limit.take() else None
        carried = lease.trace.get("traceparent", "") if isinstance(lease.trace, dict) else ""
        if carried and carried == self._unrecorded[0]:
            attach(self._unrecorded[1])
            return None
        origin = origin_of(lease.trace)
        if origin is None or origin.trace_flags.sampled:
            if self._limit is None or self._limit.take():
                return self._recorded(lease, origin)
            if origin is None:
                return None
            origin, carried = _unsampled(origin), ""
        self._unrecorded = carried, set_span_in_context(NonRecordingSpan(origin), _NOTHING)
        attach(self._unrecorded[1])
        return None

    def _recorded(self, lease: Lease, origin: SpanContext | None) -> Span:
        links = [Link(origin)] if origin is not None else None
        span = self._tracer.start_span(
            f"run {lease.type}", _NOTHING, SpanKind.CONSUMER, _attempt_attributes(lease), links
        )
        attach(set_span_in_context(span, _NOTHING))
        return span

    def ended(self, span: Span, outcome: str, code: str | None) -> None:
        if span.is_recording():
            span.set_attribute("holdfast.outcome", outcome)
            if code is not None:
                _fail(span, code)
            span.end()

    def carrying(self, lease: Lease, span: Span | None) -> Lease:
        """The lease for a child process: spans that it creates belong to the attempt."""
        carried = carried_by((get_current_span() if span is None else span).get_span_context())
        return lease if carried is None else msgspec.structs.replace(lease, trace=carried)

    def inside(self, lease: Lease) -> None:
        """In the child process: make the span that the lease carries current in the running task."""
        if (origin := origin_of(lease.trace)) is not None:
            attach(set_span_in_context(NonRecordingSpan(origin), _NOTHING))


class SpanRateLimit:
    """A token bucket: so many spans per second, and as many at once."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._per_second, self._clock = per_second, clock
        self._left, self._at = max(per_second, 1.0), clock.monotonic()
        self._none_until = self._at

    def take(self) -> bool:
        if (now := self._clock.monotonic()) < self._none_until:
            return False
        self._left = min(self._left + (now - self._at) * self._per_second, max(self._per_second, 1.0))
        self._at = now
        if self._left < 1:
            self._none_until = now + (1 - self._left) / self._per_second
            return False
        self._left -= 1
        return True


def _unsampled(context: SpanContext) -> SpanContext:
    return SpanContext(context.trace_id, context.span_id, True, TraceFlags(0), context.trace_state)


def _span_name(verb: str, jobs: list[NewJob]) -> str:
    alike = all(job.type == jobs[0].type for job in jobs)
    return f"{verb} {_short(jobs[0].type)}" if alike else verb


def _short(name: str) -> str:
    """The name is not validated yet and may be very long."""
    return name[:CHARS_MAX]


def _parent_context(jobs: list[NewJob]) -> Context:
    origin = origin_of(jobs[0].trace)
    return get_current() if origin is None else set_span_in_context(NonRecordingSpan(origin), get_current())


def _producer_attributes(jobs: list[NewJob], queue: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {**_messaging("enqueue", "send"), "holdfast.job.type": _short(jobs[0].type)}
    if queue is not None:
        attributes["messaging.destination.name"] = _short(queue)
    if len(jobs) > 1:
        attributes["messaging.batch.message_count"] = len(jobs)
    return attributes


def _attempt_attributes(lease: Lease) -> dict[str, Any]:
    return {
        **_messaging("run", "process"),
        "messaging.destination.name": lease.queue,
        "messaging.message.id": lease.id,
        "holdfast.job.type": lease.type,
        "holdfast.attempt": lease.attempt,
        "holdfast.max_attempts": lease.max_attempts,
    }


def _messaging(name: str, kind: str) -> dict[str, str]:
    return {"messaging.system": "holdfast", "messaging.operation.name": name, "messaging.operation.type": kind}


def _fail(span: Span, code: str) -> None:
    """By its code alone: an error message may contain a secret."""
    code = _short(code)
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, code)
