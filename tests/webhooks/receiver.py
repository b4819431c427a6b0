"""Somebody at the other end: a small HTTP server that keeps what it gets and answers as it is told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass
class Got:
    head: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


Answering = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, body: bytes = b"", **headers: str) -> Answering:
    lines = {"content-length": str(len(body)), **{name.replace("_", "-"): text for name, text in headers.items()}}
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())

    async def write(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + body)

    return write


OK = answer(200)


@dataclass
class Receiver:
    """`answers` are used up one by one; then it is `otherwise`. With `keep_alive` a connection takes many requests."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answers: list[Answering] = field(default_factory=list)
    otherwise: Answering = OK
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    keep_alive: bool = False
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._take(reader, writer)
            while self.keep_alive:
                await self._take(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        got = Got(head, headers, await reader.readexactly(int(headers.get("content-length", 0))))
        self.got.append(got)
        self.arrived.set()
        await (self.answers.pop(0) if self.answers else self.otherwise)(got, writer)
        await writer.drain()

    async def has(self, count: int) -> list[Got]:
        """What came, once so much has."""
        async with asyncio.timeout(60):
            while len(self.got) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.got


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    receiver.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
