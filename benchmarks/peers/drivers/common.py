"""What every Python driver shares: the handler's mark, and how a driver says how it enqueues. Runs in a peer's
environment, so it needs nothing but Python."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

URL = os.environ.get("BENCH_URL", "")
LONG = "long"  # the payload of a job that runs until it is killed
LONG_SECONDS = 300.0

_RECORD = struct.Struct("=QQ")
_marks = os.open(os.environ.get("BENCH_MARKS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark() -> None:
    """Called first in every handler: one small append with process id and time, safe for threads and processes."""
    os.write(_marks, _RECORD.pack(os.getpid(), time.monotonic_ns()))


def marked() -> int:
    return os.fstat(_marks).st_size // _RECORD.size


def noop(data: str) -> None:
    mark()
    if data == LONG:
        time.sleep(LONG_SECONDS)


async def async_noop(data: str) -> None:
    mark()
    if data == LONG:
        await asyncio.sleep(LONG_SECONDS)


class Calls(NamedTuple):
    """How this peer enqueues: functions or coroutine functions; `bulk` where the peer has such a call."""

    one: Callable[[str], Any]
    bulk: Callable[[list[str]], Any] | None = None


def ready(one: Callable[[str], Any], bulk: Callable[[list[str]], Any] | None = None) -> Opened:
    """For a peer with nothing to open."""

    @asynccontextmanager
    async def opened(callers: int) -> AsyncIterator[Calls]:
        yield Calls(one, bulk)

    return opened


Opened = Callable[[int], AbstractAsyncContextManager[Calls]]  # given the number of concurrent callers
