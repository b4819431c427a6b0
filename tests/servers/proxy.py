"""A wire to a server that can be cut: at once, or at the moment when certain bytes pass.

async with Proxy.to(url) as proxy:
    store = await PostgresStore.open(proxy.url, ...)
    proxy.cut_at(b"COMMIT", after=True)      # the server hears it and answers; the client never learns
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

CHUNK = 1 << 16


class Proxy:
    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self.url = ""
        self.cuts = 0
        self._marker: bytes | None = None
        self._after = False
        self._wires: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator["Proxy"]:
        proxy = cls(url)
        server = await asyncio.start_server(proxy._connect, "127.0.0.1", 0)
        user = f"{proxy._target.username}@" if proxy._target.username else ""
        port = server.sockets[0].getsockname()[1]
        proxy.url = proxy._target._replace(netloc=f"{user}127.0.0.1:{port}").geturl()
        try:
            yield proxy
        finally:
            server.close()
            proxy.cut()
            await asyncio.gather(*proxy._wires, return_exceptions=True)

    def cut(self) -> None:
        """Every connection, now."""
        for wire in self._wires:
            self.cuts += 1
            wire.cancel()

    async def cut_and_seen(self) -> None:
        """Every connection, and the clients have had time to notice."""
        wires = list(self._wires)
        self.cut()
        await asyncio.gather(*wires, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)

    def cut_at(self, marker: bytes, *, after: bool) -> None:
        """Once, when the client sends these bytes: before the server hears them, or after it has answered."""
        self._marker, self._after = marker, after

    async def _connect(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        wire = asyncio.current_task()
        assert wire
        self._wires.add(wire)
        ends, pumps = [answers], set[asyncio.Task[None]]()
        try:
            server, requests = await asyncio.open_connection(self._target.hostname, self._target.port)
            ends.append(requests)
            heard = asyncio.Event()
            pumps = {
                asyncio.create_task(self._to_server(client, requests, heard)),
                asyncio.create_task(self._to_client(server, answers, heard)),
            }
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the wire is cut
        finally:
            self._wires.discard(wire)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                end.transport.abort()

    async def _to_server(
        self, client: asyncio.StreamReader, requests: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await client.read(CHUNK):
            if self._marker and self._marker in data:
                self._marker = None
                self.cuts += 1
                if not self._after:
                    return
                heard.set()
            requests.write(data)
            await requests.drain()

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await server.read(CHUNK):
            if heard.is_set():
                return
            answers.write(data)
            await answers.drain()
