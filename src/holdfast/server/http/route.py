"""A route is data: who may call it, what goes in, what comes out. Server, OpenAPI page and tests are made from it."""

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

Headers = Mapping[bytes, bytes]  # names in lower case; what came in several lines is one list
JSON = b"application/json"
EVENT_STREAM = "text/event-stream"
_PARAMETER = re.compile(r"\{(\w+)\}")
WHOLE = "holdfast.whole"  # in the scope of a request whose body has come with its head


class Reply(NamedTuple):
    """An answer as a whole: `body` becomes JSON, unless it is bytes already."""

    status: int
    body: Any = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = JSON


class Stream(NamedTuple):
    """An answer that goes on: each chunk is sent when it comes, until the iterator ends or the client goes."""

    chunks: AsyncIterator[bytes]
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True)
class HttpRequest:
    """A request, read and checked."""

    caller: Caller
    headers: Headers
    path: dict[str, str]
    query: Any
    body: Any
    request_id: str
    gone: asyncio.Event  # set when the client hangs up; only while somebody watches (`watched`)
    arriving: StreamedBody | None = None  # the body, where the handler reads it itself
    source: str = ""  # the address it comes from


class Header(NamedTuple):
    """A header that a route takes, besides those that all take."""

    name: str
    about: str
    example: str


IDEMPOTENCY_KEY = Header("Idempotency-Key", "The same request with the same key is one job.", "order-4711")
PREFER = Header("Prefer", "`wait=N`: answer when the job has ended, or after N seconds (60 at most).", "wait=10")
IF_NONE_MATCH = Header("If-None-Match", "The `ETag` of what is known already: 304 while it has not changed.", '"1-5"')
TRACEPARENT = Header(
    "traceparent",
    "Where the job comes from, in the words of W3C Trace Context; kept with it, and `tracestate` too.",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
LAST_EVENT_ID = Header("Last-Event-ID", "The id of the last event seen: the stream goes on behind it.", "1")

HttpResponse = Reply | Stream | Response
Handler = Callable[["ServerState", HttpRequest], Awaitable[HttpResponse]]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    handler: Handler
    scope: str | None  # of `Scope`, or `NAME:verb` of an extension; None: open to anybody
    about: str
    body: type | str | None = None  # a type, or the media type of what the handler reads piece by piece
    query: type | None = None
    headers: tuple[Header, ...] = ()
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})  # a type of `wire`, or a media type
    refuses: tuple[int, ...] = ()  # besides what every route may answer
    watched: bool = False  # it may take long: `gone` is set when the client hangs up
    hidden: bool = False  # not in the OpenAPI document
    local: bool = False  # on a loopback address it is open to whoever is on this machine
    tag: str = ""  # the section of the documentation
    extension: str = ""  # whose it is; empty: the core's
    body_max: int = 1_048_576  # bytes
    seconds: float | None = None  # how long an answer may take; None: as usual

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def told(self) -> str:
        """For the log."""
        return f"{self.name} of extension {self.extension}" if self.extension else self.name

    @property
    def template(self) -> str:
        """The path as others know it: `/jobs/{jobId}`."""
        return _PARAMETER.sub(lambda found: f"{{{wire.camel(found[1])}}}", self.path)


def tagged(tag: str, *routes: Route) -> tuple[Route, ...]:
    """Routes that stand together in the documentation."""
    return tuple(replace(route, tag=tag) for route in routes)
