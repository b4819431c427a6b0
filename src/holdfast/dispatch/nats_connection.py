"""One connection to a NATS server; every call has a time limit.

The library's own reconnecting is off: calls fail at once when the connection breaks, and the circuit breaker decides
when to connect again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from holdfast.dispatch.broker import BrokerError, SubscriptionLost

if TYPE_CHECKING:
    from nats.aio.client import Client

T = TypeVar("T")

CALL_SECONDS, CLOSE_SECONDS = 1.5, 1.0


class NatsConnection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_open = True
        self._limits: set[asyncio.Timeout] = set()  # of all active calls
        self._background: set[asyncio.Future[None]] = set()

    @classmethod
    async def to(cls, servers: list[str]) -> NatsConnection:
        """Connect to one of the servers."""
        connection = cls(_client_for(servers))
        work = connection.client.connect(
            servers,
            name="holdfast",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # 0 and -1 mean unlimited
            reconnect_time_wait=0,
            connect_timeout=CALL_SECONDS,  # type: ignore[arg-type]  # a float works
            error_cb=_ignore,  # the failing call raises it, too
            closed_cb=connection._closed,
        )
        try:
            await connection.within(work)
        except asyncio.CancelledError:
            connection._abort()
            raise
        return connection

    async def within(self, work: Awaitable[T], seconds: float = CALL_SECONDS) -> T:
        """Run a call until it is done, times out or the connection breaks. After a failure the connection is closed."""
        try:
            async with asyncio.timeout(seconds) as limit:
                self._limits.add(limit)
                try:
                    return await work
                finally:
                    self._limits.discard(limit)
        except Exception as error:
            translated = self._translated(error)
            if not isinstance(translated, SubscriptionLost):
                await self.close()
            raise translated from error

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task without waiting for it; it is cancelled when the connection closes."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # the next call on the connection fails, too

    async def close(self) -> None:
        """Gracefully, with a short time limit."""
        if self.is_open:
            self._end()
            closing = asyncio.ensure_future(self.client.close())
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
            if not closing.done():
                closing.cancel()
                self._abort()

    def _abort(self) -> None:
        """Abort the socket: the library would wait for a server that does not read."""
        writer = getattr(getattr(self.client, "_transport", None), "_bare_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _closed(self) -> None:
        if self.is_open:
            self._end()

    def _end(self) -> None:
        self.is_open = False
        for limit in self._limits:
            with contextlib.suppress(RuntimeError):  # it has ended already
                limit.reschedule(0)
        for task in self._background:
            task.cancel()

    def _translated(self, error: Exception) -> Exception:
        """NATS errors as `BrokerError`."""
        from nats import errors
        from nats.js.errors import NotFoundError, ServiceUnavailableError

        if isinstance(error, errors.NoRespondersError | NotFoundError):
            return SubscriptionLost("the stream of hints does not exist")
        if isinstance(error, ServiceUnavailableError):
            return BrokerError("this NATS server has no JetStream; start it with --jetstream")
        if isinstance(error, TimeoutError):
            return BrokerError("NATS call timed out" if self.is_open else "connection to NATS lost")
        if isinstance(error, errors.Error | OSError):
            return BrokerError(f"NATS: {error}")
        return error


async def _ignore(error: Exception) -> None:
    pass


def servers_of(url: str) -> list[str]:
    """`nats://HOST:PORT` or `tls://`, several separated by commas. `ValueError` for anything else."""
    servers = [server.strip() for server in url.split(",")]
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.port == 0:
            raise ValueError("it must be nats://HOST:PORT or tls://HOST:PORT")
    return servers


def _client_for(servers: list[str]) -> Client:
    from nats import errors
    from nats.aio.client import Client

    class Encrypted(Client):
        """The library would send the password unencrypted to a server that does not offer TLS."""

        def _connect_command(self) -> bytes:
            if not self._server_info.get("tls_required"):
                raise errors.Error("the URL is tls://, but the server does not offer TLS")
            return super()._connect_command()

    return Encrypted() if any(urlsplit(server).scheme == "tls" for server in servers) else Client()
