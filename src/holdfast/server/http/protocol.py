"""One connection, within limits: how long a request's head may be and may take, and how long nobody need say anything.

uvicorn speaks HTTP; what it leaves open is here. A body's limits are in `reading.py`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.errors import HoldfastError, Invalid, Malformed, TooMany
from holdfast.server.http.endpoint import send_reply
from holdfast.server.http.problems import problem
from holdfast.server.http.route import WHOLE, Reply

HEAD_BYTES_MAX = 16_384
HEAD_SECONDS_MAX = 5.0
KEEP_ALIVE_SECONDS = 30
SEND_SECONDS_MAX = 30.0  # for an answer to be taken, once there is more of it than fits in between
LINGER_SECONDS = 5.0  # for the rest of what was answered before it was read
CROWDED_SECONDS = 1.0  # for a request where there are too many connections, so that it can be answered with that


_NO_LINGER = struct.pack("ii", 1, 0)


TurnedAway = Callable[[str, int], None]  # told of each request that does not come to the application: method, status


class ServerConfig(uvicorn.Config):
    connections_max: int
    request_id: Callable[[], str]
    turned_away: TurnedAway


class HeadBuffer:
    """A transport that sends the head of an answer together with the beginning of its body: one system call less."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._head = transport, b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.endswith(b"\r\n\r\n") and b"\r\ncontent-length: " in data:
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """There is no body, as in the answer to a HEAD."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    transport: HeadBuffer  # type: ignore[assignment]
    config: ServerConfig
    _heading = False  # a request has begun, and its head is not whole yet
    _head_bytes = 0  # of its second chunk and those behind it
    _chunk_bytes = 0
    _refused = False
    _complaint: HoldfastError | None = None
    _stuck: asyncio.TimerHandle | None = None
    _due: asyncio.TimerHandle | None = None  # whatever is waited for now, when it must have come

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(HeadBuffer(transport))  # type: ignore[arg-type]
        crowded = len(self.connections) > self.config.connections_max
        if crowded:
            self.app = self._too_many
        self._wait(CROWDED_SECONDS if crowded else HEAD_SECONDS_MAX, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._stuck is not None:
            self._stuck.cancel()

    # -- the head ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._chunk_bytes = len(data)
        if self._heading:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._heading and not self.transport.is_closing():
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(_head_too_large())
            elif self._due is None:
                self._wait(HEAD_SECONDS_MAX, self._head_is_late)

    def on_message_begin(self) -> None:
        self._heading, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heading = False
        self._wait_no_more()
        if self._chunk_bytes + self._head_bytes > HEAD_BYTES_MAX and self._head_size() > HEAD_BYTES_MAX:
            self._complaint = _head_too_large()
            raise self._complaint  # uvicorn asks for `send_400_response`
        super().on_headers_complete()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._complaint or Malformed("this is not HTTP as we know it", code="malformed_request"))

    def _head_is_late(self) -> None:
        if self._heading:
            message = f"the request's head did not arrive within {HEAD_SECONDS_MAX:g} s"
            self._refuse(Malformed(message, code="head_timeout"))
        else:
            self.transport.close()

    # -- after the answer -------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self.transport.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self.loop.call_later(SEND_SECONDS_MAX, self._cut_off)
        elif self.cycle.response_complete and self.cycle.more_body:
            self._unset_keepalive_if_required()
            self._wait(LINGER_SECONDS, self._cut_off)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        if self._due is not None:  # the rest of a body has come after all
            self._wait_no_more()
            self._stay_a_while()

    def timeout_keep_alive_handler(self) -> None:
        """An orderly end would wait until the client has taken what it does not take."""
        if self.transport.get_write_buffer_size():
            self._cut_off()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(SEND_SECONDS_MAX, self._cut_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _cut_off(self) -> None:
        """Also what the kernel still holds for it."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _stay_a_while(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    # -- refusing ---------------------------------------------------------------------------------------------

    def _refuse(self, error: HoldfastError) -> None:
        """Without the application: it has not been asked. Who is still sending gets to see it."""
        if self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._refused, self._heading = True, False
        request_id = self.config.request_id()
        reply = problem(error, request_id)
        self.config.turned_away("", reply.status)
        self.transport.write(_as_http(reply, request_id))
        self.transport.write_eof()
        self._wait(LINGER_SECONDS, self._cut_off)

    async def _too_many(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = self.config.request_id()
        error = TooMany("there are too many connections to this server", retry_after=1, code="too_many_connections")
        reply = problem(error, request_id)
        self.config.turned_away(scope["method"], reply.status)
        await send_reply(reply._replace(headers=(*reply.headers, (b"connection", b"close"))), send, request_id)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._wait_no_more()
        self._due = self.loop.call_later(seconds, then)

    def _wait_no_more(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def _head_too_large() -> Invalid:
    return Invalid(f"the request's head is longer than {HEAD_BYTES_MAX} bytes", code="head_too_large")


def _as_http(reply: Reply, request_id: str) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}".encode(),
        b"content-type: " + reply.content_type,
        b"content-length: " + str(len(reply.body)).encode(),
        b"x-request-id: " + request_id.encode(),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", reply.body])
