"""HTTP client that refuses internal addresses (SSRF protection) and limits time and memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpcore2
from msgspec import UNSET

from holdfast.errors import TooManyRedirects
from holdfast.net.connections import CheckedConnection, ConnectionPool
from holdfast.net.egress_rules import EgressRules, Target
from holdfast.net.error_mapping import outbound
from holdfast.net.limits import Limits
from holdfast.net.requests import IDEMPOTENT, OutboundRequest, checked, outgoing, redirected, without_fragment
from holdfast.net.responses import Response, StreamedResponse

DEFAULT_HEADERS = {"user-agent": "holdfast", "accept-encoding": "gzip, deflate"}
DRAINED_BYTES = 16_384  # of a redirect's body are read, so that its connection can be reused


class GuardedClient:
    """`headers` are sent with each request, in place of DEFAULT_HEADERS. No cookies are stored, and the environment is
    ignored: no proxies, no credentials, no certificates. A client belongs to one event loop."""

    def __init__(
        self,
        rules: EgressRules | None = None,
        *,
        limits: Limits | None = None,
        headers: Mapping[str, str] = DEFAULT_HEADERS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._rules, self._limits = rules or EgressRules(), limits or Limits()
        self._headers = checked(headers)
        self._connections = ConnectionPool(self._rules, tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connections.close()

    async def get(
        self, url: str | Target, *, headers: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> Response:
        return await self.request("GET", url, headers=headers, limits=limits)

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        json: Any = UNSET,
        limits: Limits | None = None,
    ) -> Response:
        """Send a request and read the whole response, whatever its status. Without a response: OutboundError."""
        async with self.stream(method, url, headers=headers, body=body, json=json, limits=limits) as streamed:
            return Response(
                status=streamed.status,
                headers=streamed.headers,
                url=streamed.url,
                redirects=streamed.redirects,
                body=await streamed.read(),
            )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | Target,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        json: Any = UNSET,
        limits: Limits | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The same, but the caller reads the body. The total time limit includes that."""
        limits = limits or self._limits
        target = url if isinstance(url, Target) else self._rules.check(without_fragment(url))
        sending = outgoing(method, target, {**self._headers, **checked(headers or {})}, body, json)
        until = asyncio.get_running_loop().time() + limits.total_seconds
        seen: tuple[str, ...] = ()
        while True:
            connection, came = await self._response_to(sending, until, limits)
            try:
                response = StreamedResponse(sending, came, connection, limits, seen)
                following = self._following(sending, response, limits)
                if following is None:
                    yield response
                    return
                await _drain(response)
            finally:
                await came.aclose()
                await self._connections.release(connection, limits)
            seen, sending = (*seen, sending.target.url), following

    def _following(self, sent: OutboundRequest, response: StreamedResponse, limits: Limits) -> OutboundRequest | None:
        if not limits.redirects:
            return None
        following = redirected(sent, response.status, response.headers, self._rules)
        if following is not None and len(response.redirects) >= limits.redirects:
            raise TooManyRedirects(f"more than {limits.redirects} redirects", about=sent.target.authority)
        return following

    async def _response_to(
        self, sending: OutboundRequest, until: float, limits: Limits
    ) -> tuple[CheckedConnection, httpcore2.Response]:
        connection: CheckedConnection | None = None
        try:
            async with asyncio.timeout_at(until):
                connection = await self._connections.kept(sending.target)
                if connection is not None:
                    came = await self._send_on_kept(connection, sending, until, limits)
                    if came is not None:
                        return connection, came
                connection = await self._connections.opened(sending.target, limits)
                return connection, await _send(connection, sending, until, limits)
        except Exception as error:
            known = outbound(error, sending.target, limits, connection)
            if known is None:
                raise
            raise known from error

    async def _send_on_kept(
        self, connection: CheckedConnection, sending: OutboundRequest, until: float, limits: Limits
    ) -> httpcore2.Response | None:
        """Over a kept-alive connection. None: the server has closed it, and a new one is needed."""
        try:
            came = await _send(connection, sending, until, limits)
            if connection.stream.received:
                return came
            await connection.close()
            raise httpcore2.RemoteProtocolError("The response arrived before the request.")
        except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
            if connection.stream.received or sending.method not in IDEMPOTENT:
                raise
            return None


async def _send(
    connection: CheckedConnection, sending: OutboundRequest, until: float, limits: Limits
) -> httpcore2.Response:
    connection.stream.begin(until, limits)
    return await connection.send(sending.method, sending.target, sending.lines(), sending.body)


async def _drain(response: StreamedResponse) -> None:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) <= DRAINED_BYTES:
        async for _ in response.raw_chunks():
            pass
