"""A request body that a handler reads while it arrives: a stream, a form or its parts. Limits on size and speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.datastructures import Headers as StarletteHeaders
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser

from holdfast.errors import HoldfastError, Malformed
from holdfast.server.http.multipart import FormParts, malformed_form
from holdfast.server.http.request_body import BODY_SECONDS_MAX, check_length, media_type_of, too_large
from holdfast.server.http.route import BodyLimit, Headers

BYTES_PER_SECOND_MIN = 4096.0  # slower uploads time out
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
FIELDS_BYTES_MAX = 1_048_576  # of a form in memory, without files
FILE_BYTES_IN_MEMORY = 65_536


class StreamedBody:
    """It can be read once."""

    def __init__(self, receive: Any, headers: Headers, *, media_type: str, limit: BodyLimit) -> None:
        self._receive, self._limit = receive, limit
        self._size, self._over, self._waited = 0, False, 0.0
        self.failure: HoldfastError | None = None
        self.disconnected = False  # the client has disconnected
        self.upload_type: str | None = None  # of the uploads; None: what the client says
        self._form: FormData | None = None
        self._parts: FormParts | None = None
        self._content_type = headers.get(b"content-type", b"")
        self._kind = media_type_of(self._content_type)
        if not _fits(self._kind, media_type):
            raise Malformed(f"send the content-type {media_type}", code="unsupported_media_type")
        check_length(headers, limit)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        while not self._over:
            if chunk := await self._next():
                yield chunk

    async def _next_or_end(self) -> bytes | None:
        return None if self._over else await self._next()

    async def _next(self) -> bytes:
        """With a timeout that allows for the minimum upload rate."""
        asked = asyncio.get_running_loop().time()
        allowed = BODY_SECONDS_MAX + self._size / BYTES_PER_SECOND_MIN - self._waited
        try:
            async with asyncio.timeout(min(allowed, BODY_SECONDS_MAX)):
                return await self._received()
        except TimeoutError:
            self.failure = _too_slow()
            raise self.failure from None
        finally:
            self._waited += asyncio.get_running_loop().time() - asked

    async def _received(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.disconnected = True
            raise asyncio.CancelledError
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._limit.size:
            self.failure = too_large(self._limit)
            raise self.failure
        self._over = not message.get("more_body")
        return chunk

    async def message(self) -> Any:
        """ASGI `receive`, for a mounted application."""
        if self._over:
            message = await self._receive()
            self.disconnected = message["type"] == "http.disconnect"
            return message
        chunk = await self._next()
        return {"type": "http.request", "body": chunk, "more_body": not self._over}

    async def form(self, headers: StarletteHeaders, *, max_files: int, max_fields: int) -> FormData:
        if self._form is None:
            try:
                self._form = await self._parsed(headers, max_files, max_fields)
            except MultiPartException as error:
                raise malformed_form(error.message) from None
            except ValueError:  # from python-multipart or an unknown character set
                raise malformed_form("its encoding does not match its content-type") from None
        return self._form

    async def _parsed(self, headers: StarletteHeaders, max_files: int, max_fields: int) -> FormData:
        if self._kind == FORM:
            self._limit = self._limit._replace(size=min(self._limit.size, FIELDS_BYTES_MAX))
            return await FormParser(headers, self.stream(), max_fields=max_fields).parse()
        self._check_multipart()
        return await _SpoolingParser(headers, self.stream(), max_files=max_files, max_fields=max_fields).parse()

    def parts(self, *, max_parts: int) -> FormParts:
        if self._parts is None:
            self._check_multipart()
            self._parts = FormParts(self._content_type, self._next_or_end, max_parts=max_parts)
        return self._parts

    def _check_multipart(self) -> None:
        if self._kind != MULTIPART:
            raise Malformed(f"send a form with the content-type {MULTIPART}", code="unsupported_media_type")

    @property
    def uploads(self) -> list[tuple[int, str]]:
        """Size and type of each file of a form, else of the whole body."""
        return [(size, self.upload_type or kind) for size, kind in self._uploads()]

    def _uploads(self) -> list[tuple[int, str]]:
        if self._form is not None:
            files = [value for _, value in self._form.multi_items() if isinstance(value, UploadFile)]
            return [(file.size or 0, file.content_type or "") for file in files]
        if self._parts is not None:
            return self._parts.uploads
        return [(self._size, self._kind)] if self._over else []

    async def close(self) -> None:
        if self._form is not None:
            await self._form.close()


class _SpoolingParser(MultiPartParser):
    """Bounds the memory of all fields together."""

    spool_max_size = FILE_BYTES_IN_MEMORY
    _kept = 0

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is None:
            self._kept += end - start
            if self._kept > FIELDS_BYTES_MAX:
                raise MultiPartException(f"its fields without files are longer than {FIELDS_BYTES_MAX} bytes")
        super().on_part_data(data, start, end)


def _fits(kind: str, wanted: str) -> bool:
    main, _, sub = wanted.partition("/")
    return wanted == "*/*" or kind == wanted or (sub == "*" and kind.startswith(f"{main}/"))


def _too_slow() -> Malformed:
    rate = f"the upload was slower than {BYTES_PER_SECOND_MIN:g} bytes a second"
    return Malformed(f"no part of the body arrived for {BODY_SECONDS_MAX:g} s, or {rate}", code="body_timeout")
