"""Chunks that come on the event loop, taken by a thread: never more than one of them waits."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator


class ChunkQueue:
    """The thread iterates over it; the event loop gives, and ends it. The caller's own task stays the one that reads
    the source: what an async generator has entered, it leaves in the same task."""

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

    async def give(self, chunk: bytes) -> None:
        await self._wanted.wait()
        self._wanted.clear()
        self._given.put(chunk)

    def end(self, why: BaseException | None = None) -> None:
        """There is no more; with `why`, what there was is not to be kept."""
        self._given.put(why)

    def abandoned(self, _: object) -> None:
        """The thread takes no more: the event loop must not wait for it."""
        self._wanted.set()
