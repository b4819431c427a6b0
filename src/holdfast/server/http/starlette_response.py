"""Sends Starlette responses with the request id, security headers and 304 handling of the core."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from starlette.responses import Response, StreamingResponse

SEND_SECONDS_MAX = 20.0  # for a client to take a chunk
STRICT_POLICY = (
    b"default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; font-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# For XML such as SVG, which may contain scripts and come from an upload.
PICTURE_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
_PAGES = (b"text/html", b"application/xhtml+xml")
_NOT_WITH_304 = (b"content-length", b"content-type", b"content-range")
_NAME, _CONTROL = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def check_head(status: Any, headers: Iterable[Any]) -> None:
    """Before anything is sent, so that a mistake of the handler becomes an error response."""
    if type(status) is not int or not 200 <= status <= 599:
        raise TypeError(f"a response status is 200 to 599, not {status!r}")
    for name, value in headers:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise TypeError(f"header name and value must be bytes, not {name!r} and {value!r}")
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise TypeError(f"invalid header {name!r}: {value!r}")


class ResponseSender:
    """Wraps ASGI `send`: adds headers, and answers 304 if the client has the ETag."""

    def __init__(
        self, scope: Any, send: Any, request_id: str, begins: Callable[[int], None] = lambda status: None
    ) -> None:
        self._scope, self.send, self.request_id, self.begins = scope, send, request_id, begins
        self.status: int | None = None  # None: the response has not started
        self.ended = False
        self.unread = False  # the client has stopped reading
        self._silent = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            message = self._start(message)
        elif self._silent:
            if message.get("more_body"):
                return
            message = {**message, "body": b""}
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await self.send(message)
        except TimeoutError:
            self.unread = True
            raise
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")

    def _start(self, message: Any) -> Any:
        headers, status = list(message.get("headers", ())), message["status"]
        check_head(status, headers)
        given = {name.lower(): value for name, value in headers}
        if self._not_modified(given.get(b"etag"), status):
            status, self._silent = 304, True
            headers = [(name, value) for name, value in headers if name.lower() not in _NOT_WITH_304]
        for name, value in self._extra_headers(given):
            if name not in given:
                headers.append((name, value))
        self.status = status
        self.begins(status)
        return {**message, "status": status, "headers": headers}

    def _extra_headers(self, given: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        added = [
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", self.request_id.encode()),
            (b"cache-control", b"no-cache" if b"etag" in given else b"no-store"),
        ]
        kind = given.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in _PAGES:
            added += [(b"content-security-policy", STRICT_POLICY), (b"referrer-policy", b"no-referrer")]
        elif kind.endswith((b"/xml", b"+xml")):
            added.append((b"content-security-policy", PICTURE_POLICY))
        return added

    def _not_modified(self, etag: bytes | None, status: int) -> bool:
        """If-None-Match comes before Range (RFC 9110)."""
        if etag is None or status not in (200, 206) or self._scope["method"] not in ("GET", "HEAD"):
            return False
        known = b",".join(value for name, value in self._scope["headers"] if name == b"if-none-match")
        tags = [tag.strip().removeprefix(b"W/") for tag in known.split(b",")]
        return b"*" in tags or etag.removeprefix(b"W/") in tags


async def send_response(response: Response, scope: Any, receive: Any, send: ResponseSender) -> None:
    if isinstance(response, StreamingResponse) and scope["method"] == "HEAD":
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await response(scope, receive, send)
