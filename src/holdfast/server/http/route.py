"""Routes as data (scope, body, query, responses), and the request and response types that handlers use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from holdfast import wire

if TYPE_CHECKING:
    from holdfast.server.auth.authenticator import Caller
    from holdfast.server.http.streamed_body import StreamedBody
    from holdfast.server.state import ServerState

Headers = Mapping[bytes, bytes]  # names in lower case; repeated headers are joined with commas
JSON = b"application/json"
EVENT_STREAM = "text/event-stream"
_PARAMETER = re.compile(r"\{(\w+)\}")
BODY_BYTES_ALLOWED = 2**40
WHOLE_BODY = "holdfast.body"  # in the ASGI scope: the body, if all of it has arrived before the handler starts


class Reply(NamedTuple):
    """A complete response: `body` is encoded as JSON, unless it is bytes."""

    status: int
    body: Any = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = JSON


class Stream(NamedTuple):
    """A streamed response: chunks are sent as they come, until the iterator ends or the client disconnects."""

    chunks: AsyncIterator[bytes]
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True)
class HttpRequest:
    """A request that was authenticated, parsed and validated."""

    caller: Caller
    headers: Headers
    path: dict[str, str]
    query: Any
    body: Any
    request_id: str
    disconnected: asyncio.Event  # set when the client disconnects; only on routes with `watched`
    streamed_body: StreamedBody | None = None  # for handlers that read the body themselves
    source: str = ""  # the client's IP address


class BodyLimit(NamedTuple):
    size: int
    code: str  # of the error


DEFAULT_LIMIT = BodyLimit(1_048_576, code="body_too_large")


class Header(NamedTuple):
    """A request header that a route documents."""

    name: str
    about: str
    example: str


IDEMPOTENCY_KEY = Header("Idempotency-Key", "Requests with the same key create one job.", "order-4711")
PREFER = Header("Prefer", "`wait=N`: respond when the job has ended, or after N seconds (at most 60).", "wait=10")
IF_NONE_MATCH = Header("If-None-Match", "The `ETag` of an earlier response: 304 if nothing has changed.", '"1-5"')
TRACEPARENT = Header(
    "traceparent",
    "W3C Trace Context; stored with the job, together with `tracestate`.",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
RANGES = (
    Header("Range", "A part of it, in bytes: 206 with that part, or 416 if it has no such part.", "bytes=0-1023"),
    Header("If-Range", "The `ETag` of an earlier response: the whole of it if it has changed since.", '"1-5"'),
    IF_NONE_MATCH,
)
LAST_EVENT_ID = Header("Last-Event-ID", "The id of the last event received: the stream continues after it.", "1")

BodyMax = int | Callable[[], int]  # bytes; the function is called for each request
HttpResponse = Reply | Stream | Response
Handler = Callable[["ServerState", HttpRequest], Awaitable[HttpResponse]]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    handler: Handler
    scope: str | None  # of `Scope`, or `NAME:verb` of an extension; None: no key needed
    about: str
    body: type | str | None = None  # a type, or the media type of a body that the handler streams
    query: type | None = None
    form: type | None = None  # describes the fields of a streamed form
    headers: tuple[Header, ...] = ()
    answers: Mapping[int, Any] = field(
        default_factory=lambda: {200: None}
    )  # by status: a type of `wire`, or a media type
    refuses: tuple[int, ...] = ()  # error statuses besides those of every route
    ranges: bool = False  # it answers with `ranged`, `file` or `stored`: describes their headers and statuses
    location: bool = False  # its 201 or 202 has a `Location` header
    watched: bool = False  # long-running: `disconnected` is set when the client disconnects
    hidden: bool = False  # not in the OpenAPI document
    local: bool = False  # on a loopback address no key is needed
    tag: str = ""  # of the OpenAPI document
    extension: str = ""  # empty: a route of the core
    body_max: BodyMax = DEFAULT_LIMIT.size
    too_large: str = DEFAULT_LIMIT.code  # the error code for a larger body
    names_field: bool = False  # an invalid body is `invalid_field` with the name of the field, not `invalid_body`
    seconds: float | None = None  # response timeout; None: the default

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def log_name(self) -> str:
        return f"{self.name} of extension {self.extension}" if self.extension else self.name

    @property
    def described_headers(self) -> tuple[Header, ...]:
        """Those that it declares, and those that follow from what it answers."""
        resumed = (LAST_EVENT_ID,) if EVENT_STREAM in self.answers.values() else ()
        return (*self.headers, *(RANGES if self.ranges else ()), *resumed)

    def body_limit(self) -> BodyLimit:
        size = self.body_max if isinstance(self.body_max, int) else called_limit(self.body_max, self.log_name)
        return BodyLimit(size, self.too_large)

    @property
    def template(self) -> str:
        """The path in camelCase: `/jobs/{jobId}`."""
        return _PARAMETER.sub(lambda found: f"{{{wire.camel(found[1])}}}", self.path)


def called_limit(body_max: Callable[[], int], owner: str) -> int:
    limit = body_max()
    if type(limit) is not int or not 0 < limit <= BODY_BYTES_ALLOWED:
        raise TypeError(f"{owner}: body_max() returned {limit!r}, not a number of bytes from 1 to 1 TiB")
    return limit


def tagged(tag: str, *routes: Route, query: type | None = None) -> tuple[Route, ...]:
    """Routes with one tag in the OpenAPI document. `query`: of those that declare no other."""
    return tuple(replace(route, tag=tag, query=route.query or query) for route in routes)
