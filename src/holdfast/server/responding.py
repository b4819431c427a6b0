"""An answer of Starlette's goes out as ours do: with the request's id, and with what browsers must be told."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response, StreamingResponse

SEND_SECONDS_MAX = 20.0  # a reader who takes nothing for so long is not waited for
STRICT_POLICY = (
    b"default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; font-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_NOT_WITH_304 = (b"content-length", b"content-type")


class Dressed:
    """`send`, for an application that need not know of us. An answer that the client has already is 304."""

    def __init__(self, scope: Any, send: Any, request_id: str) -> None:
        self._scope, self._send, self._request_id = scope, send, request_id
        self.status: int | None = None  # None: the answer has not begun
        self.ended = False
        self._silent = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            message = self._begun(message)
        elif self._silent:
            if message.get("more_body"):
                return
            message = {**message, "body": b""}
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await self._send(message)
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")

    def _begun(self, message: Any) -> Any:
        headers = list(message.get("headers", ()))
        said = {name.lower(): value for name, value in headers}
        self.status = message["status"]
        if self._is_known(said.get(b"etag")):
            self.status, self._silent = 304, True
            headers = [(name, value) for name, value in headers if name.lower() not in _NOT_WITH_304]
        for name, value in self._added(said):
            if name not in said:
                headers.append((name, value))
        return {**message, "status": self.status, "headers": headers}

    def _added(self, said: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        added = [
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", self._request_id.encode()),
            (b"cache-control", b"no-cache" if b"etag" in said else b"no-store"),
        ]
        if said.get(b"content-type", b"").startswith(b"text/html"):
            added += [(b"content-security-policy", STRICT_POLICY), (b"referrer-policy", b"no-referrer")]
        return added

    def _is_known(self, etag: bytes | None) -> bool:
        if etag is None or self.status != 200 or self._scope["method"] not in ("GET", "HEAD"):
            return False
        known = next((value for name, value in self._scope["headers"] if name == b"if-none-match"), b"")
        tags = [tag.strip().removeprefix(b"W/") for tag in known.split(b",")]
        return b"*" in tags or etag.removeprefix(b"W/") in tags


async def send_response(response: Response, scope: Any, receive: Any, send: Any, request_id: str) -> None:
    dressed = Dressed(scope, send, request_id)
    if isinstance(response, StreamingResponse) and scope["method"] == "HEAD":
        await dressed({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await dressed({"type": "http.response.body", "body": b""})
        return
    await response(scope, receive, dressed)
