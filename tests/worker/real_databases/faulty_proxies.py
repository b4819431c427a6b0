"""Proxies with faults beyond `Proxy`: stays disconnected, stops forwarding, acts as a pooler, or counts."""

import asyncio
import struct

from tests.servers.proxy import CHUNK, Proxy

BACKEND_KEY = b"K" + struct.pack("!i", 12)  # how the message begins in which a server names its process
READY = b"Z" + struct.pack("!i", 5) + b"I"  # what a server says when a transaction is over


class RefusingProxy(Proxy):
    """After the cut, every connection is refused until `restore` is called."""

    is_up = False
    turned_away = 0

    def restore(self) -> None:
        self.is_up = False

    async def _connect(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        if self.is_up:
            self.turned_away += 1
            answers.transport.abort()
        else:
            await super()._connect(client, answers)

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        await super()._to_client(server, answers, heard)
        if heard.is_set():
            self.is_up = True
            self.cut()


class SilentProxy(Proxy):
    """After `silence`, connections that had sent LISTEN drop every byte in both directions and stay open."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._listening: set[asyncio.Event] = set()
        self.listeners = 0

    def silence(self) -> int:
        """How many fell silent."""
        for wire in self._listening:
            wire.set()
        fallen = len(self._listening)
        self._listening.clear()
        return fallen

    async def _to_server(
        self, client: asyncio.StreamReader, requests: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await client.read(CHUNK):
            if b"LISTEN" in data and heard not in self._listening:
                self.listeners += 1
                self._listening.add(heard)
            if not heard.is_set():
                requests.write(data)
                await requests.drain()

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await server.read(CHUNK):
            if not heard.is_set():
                answers.write(data)
                await answers.drain()


class PoolerProxy(Proxy):
    """Announces the process id of another backend, as a pooler does."""

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        greeted = False
        while data := await server.read(CHUNK):
            greeting, key, rest = data.partition(BACKEND_KEY)
            if key and not greeted:
                greeted, data = True, greeting + key + struct.pack("!i", 1) + rest[4:]
            answers.write(data)
            await answers.drain()


class CountingProxy(Proxy):
    transactions = 0

    async def _to_client(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, heard: asyncio.Event
    ) -> None:
        while data := await server.read(CHUNK):
            self.transactions += data.count(READY)
            answers.write(data)
            await answers.drain()
