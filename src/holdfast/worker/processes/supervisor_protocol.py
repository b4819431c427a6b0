"""The protocol between the supervisor and its worker processes: lines over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.observe.extension_metrics import MetricDeclaration

STOP, NOW, READY, STATUS = b"stop\n", b"now\n", b"ready\n", b"status\n"
STATUS_BYTES_MAX = 1 << 26
RESPONSE_SECONDS = 1.0  # for a process to report its status


class ProcessStatus(msgspec.Struct, frozen=True):
    """The status of a worker process. `polled`: when it last claimed, on the monotonic clock of the machine."""

    polled: float
    stopping: bool
    metrics: msgspec.Raw  # a snapshot
    families: list[MetricDeclaration] = []  # those of its metrics that extensions declare
    complaint: str | None = None  # why it is not ready: a background loop that fails


class SupervisorLink:
    """The supervisor's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.begun = False  # it can claim jobs
        self.status: ProcessStatus | None = None  # the last one
        self._requested = False
        self._received = asyncio.Event()

    @classmethod
    async def open(cls, sock: socket.socket) -> SupervisorLink:
        return cls(*await asyncio.open_unix_connection(sock=sock, limit=STATUS_BYTES_MAX))

    def say(self, word: bytes) -> None:
        self._writer.write(word)

    async def listen(self) -> None:
        """Until the process ends. Its first line says that it is ready."""
        with contextlib.suppress(
            OSError, ValueError, msgspec.DecodeError
        ):  # a process that is killed may send half a line
            self.begun = await self._reader.readline() == READY
            while line := await self._reader.readline():
                self.status = msgspec.json.decode(line, type=ProcessStatus)
                self._requested = False
                self._received.set()

    async def ask(self) -> None:
        """Ask for its status; if the response takes too long, the last one is kept."""
        if not self._requested:  # not again before it has responded
            self._requested = True
            self._received.clear()
            self.say(STATUS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_SECONDS):
                await self._received.wait()

    def close(self) -> None:
        self._writer.close()


class StatusResponder:
    """The worker's end: sends the status when asked, and when the process ends."""

    def __init__(self, line: socket.socket, status: Callable[[], Awaitable[ProcessStatus]]) -> None:
        self._line, self._status = line, status
        self._lock = asyncio.Lock()
        self._response: asyncio.Task[None] | None = None

    def requested(self) -> None:
        self._response = asyncio.ensure_future(self._send())

    async def send_last(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESPONSE_SECONDS):
                await self._send()

    async def _send(self) -> None:
        async with self._lock:
            words = msgspec.json.encode(await self._status()) + b"\n"
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(self._line, words)
