"""One connection to a NATS server, for as long as it lasts; everything done through it ends in time.

The library's own reconnecting is off: what broke is given up, whoever uses it hears so at once, and the breaker decides
when a server is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from holdfast.dispatch.broker import BrokerError, Missing

if TYPE_CHECKING:
    from nats.aio.client import Client

T = TypeVar("T")

CALL_SECONDS, CLOSE_SECONDS = 1.5, 1.0


class Connection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beside: set[asyncio.Future[None]] = set()

    @classmethod
    async def to(cls, servers: list[str]) -> Connection:
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
        await connection.within(work)
        return connection

    @property
    def lasts(self) -> bool:
        return not self._lost.done()

    async def within(self, work: Coroutine[Any, Any, T], seconds: float = CALL_SECONDS) -> T:
        """Until it is done, the time is up or the connection breaks. A server that said nothing is not asked again."""
        task = asyncio.ensure_future(work)
        ends: set[asyncio.Future[Any]] = {task, self._lost}
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return _result(task)
            raise BrokerError("NATS did not answer in time" if self.lasts else "the connection to NATS broke")
        except BrokerError as error:
            if not isinstance(error, Missing):
                await self.close()
            raise
        finally:
            task.cancel()

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for. It ends with the connection, whose end undoes it anyway."""
        task = asyncio.ensure_future(self._aside(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def close(self) -> None:
        """Gracefully, but not for long: who listens no more need not agree."""
        if self.lasts:
            self._end()
            await asyncio.wait({asyncio.ensure_future(self.client.close())}, timeout=CLOSE_SECONDS)

    async def _closed(self) -> None:
        if self.lasts:
            self._end()

    def _end(self) -> None:
        self._lost.set_result(None)
        for task in self._beside:
            task.cancel()

    async def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        from nats import errors

        with contextlib.suppress(errors.Error, OSError, TimeoutError):  # whoever uses it next finds that out, too
            await work


async def _ignore(error: Exception) -> None:
    pass


def _result(task: asyncio.Future[T]) -> T:
    from nats import errors
    from nats.js.errors import NoStreamResponseError, NotFoundError, ServiceUnavailableError

    try:
        return task.result()
    except (NoStreamResponseError, NotFoundError) as error:
        raise Missing("the stream of hints is not there") from error
    except ServiceUnavailableError as error:
        raise BrokerError("this NATS server has no JetStream; start it with --jetstream") from error
    except (errors.Error, OSError, TimeoutError, asyncio.CancelledError) as error:
        raise BrokerError(f"NATS: {str(error) or type(error).__name__}") from error


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
