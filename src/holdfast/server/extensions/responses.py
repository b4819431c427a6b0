"""Responses for extension routes besides JSON: HTML, redirects, files, ranges, streams."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC
from email.utils import format_datetime, formatdate
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.storage import Download

CHUNK_BYTES = 65_536
_RUNS_SCRIPTS = re.compile(r"[^;]*(html|xml)", re.IGNORECASE)  # of content types; image/svg+xml is one of them
_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)", re.ASCII | re.IGNORECASE)
_PLACE_DIGITS = 18

Part = Callable[[int, int], AsyncIterator[bytes]]  # streams the bytes from start to end


def html(text: str, *, status: int = 200, policy: str | None = None) -> Response:
    """An HTML page. The default Content-Security-Policy allows only resources of this server and no inline scripts.

    `policy`: another Content-Security-Policy, such as one with a nonce.
    """
    headers = {} if policy is None else {"content-security-policy": policy}
    return HTMLResponse(text, status, headers)


def redirect(url: str, *, status: int = 303) -> Response:
    """303: the client uses GET; 307: it repeats the request."""
    return RedirectResponse(url, status)


def streamed(
    chunks: AsyncIterator[bytes],
    *,
    media_type: str = "application/octet-stream",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response of unknown length. The iterator is closed when the client disconnects."""
    return StreamingResponse(chunks, media_type=media_type, headers=headers)


def file(path: str | os.PathLike[str], *, media_type: str | None = None, filename: str | None = None) -> Response:
    """A file, or the requested range of it. `filename`: makes browsers download it under this name."""
    found = Path(path)
    try:
        stat = found.stat()
    except OSError:
        raise NotFound("file not found", code="file_not_found") from None
    tag = hashlib.sha256(f"{stat.st_mtime_ns}-{stat.st_size}".encode()).hexdigest()[:32]
    headers = {"last-modified": formatdate(stat.st_mtime, usegmt=True)}
    if filename is not None:
        headers["content-disposition"] = _attachment(filename)
    kind = media_type or guess_type(found.name)[0] or "application/octet-stream"
    return ranged(lambda start, end: _read(found, start, end), stat.st_size, etag=tag, media_type=kind, headers=headers)


def stored(download: Download, *, filename: str | None = None) -> Response:
    """An object of storage, or the requested range, with the headers that it was stored with:
    `stored(await storage.get(key))`. HTML runs no scripts and gets no cookies: it may be an upload."""
    info = download.info
    headers = {**info.headers, "last-modified": format_datetime(info.modified.astimezone(UTC), usegmt=True)}
    if filename is not None:
        headers["content-disposition"] = _attachment(filename)
    headers["content-type"] = info.content_type  # set here, so that no charset is added
    if _RUNS_SCRIPTS.match(info.content_type):
        headers["content-security-policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    etag = info.etag.removeprefix("W/")
    return ranged(download.part, info.size, etag=etag, media_type=info.content_type, headers=headers)


def _attachment(filename: str) -> str:
    return f"attachment; filename*=utf-8''{quote(filename)}"


def ranged(
    part: Part,
    size: int,
    *,
    etag: str,
    media_type: str = "application/octet-stream",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response of known size with support for `Range` and `If-Range`. `etag`: must change whenever the content
    changes."""
    return RangeResponse(part, size, _quoted(etag), media_type, headers or {})


async def _read(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    handle = await asyncio.to_thread(path.open, "rb")
    try:
        await asyncio.to_thread(handle.seek, start)
        while start < end:
            chunk = await asyncio.to_thread(handle.read, min(CHUNK_BYTES, end - start))
            if not chunk:
                raise OSError(f"{path.name} was truncated while it was sent")
            start += len(chunk)
            yield chunk
    finally:
        handle.close()


class RangeResponse(Response):
    def __init__(self, part: Part, size: int, etag: str, media_type: str, headers: Mapping[str, str]) -> None:
        self._part, self._size, self._etag = part, size, etag
        self.status_code, self.media_type, self.body = 200, media_type, b""
        self.background: BackgroundTask | None = None
        self.init_headers({**headers, "etag": etag, "accept-ranges": "bytes", "content-length": str(size)})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"range", b"if-range")}
        start, end = self._bounds(scope["method"], request)
        if start is None:
            self.status_code = 416
            self.headers["content-range"], self.headers["content-length"] = f"bytes */{self._size}", "0"
            self.headers["cache-control"] = "no-store"  # that of the object is not for an error
            del self.headers["etag"], self.headers["content-type"]
        elif (start, end) != (0, self._size) or self.status_code == 206:
            self.status_code = 206
            self.headers["content-range"] = f"bytes {start}-{end - 1}/{self._size}"
            self.headers["content-length"] = str(end - start)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if start is not None and scope["method"] != "HEAD":
            await self._send(start, end, receive, send)
        await send({"type": "http.response.body", "body": b""})

    def _bounds(self, method: str, request: Mapping[bytes, str]) -> tuple[int | None, int]:
        """Start and end; None: not satisfiable. A malformed range is ignored (RFC 9110)."""
        said, whole = _RANGE.fullmatch(request.get(b"range", "").strip()), (0, self._size)
        if said is None or method not in ("GET", "HEAD") or not self._is_current(request.get(b"if-range")):
            return whole
        first, last = map(_place, said.groups())
        if first is None:
            if last is None:
                return whole
            start, end = max(self._size - last, 0), self._size
        else:
            start, end = first, self._size if last is None else min(last + 1, self._size)
            if last is not None and last < start:
                return whole
        if start >= self._size or start >= end:
            return None, 0
        self.status_code = 206
        return start, end

    def _is_current(self, condition: str | None) -> bool:
        return condition is None or condition in (self._etag, self.headers.get("last-modified"))

    async def _send(self, start: int, end: int, receive: Any, send: Any) -> None:
        """Until it ends or the client disconnects."""
        watching = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send_part(start, end, send))
        try:
            await asyncio.wait([watching, sending], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (watching, sending):
                task.cancel()
            await asyncio.gather(watching, sending, return_exceptions=True)

    async def _send_part(self, start: int, end: int, send: Any) -> None:
        async with _closing(self._part(start, end)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _place(digits: str) -> int | None:
    """A longer number than that of any byte counts as beyond the end; `int` refuses very long ones."""
    if not digits:
        return None
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) <= _PLACE_DIGITS else 10**_PLACE_DIGITS


def _closing(chunks: AsyncIterator[bytes]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    return aclosing(chunks)  # type: ignore[type-var]


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def etag_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def tagged_with(response: Response, etag: str) -> Response:
    """With an ETag: a client that has it gets 304."""
    response.headers["etag"] = _quoted(etag)
    return response


def _quoted(etag: str) -> str:
    """In quotes. The ETag of a stored object already has them."""
    bare = etag.removeprefix('"').removesuffix('"')
    if '"' in bare:
        raise Invalid("an ETag has no quotes inside", code="invalid_route")
    return f'"{bare}"'
