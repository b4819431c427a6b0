"""One connection to a NATS server, for as long as it lasts; everything done through it ends in time.

The library's own reconnecting is off: what broke is given up, whoever uses it hears so at once, and the breaker decides
when a server is tried again.
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
        self.lasts = True
        self._limits: set[asyncio.Timeout] = set()  # of all calls that are under way
        self._beside: set[asyncio.Future[None]] = set()

    @classmethod
    async def to(cls, servers: list[str]) -> NatsConnection:
        """To one of them."""
        connection = cls(_client_for(servers))
        work = connection.client.connect(
            servers,
            name="holdfast",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # 0 and -1 would mean for ever
            reconnect_time_wait=0,
            connect_timeout=CALL_SECONDS,  # type: ignore[arg-type]  # any number will do
            error_cb=_ignore,  # the call that fails says it, too
            closed_cb=connection._closed,
        )
        try:
            await connection.within(work)
        except asyncio.CancelledError:
            connection._hang_up()
            raise
        return connection

    async def within(self, work: Awaitable[T], seconds: float = CALL_SECONDS) -> T:
        """Until it is done, the time is up or the connection breaks. One that failed us is not used again."""
        try:
            async with asyncio.timeout(seconds) as limit:
                self._limits.add(limit)
                try:
                    return await work
                finally:
                    self._limits.discard(limit)
        except Exception as error:
            said = self._told(error)
            if not isinstance(said, SubscriptionLost):
                await self.close()
            raise said from error

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for. It ends with the connection, whose end undoes it anyway."""
        task = asyncio.ensure_future(work)
        self._beside.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled():
            task.exception()  # whoever uses the connection next finds that out, too

    async def close(self) -> None:
        """Gracefully, but not for long: who listens no more need not agree."""
        if self.lasts:
            self._end()
            closing = asyncio.ensure_future(self.client.close())
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
            if not closing.done():
                closing.cancel()
                self._hang_up()

    def _hang_up(self) -> None:
        """The library waits for a server that does not read: its socket would stay open until somebody tidies up."""
        writer = getattr(getattr(self.client, "_transport", None), "_bare_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _closed(self) -> None:
        if self.lasts:
            self._end()

    def _end(self) -> None:
        self.lasts = False
        for limit in self._limits:
            with contextlib.suppress(RuntimeError):  # it is over already
                limit.reschedule(0)
        for task in self._beside:
            task.cancel()

    def _told(self, error: Exception) -> Exception:
        """As an error of ours, if it is one of theirs."""
        from nats import errors
        from nats.js.errors import NotFoundError, ServiceUnavailableError

        if isinstance(error, errors.NoRespondersError | NotFoundError):
            return SubscriptionLost("the stream of hints is not there")
        if isinstance(error, ServiceUnavailableError):
            return BrokerError("this NATS server has no JetStream; start it with --jetstream")
        if isinstance(error, TimeoutError):
            return BrokerError("NATS did not answer in time" if self.lasts else "the connection to NATS broke")
        if isinstance(error, errors.Error | OSError):
            return BrokerError(f"NATS: {error}")
        return error


async def _ignore(error: Exception) -> None:
    pass


def servers_of(url: str) -> list[str]:
    """`nats://HOST:PORT` or `tls://`, several with commas between them. `ValueError` for anything else."""
    servers = [server.strip() for server in url.split(",")]
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.port == 0:
            raise ValueError("it takes nats://HOST:PORT or tls://HOST:PORT")
    return servers


def _client_for(servers: list[str]) -> Client:
    from nats import errors
    from nats.aio.client import Client

    class Encrypted(Client):
        """The library would speak in the clear, password and all, with a server that does not offer TLS."""

        def _connect_command(self) -> bytes:
            if not self._server_info.get("tls_required"):
                raise errors.Error("tls:// was asked for, and the server does not speak TLS")
            return super()._connect_command()

    return Encrypted() if any(urlsplit(server).scheme == "tls" for server in servers) else Client()
