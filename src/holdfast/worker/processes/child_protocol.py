"""What a worker and its child process say to each other: JSON over a socket, each message behind its length."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.model import Lease, Part
from holdfast.model.reports import Withdrawal, Withdrawn
from holdfast.observe.logs import Logs

FROM_CHILD_BYTES_MAX = 1 << 20  # what a handler makes must not fill the worker's memory
FROM_WORKER_BYTES_MAX = 1 << 26  # a thousand parts with all their data

_T = TypeVar("_T", bound=msgspec.Struct)
_LENGTH = struct.Struct(">I")


class Open(msgspec.Struct, frozen=True, tag="open"):
    """The first message: where to look for modules, and the settings that the worker itself was started with.

    `logs`: how to log, where the worker is a process of ours.
    """

    path: list[str]
    settings: dict[str, Any] | None = None
    logs: Logs | None = None
    database: bool = True  # whether handlers may open the app's own


class RunJob(msgspec.Struct, frozen=True, tag="run"):
    lease: Lease


class ContextFlag(StrEnum):
    """The flag of the context that it sets."""

    CANCEL = "cancel_requested"
    LOSE = "lost"
    STOPPING = "stopping"


class SetFlag(msgspec.Struct, frozen=True, tag="tell"):
    word: ContextFlag


class Refusal(msgspec.Struct, frozen=True):
    """An error of the worker's side, to be raised in the handler. `kind` is its class in `holdfast.errors`."""

    kind: str
    code: str
    message: str


class CallResult(msgspec.Struct, frozen=True, tag="answer"):
    number: int
    parts: list[Part] = []
    withdrawn: Withdrawn | None = None
    refusal: Refusal | None = None


class ChildReady(msgspec.Struct, frozen=True, tag="ready"):
    rss_bytes: int


class StartFailed(msgspec.Struct, frozen=True, tag="unready"):
    reason: str
    traceback: str


class ReportProgress(msgspec.Struct, frozen=True, tag="report"):
    """A `Progress`, read in two steps: one that is malformed is refused, and nothing else happens."""

    number: int
    rss_bytes: int
    progress: msgspec.Raw


class GetParts(msgspec.Struct, frozen=True, tag="ask"):
    """For the parts of the job."""

    number: int
    rss_bytes: int
    job_id: str


class Withdraw(msgspec.Struct, frozen=True, tag="withdraw"):
    number: int
    rss_bytes: int
    asked: Withdrawal


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The handler has completed the job in a transaction of its own; the `Recorded` of that."""

    number: int
    rss_bytes: int
    outcome: msgspec.Raw


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """An `Outcome`, likewise read in two steps, and for how long the handler ran."""

    rss_bytes: int
    outcome: msgspec.Raw
    seconds: float


class MetricsUpdate(msgspec.Struct, frozen=True, tag="counted"):
    """What the app's metrics have counted in the child since the last time: a snapshot, likewise read in two steps."""

    metrics: msgspec.Raw


FromWorker = Open | RunJob | SetFlag | CallResult
FromChild = ChildReady | StartFailed | ReportProgress | GetParts | Withdraw | Done | MetricsUpdate | Ended
pack = msgspec.json.Encoder().encode


class MalformedMessage(Exception):
    """The other side sent something that is no message."""


class Channel(Generic[_T]):
    """One end of the socket; `_T` is what comes in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Any, bytes_max: int) -> None:
        self._reader, self._writer, self._bytes_max = reader, writer, bytes_max
        self._decoder: msgspec.json.Decoder[_T] = msgspec.json.Decoder(kind)

    async def receive(self) -> _T | None:
        """The next message; None when there will be none."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > self._bytes_max:
                raise MalformedMessage(f"a message of {length} bytes; at most {self._bytes_max} are read")
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except msgspec.DecodeError as error:
            raise MalformedMessage(str(error)) from error

    def post(self, message: msgspec.Struct) -> None:
        """Send without waiting for room: for what is small and rare."""
        frame = pack(message)
        self._writer.write(_LENGTH.pack(len(frame)) + frame)

    async def send(self, message: msgspec.Struct) -> None:
        self.post(message)
        with contextlib.suppress(ConnectionError):  # the reader will find out
            await self._writer.drain()

    def finish(self) -> None:
        """Nothing more will be sent: the polite way to end a child."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


async def to_child(sock: socket.socket) -> Channel[Any]:
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    return Channel(reader, writer, FromChild, FROM_CHILD_BYTES_MAX)


async def to_worker(sock: socket.socket) -> Channel[Any]:
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    return Channel(reader, writer, FromWorker, FROM_WORKER_BYTES_MAX)
