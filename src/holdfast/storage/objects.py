"""Async object operations: each runs in a thread, and is reported to the `watch` callback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from holdfast.clock import Clock
from holdfast.errors import ObjectChanged, ObjectNotFound, StorageError, StorageUnavailable
from holdfast.storage.backend import Backend, Description, ObjectInfo
from holdfast.storage.checks import as_bytes, check_size
from holdfast.storage.chunk_queue import ChunkQueue

CHUNK_BYTES = 1 << 20  # each thread may hold one or two of them
CALLS = 8  # threads, besides those of puts: a put that waits for its source must not block reads
PUT_WAIT_SECONDS = 10.0  # for a thread

T = TypeVar("T")
Data = bytes | AsyncIterable[bytes] | Path
# Called on the event loop after each operation, with its name, seconds and error.
Watch = Callable[[str, float, BaseException | None], None]


class Download:
    """The bytes of one version of an object: `async for chunk in download`. Chunks are read on demand, and nothing
    stays open in between; ObjectChanged if the object is replaced meanwhile."""

    def __init__(self, storage: Objects, info: ObjectInfo, start: int, end: int) -> None:
        self._storage = storage
        self.info, self.start, self.end = info, start, end

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(self.start, self.end, CHUNK_BYTES):
            yield await self._storage.read_range(self.info, start, min(start + CHUNK_BYTES, self.end))

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self])

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, which gets its name when it is complete."""
        await self._storage.save(self, Path(path))

    def part(self, start: int, end: int) -> AsyncIterator[bytes]:
        """A range of the whole object, for responses to `Range` requests."""
        return aiter(Download(self._storage, self.info, start, min(end, self.info.size)))


class Objects:
    """The operations without validation of keys, also used for internal objects."""

    def __init__(self, backend: Backend, clock: Clock, watch: Watch | None = None) -> None:
        self.backend, self.clock, self.watch = backend, clock, watch
        self._is_closed = False
        self._calls = ThreadPoolExecutor(CALLS, "holdfast-storage")
        self._puts = ThreadPoolExecutor(backend.puts_at_once, "holdfast-storage-put")

    async def put(self, key: str, data: Data, description: Description, size: int | None = None) -> ObjectInfo:
        with self._watched("put"):
            etag, stored = await self._put(key, data, description, size)
        return ObjectInfo(key, stored, etag, self.clock.now(), *description)

    async def _put(self, key: str, data: Data, description: Description, size: int | None) -> tuple[str, int]:
        if isinstance(data, Path):
            size = (await self._call(data.stat)).st_size if size is None else size
            return await self._put_chunks(key, self._of_file(data), description, size)
        if isinstance(data, AsyncIterable):
            return await self._put_chunks(key, data, description, size)
        whole = as_bytes(data)
        check_size(key, len(whole), size)
        return await self._put_in_thread(key, [whole], description, len(whole)), len(whole)

    async def _put_chunks(
        self, key: str, chunks: AsyncIterable[bytes], description: Description, size: int | None
    ) -> tuple[str, int]:
        queue, stored = ChunkQueue(), 0
        done = asyncio.create_task(self._put_in_thread(key, queue, description, size or 0))
        done.add_done_callback(queue.abandoned)
        try:
            async for given in chunks:
                chunk = as_bytes(given)
                await queue.put(chunk)
                if done.done():
                    break
                stored += len(chunk)
            else:
                check_size(key, stored, size)
        except BaseException as error:
            queue.end(error)
            done.add_done_callback(_consume_error)
            if isinstance(error, Exception):
                await asyncio.wait([done])
            raise
        queue.end()
        return await done, stored

    async def _put_in_thread(self, key: str, chunks: Iterable[bytes], description: Description, size: int) -> str:
        self._check_open()
        started = self._puts.submit(self.backend.put, key, chunks, description, size)
        done = asyncio.wrap_future(started)
        try:
            await asyncio.wait([done], timeout=PUT_WAIT_SECONDS)
        except asyncio.CancelledError:
            done.cancel()
            raise
        if started.cancel():  # no thread has begun with it
            message = f"object storage is busy with {self.backend.puts_at_once} uploads, the most at once; try again"
            raise self._error(message, StorageUnavailable)
        return await done

    async def _of_file(self, path: Path) -> AsyncIterator[bytes]:
        file: BinaryIO = await self._call(path.open, "rb")
        try:
            while chunk := await self._call(file.read, CHUNK_BYTES):
                yield chunk
        finally:
            file.close()

    async def save(self, download: Download, path: Path) -> None:
        unfinished = path.with_name(f"{path.name}.unfinished")
        try:
            with await self._call(unfinished.open, "wb") as file:
                async for chunk in download:
                    await self._call(file.write, chunk)
            await self._call(unfinished.replace, path)
        finally:
            unfinished.unlink(missing_ok=True)

    async def head(self, key: str) -> ObjectInfo:
        with self._watched("head"):
            return await self._call(self.backend.head, key)

    async def read_range(self, info: ObjectInfo, start: int, end: int) -> bytes:
        with self._watched("get"):
            return await self._call(self.backend.read, info.key, start, end, info.etag)

    async def copy(self, source: str, target: str) -> None:
        with self._watched("copy"):
            await self._call(self.backend.copy, source, target)

    async def delete(self, keys: list[str]) -> None:
        if keys:
            with self._watched("delete"):
                await self._call(self.backend.delete, keys)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        batches = self.backend.list(prefix)
        while True:
            with self._watched("list"):
                batch = await self._call(next, batches, None)
            if batch is None:
                return
            for info in batch:
                yield info

    async def sign(self, method: str, key: str, seconds: int) -> str | None:
        return await self._call(self.backend.sign, method, key, seconds)

    async def close(self) -> None:
        self._is_closed = True
        self._calls.shutdown(wait=False)
        self._puts.shutdown(wait=False)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._calls, function, *arguments)

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._error("object storage was closed")

    def _error(self, message: str, kind: type[StorageError] = StorageError) -> StorageError:
        return kind(message, full=f"{self.backend.url}: {message}")

    @contextmanager
    def _watched(self, operation: str) -> Iterator[None]:
        began, error = self.clock.monotonic(), None
        try:
            yield
        except (StorageError, ObjectNotFound, ObjectChanged) as failed:  # other errors are not the storage's
            error = failed
            raise
        finally:
            if self.watch is not None:
                self.watch(operation, self.clock.monotonic() - began, error)


def _consume_error(done: asyncio.Future[str]) -> None:
    """The error was raised already."""
    if not done.cancelled():
        done.exception()
