"""Responses to outbound requests, read whole or streamed, within limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpcore2
import httpx2
import msgspec

from holdfast.errors import AnswerTooLarge, MalformedAnswer
from holdfast.net.connections import CheckedConnection
from holdfast.net.error_mapping import outbound
from holdfast.net.limits import Limits
from holdfast.net.requests import OutboundRequest

# Bytes on the wire that a body may take: a constant plus twice its content so far. Chunks of one byte take six times
# their content, and keep the event loop busy.
FRAMING_BYTES, FRAMING_FACTOR = 16_384, 2
# Each decompression may expand data a thousandfold, and the last one may produce no output: no limit would apply before
# a read of 64 KiB is processed, and the event loop would block. Two are acceptable, three are not.
CODINGS_MAX = 2

Measure = Callable[[AsyncIterable[bytes]], AsyncGenerator[bytes]]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """`url` is the final one; `redirects` are the URLs before it."""

    status: int
    headers: httpx2.Headers
    url: str
    redirects: tuple[str, ...]
    body: bytes

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MalformedAnswer("the body is not JSON", about=httpx2.URL(self.url).host) from None


class StreamedResponse:
    """The body is read once, by one of `chunks`, `raw_chunks` or `read`."""

    def __init__(
        self,
        sent: OutboundRequest,
        came: httpcore2.Response,
        connection: CheckedConnection,
        limits: Limits,
        redirects: tuple[str, ...],
    ) -> None:
        self._sent, self._connection, self._limits = sent, connection, limits
        self._came = httpx2.Response(
            came.status, headers=came.headers, stream=_Received(came, connection, self._measured)
        )
        self.status, self.headers = came.status, self._came.headers
        self.url, self.redirects = sent.target.url, redirects
        connection.stream.allow(FRAMING_BYTES, "chunks that are too small")

    def chunks(self) -> AsyncGenerator[bytes]:
        """The body, decompressed."""
        if len(self.headers.get_list("content-encoding", split_commas=True)) > CODINGS_MAX:
            about = self._sent.target.authority
            raise MalformedAnswer(f"the body is compressed more than {CODINGS_MAX} times", about=about)
        return self._translated(self._measured(self._came.aiter_bytes()))

    def raw_chunks(self) -> AsyncGenerator[bytes]:
        """The raw body."""
        return self._translated(self._came.aiter_raw())

    async def read(self) -> bytes:
        """The whole body, decompressed."""
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limits.body_bytes and self._sent.method != "HEAD":
            raise self._too_large()
        return b"".join([chunk async for chunk in self.chunks()])

    async def _measured(self, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._limits.body_bytes:
                raise self._too_large()
            yield chunk

    async def _translated(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except Exception as error:
            known = outbound(error, self._sent.target, self._limits, self._connection)
            if known is None:
                raise
            raise known from error

    def _too_large(self) -> AnswerTooLarge:
        reason = f"the response has a body of more than {self._limits.body_bytes} bytes"
        return AnswerTooLarge(reason, about=self._sent.target.authority)


class _Received(httpx2.AsyncByteStream):
    """The raw body, measured before decompression, too: some compressed data produces no output."""

    def __init__(self, came: httpcore2.Response, connection: CheckedConnection, measured: Measure) -> None:
        self._came, self._connection, self._measured = came, connection, measured

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._measured(self._came.aiter_stream()):
            self._connection.stream.allow_more(FRAMING_FACTOR * len(chunk))
            yield chunk

    async def aclose(self) -> None:
        await self._came.aclose()
