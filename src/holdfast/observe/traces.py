"""Spans of OpenTelemetry: one where jobs are handed in, and one for each attempt, with a link to where it came from.

An attempt begins a trace of its own: jobs run days later, again and again, and hand in others without end. Whether it
is recorded was decided where the job was handed in.
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


class Made(Protocol):
    """The answer of whoever created a job."""

    @property
    def id(self) -> str: ...


M = TypeVar("M", bound=Made)


def carried_by(context: SpanContext) -> Carried | None:
    if not context.is_valid:
        return None
    carried = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 3:02x}"}
    if context.trace_state:
        carried["tracestate"] = context.trace_state.to_header()
    return carried


def origin_of(carried: Mapping[str, str] | None) -> SpanContext | None:
    """Where a job comes from. What is no context, because somebody stored something else, is none."""
    try:
        _, trace, span, flags = (carried or {})["traceparent"].split("-")
        state = TraceState.from_header([said]) if (said := (carried or {}).get("tracestate")) else None
        context = SpanContext(int(trace, 16), int(span, 16), True, TraceFlags(int(flags, 16)), state)
    except (KeyError, ValueError):
        return None
    return context if context.is_valid else None


class Traces:
    """Whatever tracer provider the process has makes the spans; without one there are none, and nothing is carried.

    `ration`: of attempts to be recorded. A worker that does thousands would be busier telling than doing.
    """

    def __init__(self, tracer: Tracer | None = None, ration: Ration | None = None) -> None:
        self._tracer, self._ration = tracer or get_tracer("holdfast"), ration
        self._unrecorded: tuple[str, Context] = ("", _NOTHING)  # the last one: jobs of a batch come from one place

    # -- handing in -------------------------------------------------------------------------------------------

    async def enqueued(
        self,
        jobs: list[NewJob],
        create: Callable[[list[NewJob]], Awaitable[list[M]]],
        *,
        queue: str | None = None,
    ) -> list[M]:
        """Hand them in, all under one span, which they carry. It is below the one they carry already, if they do."""
        span = self._tracer.start_span(
            _named("enqueue", jobs), _above(jobs), SpanKind.PRODUCER, _of_producer(jobs, queue)
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
        """For whoever hands in jobs over HTTP; none outside of a span."""
        return carried_by(get_current_span().get_span_context()) or {}

    # -- attempts ---------------------------------------------------------------------------------------------

    def begun(self, lease: Lease) -> Span | None:
        """Everything that the running task does from now on is inside it. None: of this one nothing is recorded."""
        if lease.trace is None:  # most often, where nobody traces those who hand in
            return self._recorded(lease, None) if self._ration is None or self._ration.take() else None
        carried = lease.trace.get("traceparent", "") if isinstance(lease.trace, dict) else ""
        if carried and carried == self._unrecorded[0]:
            attach(self._unrecorded[1])
            return None
        origin = origin_of(lease.trace)
        if origin is None or origin.trace_flags.sampled:
            if self._ration is None or self._ration.take():
                return self._recorded(lease, origin)
            if origin is None:
                return None
            origin, carried = _unsampled(origin), ""
        self._unrecorded = carried, set_span_in_context(NonRecordingSpan(origin), _NOTHING)
        attach(self._unrecorded[1])
        return None

    def _recorded(self, lease: Lease, origin: SpanContext | None) -> Span:
        links = [Link(origin)] if origin is not None else None
        span = self._tracer.start_span(f"run {lease.type}", _NOTHING, SpanKind.CONSUMER, _of_attempt(lease), links)
        attach(set_span_in_context(span, _NOTHING))
        return span

    def ended(self, span: Span, outcome: str, code: str | None) -> None:
        if span.is_recording():
            span.set_attribute("holdfast.outcome", outcome)
            if code is not None:
                _fail(span, code)
            span.end()

    def carrying(self, lease: Lease, span: Span | None) -> Lease:
        """As a child process gets it: what it makes of the trace is inside the attempt."""
        carried = carried_by((get_current_span() if span is None else span).get_span_context())
        return lease if carried is None else msgspec.structs.replace(lease, trace=carried)

    def inside(self, lease: Lease) -> None:
        """In that child: what the running task does from now on belongs to the span that the lease carries."""
        if (origin := origin_of(lease.trace)) is not None:
            attach(set_span_in_context(NonRecordingSpan(origin), _NOTHING))


class Ration:
    """So many a second, and as many at once."""

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


def _named(verb: str, jobs: list[NewJob]) -> str:
    alike = all(job.type == jobs[0].type for job in jobs)
    return f"{verb} {_short(jobs[0].type)}" if alike else verb


def _short(name: str) -> str:
    """Nobody has looked at it yet: a name that will be refused may be a megabyte."""
    return name[:CHARS_MAX]


def _above(jobs: list[NewJob]) -> Context:
    origin = origin_of(jobs[0].trace)
    return get_current() if origin is None else set_span_in_context(NonRecordingSpan(origin), get_current())


def _of_producer(jobs: list[NewJob], queue: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {**_messaging("enqueue", "send"), "holdfast.job.type": _short(jobs[0].type)}
    if queue is not None:
        told["messaging.destination.name"] = _short(queue)
    if len(jobs) > 1:
        told["messaging.batch.message_count"] = len(jobs)
    return told


def _of_attempt(lease: Lease) -> dict[str, Any]:
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
    """By its code alone: what an error says may be a secret."""
    code = _short(code)
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, code)
