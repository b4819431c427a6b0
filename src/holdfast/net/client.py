"""Outbound HTTP that cannot be led to an internal network, and ends in bounded time and memory (SEC-30, SEC-31)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
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
DRAINED_BYTES = 16_384  # of a redirect's body, so that the next request may use its connection


class GuardedClient:
    """`headers` go with each request, in place of DEFAULT_HEADERS. Cookies are not kept, and nothing is taken from the
    environment: no proxies, no credentials, no certificates. A client belongs to one event loop."""

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        """Send it, and read the whole answer. Each status is an answer; without one, an OutboundError is raised."""
        async with self.stream(method, url, headers=headers, body=body, json=json, limits=limits) as came:
            return Response(
                status=came.status,
                headers=came.headers,
                url=came.url,
                redirects=came.redirects,
                body=await came.read(),
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
        """The same, but the body is left to read. The total time goes on meanwhile."""
        limits = limits or self._limits
        target = url if isinstance(url, Target) else self._rules.check(without_fragment(url))
        sending = outgoing(method, target, {**self._headers, **checked(headers or {})}, body, json)
        until = asyncio.get_running_loop().time() + limits.total_seconds
        seen: tuple[str, ...] = ()
        while True:
            connection, came = await self._answered(sending, until, limits)
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

    async def _answered(
        self, sending: OutboundRequest, until: float, limits: Limits
    ) -> tuple[CheckedConnection, httpcore2.Response]:
        connection: CheckedConnection | None = None
        try:
            async with asyncio.timeout_at(until):
                connection = await self._connections.kept(sending.target)
                if connection is not None:
                    came = await self._sent_again(connection, sending, until, limits)
                    if came is not None:
                        return connection, came
                connection = await self._connections.opened(sending.target, limits)
                return connection, await _sent(connection, sending, until, limits)
        except Exception as error:
            known = outbound(error, sending.target, limits, connection)
            if known is None:
                raise
            raise known from error

    async def _sent_again(
        self, connection: CheckedConnection, sending: OutboundRequest, until: float, limits: Limits
    ) -> httpcore2.Response | None:
        """Over a connection that was used before. None: the server gave it up meanwhile, and a new one is needed."""
        try:
            came = await _sent(connection, sending, until, limits)
            if connection.stream.received:
                return came
            await connection.close()
            raise httpcore2.RemoteProtocolError("The answer was there before the request.")
        except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
            if connection.stream.received or sending.method not in IDEMPOTENT:
                raise
            return None


async def _sent(
    connection: CheckedConnection, sending: OutboundRequest, until: float, limits: Limits
) -> httpcore2.Response:
    connection.stream.begin(until, limits)
    return await connection.send(sending.method, sending.target, sending.lines(), sending.body)


async def _drain(response: StreamedResponse) -> None:
    said = response.headers.get("content-length", "")
    if said.isdecimal() and int(said) <= DRAINED_BYTES:
        async for _ in response.raw_chunks():
            pass
