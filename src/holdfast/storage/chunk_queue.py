"""Passes chunks from the event loop to a thread, one at a time."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator


class ChunkQueue:
    """The thread iterates over it; the event loop puts chunks and ends it. The caller's task reads the source, because
    an async generator must be left in the task that entered it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._given: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._loop.call_soon_threadsafe(self._wanted.set)
            match self._given.get():
                case None:
                    return
                case BaseException() as error:
                    raise error
                case chunk:
                    yield chunk

    async def put(self, chunk: bytes) -> None:
        await self._wanted.wait()
        self._wanted.clear()
        self._given.put(chunk)

    def end(self, why: BaseException | None = None) -> None:
        """No more chunks; with `why`, the thread raises it and discards the object."""
        self._given.put(why)

    def abandoned(self, _: object) -> None:
        """The thread has ended: stop waiting for it."""
        self._wanted.set()
