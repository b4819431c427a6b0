"""HTTP connection to a server, with retries of requests that are safe to repeat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from holdfast.client.address import checked_address, checked_key
from holdfast.client.problems import error_of, lost, unreadable
from holdfast.client.retry import RetryPolicy
from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.ids import Ids

T = TypeVar("T")
Headers = Mapping[str, str]
NONE: Headers = {}
NO_CONTENT = 204
JSON = {"content-type": "application/json"}
RETRIES = 5
STREAM_TIMEOUT_SECONDS = 90.0  # of an event stream: a server sends a keep-alive every 30 s
ALL_CONNECTIONS = httpx2.Limits(max_connections=100, max_keepalive_connections=20)
_encode = msgspec.json.Encoder().encode


class HttpConnection:
    """Connects on first use; `async with` or `close` ends it. Safe for concurrent calls."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = RETRIES,
        clock: Clock | None = None,
        ids: Ids | None = None,
        trace_headers: Callable[[], Headers] | None = None,
    ) -> None:
        self.url = checked_address(url)
        self._timeout, self._retries = timeout, retries
        self.clock, self._ids = clock or Clock(), ids or Ids()
        self._trace_headers = trace_headers or dict
        headers = {"authorization": f"Bearer {checked_key(key)}"} if key else {}
        self._http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, limits=ALL_CONNECTIONS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _get(self, path: str, shape: type[T], *, wait: float = 0, **more: Any) -> T:
        return self._read(await self._request("GET", path, timeout=self._timeout + wait, **more), shape)

    async def _post(self, path: str, body: Any, shape: type[T], **more: Any) -> T:
        return self._read(await self._request("POST", path, body, **more), shape)

    def _read(self, answer: httpx2.Response, shape: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.content, type=shape)
        except msgspec.DecodeError:
            raise unreadable(self.url) from None

    async def _request(
        self, method: str, path: str, body: Any = None, *, safe: bool = True, headers: Headers = NONE, **more: Any
    ) -> httpx2.Response:
        if body is not None:
            more["content"], headers = _encode(body), {**headers, **JSON}
        retry = RetryPolicy(self._retries, self._ids, safe=safe)
        while True:
            try:
                answer = await self._http.request(method, path, headers=headers, **more)
                if answer.is_success:
                    return answer
                failure: HoldfastError = error_of(answer, self.url)
            except httpx2.HTTPError as error:
                failure = lost(error, self.url)
            await self.clock.sleep(retry.after(failure))

    async def _watch(self, path: str, **params: str) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """Server-sent events. A broken stream is resumed after the last event."""
        retry, last = RetryPolicy(self._retries, self._ids), ""
        while True:
            try:
                async with self._stream(path, params, last) as answer:
                    if answer.status_code == NO_CONTENT:  # the stream is complete
                        return
                    async for event in httpx2.EventSource(answer):
                        retry.reset()
                        last = event.id or last
                        if event.data:
                            yield event
                    raise httpx2.RemoteProtocolError("the stream ended")
            except httpx2.HTTPError as error:
                failure: HoldfastError = lost(error, self.url)
            except HoldfastError as error:
                failure = error
            await self.clock.sleep(retry.after(failure))

    @asynccontextmanager
    async def _stream(self, path: str, params: Headers, last: str) -> AsyncIterator[httpx2.Response]:
        headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
        timeout = httpx2.Timeout(self._timeout, read=STREAM_TIMEOUT_SECONDS)
        async with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as answer:
            if not answer.is_success:
                await answer.aread()
                raise error_of(answer, self.url)
            yield answer
