"""A wire to a server that can be cut, at once or when certain bytes pass; that can go silent, be slow, and come back.

async with Proxy.to(url) as proxy:
    store = await PostgresStore.open(proxy.url, ...)
    proxy.cut_at(b"COMMIT", after=True)      # the server hears it and answers; the client never learns
    proxy.swallow(answers=True)              # the client is heard, and hears nothing
    await proxy.go_away()                    # connections are cut, and new ones refused
    await proxy.come_back()
"""

import asyncio
import contextlib
import random
import ssl
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
        self._server: asyncio.Server | None = None
        self._port = 0
        self._certificate: tuple[str, str] | None = None
        self._swallowed = {"requests": False, "answers": False}
        self._delay, self._chance = 0.0, random.Random(0)

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, url: str, certificate: tuple[str, str] | None = None) -> AsyncIterator["Proxy"]:
        """`certificate`: a key and a certificate, with which it speaks TLS to its clients."""
        proxy = cls(url)
        proxy._certificate = certificate
        await proxy.come_back()
        user, at, _ = proxy._target.netloc.rpartition("@")
        proxy.url = proxy._target._replace(netloc=f"{user}{at}127.0.0.1:{proxy._port}").geturl()
        try:
            yield proxy
        finally:
            await proxy.go_away()

    async def go_away(self) -> None:
        """Every connection is cut, and no new one is taken."""
        wires = list(self._wires)
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.gather(*wires, return_exceptions=True)

    async def lead_to(self, url: str) -> None:
        """From now on to another server: connections are cut, and come back over there."""
        await self.go_away()
        self._target = urlsplit(url)
        await self.come_back()

    async def come_back(self) -> None:
        """At the same address; and nothing is swallowed or delayed any more."""
        self.swallow(requests=False, answers=False)
        self.delay(0)
        if self._server is None:
            self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port, ssl=self._encryption())
            self._port = self._server.sockets[0].getsockname()[1]

    def _encryption(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        key, certificate = self._certificate
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    def swallow(self, *, requests: bool = False, answers: bool = False) -> None:
        """As a network that is split: connections stay open, also new ones, and what goes that way is lost."""
        self._swallowed = {"requests": requests, "answers": answers}

    def delay(self, most: float, seed: int = 0) -> None:
        """Each piece that passes is held up for so many seconds at most."""
        self._delay, self._chance = most, random.Random(seed)

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
        except (asyncio.CancelledError, OSError):
            pass  # the wire is cut, or nobody is at its other end
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
            await self._pass(data, requests, "requests")

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await server.read(CHUNK):
            if heard.is_set():
                return
            await self._pass(data, answers, "answers")

    async def _pass(self, data: bytes, to: asyncio.StreamWriter, way: str) -> None:
        if self._delay:
            await asyncio.sleep(self._chance.uniform(0, self._delay))
        if not self._swallowed[way]:
            to.write(data)
            await to.drain()
