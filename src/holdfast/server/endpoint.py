"""One route as an ASGI application: admit the caller, read the request, answer it; an error becomes a problem."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.problems import problem
from holdfast.server.reading import decoded, query_of, read_body
from holdfast.server.route import EVENT_STREAM, Asked, Headers, Reply, Route, Stream
from holdfast.server.server import Server

SEND_SECONDS_MAX = 20.0  # a reader of a stream who takes nothing for so long is not waited for

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_encode = msgspec.json.Encoder().encode


class Endpoint:
    def __init__(self, server: Server, route: Route) -> None:
        self._server, self._route = server, route

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        request_id = _request_id(headers) or self._server.request_id()
        try:
            answer = await self._answer(scope, receive, headers, request_id)
        except HoldfastError as error:
            answer = problem(error, request_id)
        except asyncio.CancelledError:  # the client hung up, or the server stops
            return
        except Exception:
            log.exception("request %s (%s) failed", request_id, self._route.name)
            answer = problem(
                HoldfastError("something went wrong here; the log has it under this id", code="internal_error"),
                request_id,
            )
        if isinstance(answer, Stream):
            await _send_stream(answer, receive, send, request_id)
        else:
            await send_reply(answer, send, request_id)

    async def _answer(self, scope: Any, receive: Any, headers: Headers, request_id: str) -> Reply | Stream:
        server, route = self._server, self._route
        source = scope["client"][0] if scope.get("client") else ""
        caller = await server.auth.admit(headers, source, route.scope)
        query = query_of(scope["query_string"], route.query) if route.query is not None else None
        body = decoded(await read_body(receive, headers), route.body) if route.body is not None else None
        gone = asyncio.Event()
        asked = Asked(caller, headers, scope.get("path_params", {}), query, body, request_id, gone)
        if not route.watched:
            return await route.handler(server, asked)
        watching = asyncio.create_task(_watch(receive, gone))
        try:
            return await route.handler(server, asked)
        finally:
            watching.cancel()


def _request_id(headers: Headers) -> str | None:
    """The caller's own, where it can stand in a log as it is."""
    given = headers.get(b"x-request-id")
    return given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else None


async def _watch(receive: Any, gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    gone.set()


async def send_reply(reply: Reply, send: Any, request_id: str) -> None:
    body = b"" if reply.body is None else reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
    headers = [*_ALWAYS, (b"x-request-id", request_id.encode()), *reply.headers]
    if reply.body is not None:
        headers.append((b"content-type", reply.content_type))
    if reply.status != 204 and reply.status != 304:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(stream: Stream, receive: Any, send: Any, request_id: str) -> None:
    """Until the stream ends, the client goes, or it stops reading."""
    headers = [*_ALWAYS, (b"x-request-id", request_id.encode()), *stream.headers]
    headers.append((b"content-type", EVENT_STREAM.encode()))
    gone = asyncio.Event()
    watching = asyncio.create_task(_watch(receive, gone))
    sending = asyncio.create_task(_send_chunks(stream.chunks, headers, send))
    leaving = asyncio.create_task(gone.wait())
    try:
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (watching, sending, leaving):
            task.cancel()
        await asyncio.gather(watching, sending, leaving, return_exceptions=True)


async def _send_chunks(chunks: AsyncIterator[bytes], headers: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with contextlib.aclosing(chunks) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
