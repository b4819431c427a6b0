"""One route as an ASGI application: authenticate, parse the request, call the handler, send the response."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from functools import partial
from typing import Any

from starlette.responses import Response

from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, StorageError, StoreError
from holdfast.model.key import Scope
from holdfast.server.api.metrics import CLIENT_CLOSED
from holdfast.server.http.problems import problem
from holdfast.server.http.reply import send_reply
from holdfast.server.http.request_body import decode_body, merge_headers, parse_query, read_body
from holdfast.server.http.route import (
    EVENT_STREAM,
    PREFER,
    WHOLE_BODY,
    Headers,
    HttpRequest,
    HttpResponse,
    Route,
    Stream,
)
from holdfast.server.http.starlette_response import ResponseSender, send_response
from holdfast.server.http.streamed_body import StreamedBody
from holdfast.server.http.timeouts import Timeouts
from holdfast.server.state import ServerState

ANSWER_SECONDS_MAX = 10.0
UPLOAD_SECONDS_MAX = 3600.0  # for handlers that stream the body
WAIT_SECONDS_MAX = 60.0  # for `Prefer: wait` and long polls
SEND_SECONDS_MAX = 20.0  # for a client to take a chunk of a stream
STREAM_END_SECONDS = 1.0  # for a client to take the end of a stream

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NEVER = asyncio.Event()  # for requests whose connection is not watched


class Endpoint:
    def __init__(self, server: ServerState, route: Route) -> None:
        self._server, self._route = server, route
        self._metrics, self.template = server.metrics, route.template
        self._creates_jobs = route.scope is Scope.JOBS_CREATE
        self._shape = route.body if isinstance(route.body, type) else dict
        usual = UPLOAD_SECONDS_MAX if isinstance(route.body, str) else ANSWER_SECONDS_MAX
        self._timeouts = Timeouts(usual if route.seconds is None else route.seconds)
        self._long_timeouts = Timeouts(WAIT_SECONDS_MAX + ANSWER_SECONDS_MAX)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = self._server.clock.monotonic()
        headers = dict(scope["headers"])
        request_id = request_id_of(headers) or self._server.request_id()
        try:
            if len(headers) < len(scope["headers"]):
                headers = merge_headers(scope["headers"])
            answer = await self._answer(scope, receive, headers, request_id)
        except HoldfastError as error:
            if isinstance(error, LeaseLost):
                self._metrics.refused.add(1)
            if isinstance(error, StoreError | StorageError):
                self._server.store_errors.note(error, request_id, self._route.name)
            answer = problem(error, request_id)
        except asyncio.CancelledError:  # the client disconnected, or the server is stopping
            self._note(scope, CLIENT_CLOSED, began)
            return
        except Exception:
            log.exception("request %s (%s) failed", request_id, self._route.log_name)
            answer = problem(internal_error(), request_id)
        if isinstance(answer, Response):
            await self._send_response(answer, scope, receive, send, began, request_id)
            return
        self._note(scope, 200 if isinstance(answer, Stream) else answer.status, began)
        if isinstance(answer, Stream):
            await self._send_stream(answer, scope, receive, send, request_id)
        else:
            await send_reply(answer, send, request_id)

    def _note(self, scope: Any, status: int, began: float) -> None:
        took = self._server.clock.monotonic() - began
        self._metrics.requests.observe(took, scope["method"], self.template, str(status))

    async def _answer(self, scope: Any, receive: Any, headers: Headers, request_id: str) -> HttpResponse:
        server, route = self._server, self._route
        source = scope["client"][0] if scope.get("client") else ""
        caller = await server.auth.authenticate(headers, source, route.scope, local=route.local, method=scope["method"])
        query = parse_query(scope["query_string"], route.query) if route.query is not None else None
        body = streamed_body = None
        if isinstance(route.body, str):
            streamed_body = StreamedBody(receive, headers, media_type=route.body, limit=route.body_limit())
        elif route.body is not None:
            body = await self._body(scope, receive, headers)
        watched = route.watched or (b"prefer" in headers and PREFER in route.headers)
        disconnected = asyncio.Event() if watched else _NEVER
        request = HttpRequest(
            caller, headers, scope.get("path_params", {}), query, body, request_id, disconnected, streamed_body, source
        )
        timeouts = self._long_timeouts if watched else self._timeouts
        try:
            with timeouts.begin():  # a database or a storage may hang; the operation may still complete
                return await (self._watched(request, receive) if watched else route.handler(server, request))
        except TimeoutError:
            raise OutcomeUnknown(
                f"no response within {timeouts.seconds:g} s; the request may have been applied: repeat it"
            ) from None

    async def _watched(self, request: HttpRequest, receive: Any) -> HttpResponse:
        watching = asyncio.create_task(_wait_for_disconnect(receive, request.disconnected))
        try:
            with self._server.interruptible(request.disconnected):
                return await self._route.handler(self._server, request)
        finally:
            watching.cancel()

    async def _body(self, scope: Any, receive: Any, headers: Headers) -> Any:
        data = await read_body(receive, headers, arrived=scope.get(WHOLE_BODY), limit=self._route.body_limit())
        if self._creates_jobs:
            self._metrics.uploaded(len(data), headers.get(b"content-type", b"application/json").decode("latin-1"))
        return decode_body(data, self._shape, names_field=self._route.names_field)

    async def _send_response(
        self, response: Response, scope: Any, receive: Any, send: Any, began: float, request_id: str
    ) -> None:
        sender = ResponseSender(scope, send, request_id, partial(self._note, scope, began=began))
        try:
            await send_response(response, scope, receive, sender)
        except Exception as error:
            await send_failure(error, internal_error(), sender, receive, self._route.log_name)

    async def _send_stream(self, stream: Stream, scope: Any, receive: Any, send: Any, request_id: str) -> None:
        """Until the stream ends, the client disconnects or stops reading, or the server stops."""
        disconnected = asyncio.Event()
        watching = asyncio.create_task(_wait_for_disconnect(receive, disconnected))
        await _begin_stream(stream, send, request_id)  # before anything can end it: an end needs a start
        sending = asyncio.create_task(_send_chunks(stream, scope, send))
        sending.add_done_callback(lambda _: disconnected.set())
        try:
            with self._server.interruptible(disconnected):
                await disconnected.wait()
        finally:
            watching.cancel()
            sending.cancel()
            [failure, _] = await asyncio.gather(sending, watching, return_exceptions=True)
            await stream.chunks.aclose()  # type: ignore[attr-defined]  # also a stream that never started
        if isinstance(failure, Exception) and not isinstance(failure, HoldfastError | TimeoutError):
            log.error("stream %s (%s) failed", request_id, self._route.log_name, exc_info=failure)
        if isinstance(failure, TimeoutError) or not await _end_stream(send):
            await abort_connection(receive, send)


def internal_error() -> HoldfastError:
    return HoldfastError("internal error; the server log has the details under this request id", code="internal_error")


async def send_failure(
    error: Exception, answer: HoldfastError, sender: ResponseSender, receive: Any, log_name: str
) -> int | None:
    """Answer a request whose response failed. Returns the status; None if the response had started: it is cut off."""
    if answer is not error and not sender.unread:
        when = "failed" if sender.status is None else "failed after the response had started"
        log.error("request %s (%s) %s", sender.request_id, log_name, when, exc_info=error)
    if sender.ended:
        return None
    if sender.unread or sender.status is not None:
        await abort_connection(receive, sender.send)  # so that the client notices the truncated response
        return None
    reply = problem(answer, sender.request_id)
    sender.begins(reply.status)
    await send_reply(reply, sender.send, sender.request_id)
    return reply.status


def request_id_of(headers: Headers) -> str | None:
    """The id that the client sent, if it is safe to log."""
    given = headers.get(b"x-request-id")
    return given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else None


async def _wait_for_disconnect(receive: Any, disconnected: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    disconnected.set()


async def _begin_stream(stream: Stream, send: Any, request_id: str) -> None:
    headers = [
        (b"x-content-type-options", b"nosniff"),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"content-type", EVENT_STREAM.encode()),
        *stream.headers,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_chunks(stream: Stream, scope: Any, send: Any) -> None:
    if scope["method"] == "HEAD":
        return
    async for chunk in stream.chunks:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _end_stream(send: Any) -> bool:
    """End the response properly; False if the client does not take the end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STREAM_END_SECONDS):
            await send({"type": "http.response.body", "body": b""})
            return True
    return False


async def abort_connection(receive: Any, send: Any) -> None:
    """ASGI cannot abort a connection, and a graceful close would wait for a client that does not read."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
        await _wait_for_disconnect(receive, asyncio.Event())
