"""What can stand between a client and a server: a wire that is cut, a proxy that refuses, another server."""

import asyncio
from collections import deque
from urllib.parse import urlsplit

from holdfast.clock import Clock
from tests.servers.proxy import Proxy

REFUSAL = "HTTP/1.1 {status} No\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"


class FaultProxy(Proxy):
    """Refuses as often as it was told to, before anything reaches the server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._refusals: deque[str] = deque()
        self.refused = 0

    def refuse(self, *statuses: int, body: str = "", **headers: object) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._refusals.extend(
            REFUSAL.format(status=status, headers=lines, length=len(body), body=body) for status in statuses
        )
        self.cut()

    def lead_to(self, url: str) -> None:
        """From now on there."""
        self._target = urlsplit(url)
        self.cut()

    async def _connect(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        if not self._refusals:
            await super()._connect(client, answers)
            return
        refusal = self._refusals.popleft()
        await client.readuntil(b"\r\n\r\n")
        self.refused += 1
        answers.write(refusal.encode())
        await answers.drain()
        answers.close()


class InstantClock(Clock):
    """Sleeps no longer than a moment, and remembers how long it should have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)

    def block(self, seconds: float) -> None:
        self.slept.append(seconds)
