"""The HTTP connection on top of uvicorn: limits on the size and time of request heads, idle time and slow readers.

The limits of request bodies are in `request_body.py`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.errors import HoldfastError, Invalid, Malformed, TooMany
from holdfast.server.http.problems import problem
from holdfast.server.http.reply import CLOSE, send_reply
from holdfast.server.http.route import WHOLE_BODY, Reply

HEAD_BYTES_MAX = 16_384
HEAD_SECONDS_MAX = 5.0
KEEP_ALIVE_SECONDS = 30
SEND_SECONDS_MAX = 30.0  # for a client to read a response that exceeds the write buffer
LINGER_SECONDS = 5.0  # between chunks of a request that was answered before it was read
LINGER_SECONDS_MAX = 30.0  # to drain such a request
OVERLOAD_SECONDS = 1.0  # to read a request that is answered with too_many_connections


_NO_LINGER = struct.pack("ii", 1, 0)


OnRejected = Callable[[str, int], None]  # called for each request rejected before the application: method, status


class ServerConfig(uvicorn.Config):
    connections_max: int
    request_id: Callable[[], str]
    on_rejected: OnRejected


class HeadBuffer:
    """What a response is written to: sends its head together with the start of its body, one system call less."""

    __slots__ = ("_close", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport, self._head, self._close = transport, b"", close

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.endswith(b"\r\n\r\n") and b"\r\ncontent-length: " in data:
            self._head = data
            return
        self._transport.write(data)

    def write_whole(self, response: bytes) -> None:
        self._transport.write(response)

    def flush(self) -> None:
        """For a response without a body, as to HEAD."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    config: ServerConfig
    _reading_head = False  # a request has started, and its head is incomplete
    _head_bytes = 0  # without the first chunk
    _chunk_bytes = 0
    _rejected = False
    _head_error: HoldfastError | None = None
    _task: asyncio.Task[None] | None = None  # of the request that is being handled
    _write_timer: asyncio.TimerHandle | None = None
    _timer: asyncio.TimerHandle | None = None  # the deadline of the current wait
    _idle_since = 0.0  # 0: a request is under way
    _idle_timer: asyncio.TimerHandle | None = None
    _linger_until = 0.0  # 0: no request is drained

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._responses: Any = HeadBuffer(transport, self._close)
        overloaded = len(self.connections) > self.config.connections_max
        if overloaded:
            self.app = self._too_many
        self._start_timer(OVERLOAD_SECONDS if overloaded else HEAD_SECONDS_MAX, self._head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)
        if self._write_timer is not None:
            self._write_timer.cancel()

    # -- the head ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._rejected:
            return
        self._chunk_bytes = len(data)
        if self._reading_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._linger_until:
            self._linger()
        if self._reading_head and not self.transport.is_closing():
            if self._head_bytes > HEAD_BYTES_MAX:
                self._reject(_head_too_large())
            elif self._timer is None:
                self._start_timer(HEAD_SECONDS_MAX, self._head_timeout)

    def on_message_begin(self) -> None:
        self._reading_head, self._head_bytes, self._idle_since = True, 0, 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._cancel_timer()
        if self._chunk_bytes + self._head_bytes > HEAD_BYTES_MAX and self._head_size() > HEAD_BYTES_MAX:
            self._head_error = _head_too_large()
            raise self._head_error  # uvicorn then calls `send_400_response`
        super().on_headers_complete()
        self.cycle.transport = self._responses

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        self._reject(self._head_error or Malformed("malformed HTTP request", code="malformed_request"))

    def _head_timeout(self) -> None:
        if self._reading_head:
            message = f"the request head did not arrive within {HEAD_SECONDS_MAX:g} s"
            self._reject(Malformed(message, code="head_timeout"))
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Instead of that of uvicorn, which does not keep the task."""
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    # -- after the response -----------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Instead of that of uvicorn, which makes and cancels a timer for each request."""
        self._responses.flush()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self.loop.call_later(SEND_SECONDS_MAX, self._abort)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.cycle.more_body:
            self._linger_until = self.loop.time() + LINGER_SECONDS_MAX
            self._linger()
        else:
            self._wait_for_request()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope[WHOLE_BODY] = bytes(self.cycle.body)  # type: ignore[literal-required]
        if self._linger_until:
            self._end_linger()

    def _linger(self) -> None:
        """Discard what the client still sends: most clients read the response after they have sent everything, and to
        close before that would reset the connection, which may lose the response."""
        left = self._linger_until - self.loop.time()
        self._start_timer(min(LINGER_SECONDS, left), self._abort)

    def _end_linger(self) -> None:
        self._linger_until = 0.0
        self._cancel_timer()
        if self.cycle.keep_alive:
            self._wait_for_request()
        else:
            self.transport.close()

    def _close(self) -> None:
        """After a response that ends the connection."""
        if self.cycle.response_complete and self.cycle.more_body:
            self.transport.write_eof()
        else:
            self.transport.close()

    def _wait_for_request(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if not self._idle_since:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """A graceful close would wait for a client that does not read."""
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(SEND_SECONDS_MAX, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _abort(self) -> None:
        """Also drop what the kernel has buffered."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    # -- rejecting --------------------------------------------------------------------------------------------

    def _reject(self, error: HoldfastError) -> None:
        """Instead of the application. A client that is still sending can read the response."""
        handling = not (self.cycle is None or self.cycle.response_complete)
        if (handling and not self._can_replace()) or self._linger_until or self.transport.is_closing():
            self.transport.close()
            return
        self._rejected, self._reading_head = True, False
        request_id = self.config.request_id()
        reply = problem(error, request_id)
        if not (handling and self._has_started()):  # the application counts its requests
            self.config.on_rejected("", reply.status)
        if handling:
            self._abandon()
        self.transport.write(_as_http(reply, request_id))
        self.transport.write_eof()
        self._start_timer(LINGER_SECONDS, self._abort)

    def _can_replace(self) -> bool:
        """The error is in the body of the request that is being handled, nothing of its response was sent, and its
        handler has not begun or waits for the body. Another one may have done its work already."""
        cycle, waits = self.cycle, bool(self.cycle.message_event._waiters)
        unanswered = cycle.more_body and not cycle.response_started and not self.pipeline
        return unanswered and (waits or not self._has_started())

    def _has_started(self) -> bool:
        return self._task is not None and getcoroutinestate(self._task.get_coro()) != CORO_CREATED  # type: ignore[arg-type]

    def _abandon(self) -> None:
        """To the application, the client has disconnected."""
        if self._task is not None and not self._has_started():
            self._task.cancel()
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.flow.resume_reading()

    async def _too_many(self, scope: Any, receive: Any, send: Any) -> None:
        request_id = self.config.request_id()
        error = TooMany("this server has too many connections", retry_after=1, code="too_many_connections")
        reply = problem(error, request_id)
        self.config.on_rejected(scope["method"], reply.status)
        await send_reply(reply._replace(headers=(*reply.headers, CLOSE)), send, request_id)

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _head_too_large() -> Invalid:
    return Invalid(f"the request head is longer than {HEAD_BYTES_MAX} bytes", code="head_too_large")


def _as_http(reply: Reply, request_id: str) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}".encode(),
        b"content-type: " + reply.content_type,
        b"content-length: " + str(len(reply.body)).encode(),
        b"x-request-id: " + request_id.encode(),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", reply.body])
