"""Connection pool: connections to checked addresses, kept alive for requests to the same origin."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cached_property
from typing import Any

import httpcore2
import httpx2

from holdfast.errors import AnswerTooLarge
from holdfast.net.egress_rules import EgressRules, Target
from holdfast.net.limits import Limits


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A network stream with limits on the bytes and the time of the current response."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, about: str) -> None:
        self._stream, self._about = stream, about
        self._left, self._what = 0, ""
        self._until, self._read_seconds = 0.0, 0.0
        self.received = 0
        self.has_ended = False

    def begin(self, until: float, limits: Limits) -> None:
        """Start a new request with the limit of its headers. `until` is a time of the event loop."""
        self._until, self._read_seconds = until, limits.read_seconds
        self.received = 0
        self.allow(limits.header_bytes, f"headers of more than {limits.header_bytes} bytes")

    def allow(self, size: int, what: str) -> None:
        """Allow so many bytes; `what` describes more than these in the error."""
        self._left, self._what = size, what

    def allow_more(self, size: int) -> None:
        self._left += size

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._left <= 0:
            raise AnswerTooLarge(f"the response has {self._what}", about=self._about)
        data = await self._stream.read(min(max_bytes, self._left), self._seconds())
        self._left -= len(data)
        self.received += len(data)
        self.has_ended = not data
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, self._seconds())

    @property
    def seconds_left(self) -> float:
        """Of the total time limit."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    def _seconds(self) -> float:
        return min(self._read_seconds, self.seconds_left)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class CheckedConnection:
    """An HTTP/1.1 connection to one checked address of one origin."""

    def __init__(self, target: Target, stream: httpcore2.AsyncNetworkStream, idle_seconds: float) -> None:
        self.origin, self.stream = target.origin, BoundedStream(stream, target.authority)
        origin = httpcore2.Origin(*_origin_parts(target))
        self.http = httpcore2.AsyncHTTP11Connection(origin, self.stream, idle_seconds)

    async def send(
        self, method: str, target: Target, headers: list[tuple[str, str]], body: bytes | None
    ) -> httpcore2.Response:
        scheme, host, port = _origin_parts(target)
        url = httpcore2.URL(scheme=scheme, host=host, port=port, target=target.path.encode())
        return await self.http.handle_async_request(httpcore2.Request(method, url, headers=headers, content=body))

    async def close(self) -> None:
        await self.http.aclose()


class ConnectionPool:
    """Needs no lock: the list changes only between awaits."""

    def __init__(self, rules: EgressRules, tls: ssl.SSLContext | None) -> None:
        self._rules, self._given_tls = rules, tls
        self._backend = httpcore2.AnyIOBackend()
        self._idle: list[CheckedConnection] = []

    async def kept(self, target: Target) -> CheckedConnection | None:
        """A kept-alive connection to the same origin. Its address was checked when it was opened."""
        for connection in reversed([each for each in self._idle if each.origin == target.origin]):
            self._idle.remove(connection)
            if not connection.http.has_expired():
                return connection
            await connection.close()
        return None

    async def opened(self, target: Target, limits: Limits) -> CheckedConnection:
        """A new connection, to the first reachable address of the host."""
        *others, last = await self._rules.addresses(target)
        for address in others:
            try:
                return await self._connected(address, target, limits)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connected(last, target, limits)

    async def _connected(self, address: str, target: Target, limits: Limits) -> CheckedConnection:
        now = asyncio.get_running_loop().time
        until = now() + limits.connect_seconds
        stream = await self._backend.connect_tcp(address, target.port, timeout=limits.connect_seconds)
        if target.scheme == "https":
            try:
                seconds = max(0.0, until - now())
                stream = await stream.start_tls(self._tls, server_hostname=target.host, timeout=seconds)
            except BaseException:
                await stream.aclose()
                raise
        return CheckedConnection(target, stream, limits.idle_seconds)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx2.create_ssl_context(trust_env=False)

    async def release(self, connection: CheckedConnection, limits: Limits) -> None:
        """Keep the connection if its response was read to the end, else close it."""
        if not connection.http.is_idle() or not limits.idle_seconds or not limits.idle_connections:
            await connection.close()
            return
        self._idle.append(connection)
        await self._drop(lambda each: each.http.has_expired())
        while len(self._idle) > limits.idle_connections:
            await self._idle.pop(0).close()

    async def close(self) -> None:
        await self._drop(lambda _: True)

    async def _drop(self, unwanted: Callable[[CheckedConnection], bool]) -> None:
        dropped = [each for each in self._idle if unwanted(each)]
        self._idle = [each for each in self._idle if each not in dropped]
        for connection in dropped:
            await connection.close()


def _origin_parts(target: Target) -> tuple[bytes, bytes, int]:
    return target.scheme.encode(), target.host.encode(), target.port
