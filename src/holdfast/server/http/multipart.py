"""The parts of a multipart/form-data body, one after the other while it arrives. Nothing is stored."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from holdfast.errors import Malformed
from holdfast.server.http.request_body import media_type_of

HEADER_BYTES_MAX = 16_384  # of all headers of a part
TEXT_BYTES_MAX = 65_536
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it warns of each malformed form
_DISPOSITION, _TYPE = b"content-disposition", b"content-type"

NextChunk = Callable[[], Awaitable[bytes | None]]  # None: the end of the body


class FormPart:
    """A field or a file of a form: `async for chunk in part`, once, and before the next part is requested."""

    def __init__(self, form: FormParts, head: _PartHead) -> None:
        self._form = form
        self.name, self.filename = head.name, head.filename  # the latter as the client sent it; None: a field
        self.content_type = head.content_type  # in lower case and without parameters; empty if there is none

    def __aiter__(self) -> FormPart:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self._form.chunk_of(self):
            return chunk
        raise StopAsyncIteration

    async def text(self, *, max_bytes: int = TEXT_BYTES_MAX) -> str:
        """The content of a small field, which is UTF-8."""
        content = bytearray()
        async for chunk in self:
            content += chunk
            if len(content) > max_bytes:
                raise malformed_form(f"the field {self.name!r:.80} is longer than {max_bytes} bytes")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise malformed_form(f"the field {self.name!r:.80} is not valid UTF-8") from None


class FormParts:
    """`async for part in parts`. What is not read of a part is skipped when the next one is requested."""

    def __init__(self, content_type: bytes, next_chunk: NextChunk, *, max_parts: int) -> None:
        self._next_chunk, self._decoder = next_chunk, _Decoder(content_type, max_parts)
        self._current: FormPart | None = None
        self._at_end = True  # of the current part

    @property
    def uploads(self) -> list[tuple[int, str]]:
        """Size and type of each file that has arrived."""
        return self._decoder.uploads

    def __aiter__(self) -> FormParts:
        return self

    async def __anext__(self) -> FormPart:
        while (event := await self._event()) is not None:
            if isinstance(event, _PartHead):
                self._current, self._at_end = FormPart(self, event), False
                return self._current
        self._current = None
        raise StopAsyncIteration

    async def chunk_of(self, part: FormPart) -> bytes:
        """Empty at the end of the part."""
        if part is not self._current:
            raise TypeError("a part of a form can be read until the next one is requested")
        if self._at_end:
            return b""
        chunk = await self._event()
        assert isinstance(chunk, bytes)  # noqa: S101
        self._at_end = not chunk
        return chunk

    async def _event(self) -> _PartHead | bytes | None:
        decoder = self._decoder
        while not decoder.events:
            chunk = await self._next_chunk()
            if chunk is None:
                decoder.finish()
                return None
            decoder.write(chunk)
        return decoder.events.popleft()


class _PartHead(NamedTuple):
    name: str
    filename: str | None
    content_type: str


class _Decoder:
    """From bytes to events: the head of a part, its chunks, and empty bytes at its end."""

    def __init__(self, content_type: bytes, max_parts: int) -> None:
        self.events: deque[_PartHead | bytes] = deque()
        self.uploads: list[tuple[int, str]] = []
        self._parts = self._size = self._header_bytes = 0
        self._max_parts, self._complete = max_parts, False
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value = bytearray(), bytearray()
        self._head = _PartHead("", None, "")
        _, options = parse_options_header(content_type.decode("latin-1"))
        if not (boundary := options.get(b"boundary")):
            raise malformed_form("its content-type has no boundary")
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError:
            raise malformed_form("its boundary is too long") from None

    def write(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise malformed_form("a boundary or a header of a part is invalid") from None

    def finish(self) -> None:
        if not self._complete:
            raise malformed_form("it ends before its last boundary")

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > self._max_parts:
            raise malformed_form(f"it has more than {self._max_parts} parts")
        self._headers, self._header_bytes, self._size = {}, 0, 0

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._value += data[start:end]

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise malformed_form(f"the headers of a part are longer than {HEADER_BYTES_MAX} bytes")

    def _on_header_end(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(_DISPOSITION))
        if b"name" not in options:
            raise malformed_form("a part has no name in its content-disposition")
        filename = _text(options[b"filename"]) if b"filename" in options else None
        self._head = _PartHead(_text(options[b"name"]), filename, media_type_of(self._headers.get(_TYPE, b"")))
        self.events.append(self._head)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        self.events.append(data[start:end])

    def _on_part_end(self) -> None:
        self.events.append(b"")
        if self._head.filename is not None:
            self.uploads.append((self._size, self._head.content_type))

    def _on_end(self) -> None:
        self._complete = True


def _text(value: bytes) -> str:
    """A name in another encoding does not prevent the upload."""
    return value.decode(errors="replace")


def malformed_form(why: str) -> Malformed:
    return Malformed(f"malformed form: {why}", code="malformed_form")
