"""Sends a complete response in one piece: one system call, and none of the messages of ASGI."""

from __future__ import annotations

from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from holdfast.server.http.route import Reply

CLOSE = (b"connection", b"close")
_COMMON = b"x-content-type-options: nosniff\r\nx-request-id: %b\r\n"
_NO_STORE = b"cache-control: no-store\r\n"
_encode = msgspec.json.Encoder().encode


async def send_reply(reply: Reply, send: Any, request_id: str) -> None:
    """`send` of uvicorn is a method of the object with the state of this request and its response; any other gets the
    messages of ASGI."""
    cycle: Any = getattr(send, "__self__", None)
    if not hasattr(cycle, "on_response"):
        await _send_messages(reply, send, request_id)
        return
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    body = _body(reply)
    head = _head(reply, len(body), request_id, cycle)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write_whole(head if cycle.scope["method"] == "HEAD" else head + body)
    cycle.message_event.set()  # ends a wait for the disconnect of the client
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def _body(reply: Reply) -> bytes:
    return b"" if reply.body is None else reply.body if isinstance(reply.body, bytes) else _encode(reply.body)


async def _send_messages(reply: Reply, send: Any, request_id: str) -> None:
    body = _body(reply)
    headers = [*reply.headers, (b"x-content-type-options", b"nosniff"), (b"x-request-id", request_id.encode())]
    if not any(name == b"cache-control" for name, _ in reply.headers):
        headers.append((b"cache-control", b"no-store"))
    if reply.body is not None:
        headers.append((b"content-type", reply.content_type))
    if reply.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _head(reply: Reply, length: int, request_id: str, cycle: Any) -> bytes:
    lines = [STATUS_LINE[reply.status], _COMMON % request_id.encode()]
    stored = False
    for name, value in (*reply.headers, *cycle.default_headers):  # the latter: the date
        lines.append(b"%b: %b\r\n" % (name, value))
        stored = stored or name == b"cache-control"
    if not stored:
        lines.append(_NO_STORE)
    if CLOSE in reply.headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    if reply.body is not None:
        lines.append(b"content-type: %b\r\n" % reply.content_type)
    if reply.status != 204 and reply.status != 304:
        lines.append(b"content-length: %d\r\n" % length)
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1 or b"\0" in head:
        raise ValueError(f"a response header has a control character: {lines!r}")
    return head + b"\r\n"
