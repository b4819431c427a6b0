"""What the parent of worker processes and each of them say to each other over the socket between them, in lines."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.observe.extension_metrics import MetricDeclaration

STOP, NOW, READY, TELL = b"stop\n", b"now\n", b"ready\n", b"tell\n"
TOLD_BYTES_MAX = 1 << 26
ANSWER_SECONDS = 1.0  # for a process to say how it is


class ProcessStatus(msgspec.Struct, frozen=True):
    """How a worker process is. `polled`: when it last could have found work, on the clock of the whole machine."""

    polled: float
    stopping: bool
    figures: msgspec.Raw  # a snapshot of its metrics
    families: list[MetricDeclaration] = []  # those of its metrics that extensions declare
    complaint: str | None = None  # about the loops that run beside its work


class SupervisorLink:
    """The parent's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.begun = False  # it can claim jobs
        self.told: ProcessStatus | None = None  # what it said last
        self._asked = False
        self._answered = asyncio.Event()

    @classmethod
    async def open(cls, sock: socket.socket) -> SupervisorLink:
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=TOLD_BYTES_MAX))

    def say(self, word: bytes) -> None:
        self._writer.write(word)

    async def listen(self) -> None:
        """To the end. The first thing it says is that it is ready."""
        with contextlib.suppress(OSError, ValueError, msgspec.DecodeError):  # one that is killed says half a line
            self.begun = await self._reader.readline() == READY
            while line := await self._reader.readline():
                self.told = msgspec.json.decode(line, type=ProcessStatus)
                self._asked = False
                self._answered.set()

    async def ask(self) -> None:
        """How it is; if its answer takes long, how it was has to do."""
        if not self._asked:  # one that is too busy to answer is not asked again until it has
            self._asked = True
            self._answered.clear()
            self.say(TELL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._answered.wait()

    def close(self) -> None:
        self._writer.close()


class StatusResponder:
    """The worker's end: it says how it is when it is asked, and when it ends."""

    def __init__(self, line: socket.socket, tell: Callable[[], Awaitable[ProcessStatus]]) -> None:
        self._line, self._tell = line, tell
        self._turn = asyncio.Lock()
        self._answer: asyncio.Task[None] | None = None

    def asked(self) -> None:
        self._answer = asyncio.ensure_future(self._say())

    async def last_words(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._say()

    async def _say(self) -> None:
        async with self._turn:
            words = msgspec.json.encode(await self._tell()) + b"\n"
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(self._line, words)
