"""`Storage`: put, get, list, copy, delete and sign objects, whatever keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Self
from urllib.parse import quote

from holdfast.clock import Clock
from holdfast.errors import Forbidden, Invalid, ObjectNotFound
from holdfast.storage.backend import CONTENT_TYPE, Backend, ObjectInfo
from holdfast.storage.checks import check_key, check_prefix, described, is_reserved
from holdfast.storage.objects import Data, Download, Objects, Watch
from holdfast.storage.signing import Signer, check_terms
from holdfast.storage.staging import Staging

DELETED_AT_ONCE = 1000  # more than that S3 does not take


class Storage:
    """Made by `open_storage`. Every operation may raise StorageUnavailable; it was tried more than once then."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock | None = None,
        watch: Watch | None = None,
        signer: Signer | None = None,
        base_url: str = "",
    ) -> None:
        self._objects = Objects(backend, clock or Clock(), watch)
        self._signer, self._base_url = signer, base_url.removesuffix("/")
        self._staging = Staging(self._objects)
        self.staging = self._staging.attempt
        self.stale_staging, self.sweep = self._staging.stale, self._staging.sweep

    @property
    def url(self) -> str:
        """What it was opened with, without options and secrets."""
        return self._objects.backend.url

    @property
    def bucket(self) -> str:
        """Its name in metrics: the bucket, or `directory` or `memory`."""
        return self._objects.backend.name

    @property
    def watch(self) -> Watch | None:
        return self._objects.watch

    @watch.setter
    def watch(self, watch: Watch | None) -> None:
        self._objects.watch = watch

    async def put(
        self,
        key: str,
        data: Data,
        *,
        content_type: str = CONTENT_TYPE,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        size: int | None = None,
    ) -> ObjectInfo:
        """Store it under this key: all of it, or nothing. An object that is there is replaced. `data`: bytes, a file
        (a `Path`) or an async iterator of bytes.

        `headers`: to serve it with, such as `{"cache-control": "public, max-age=31536000"}`. `size`: if it is known.
        Fewer or more bytes than that are refused; beyond 48 GiB, S3 has to know it.
        """
        return await self._objects.put(check_key(key), data, described(content_type, metadata, headers), size)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> Download:
        """From byte `start` up to, without, byte `end`; both are cut to what there is."""
        if start < 0 or (end is not None and end < start):
            raise Invalid(f"bytes {start} to {end} are no range of an object", code="invalid_range")
        info = await self._objects.head(check_key(key))
        end = info.size if end is None else min(end, info.size)
        return Download(self._objects, info, min(start, end), end)

    async def read(self, key: str) -> bytes:
        """All of a small object."""
        return await (await self.get(key)).read()

    async def head(self, key: str) -> ObjectInfo:
        return await self._objects.head(check_key(key))

    async def exists(self, key: str) -> bool:
        try:
            await self.head(key)
        except ObjectNotFound:
            return False
        return True

    async def check(self) -> None:
        """Raises what is wrong with the storage itself: no answer, the credentials are refused, there is no such
        bucket. To `head` and `get` a bucket that is missing looks like an object that is."""
        async for _ in self._objects.list(""):
            return

    async def copy(self, source: str, target: str) -> None:
        """With its content type, metadata and headers. An object that is there is replaced."""
        await self._objects.copy(check_key(source), check_key(target))

    async def delete(self, *keys: str) -> None:
        """Those that do not exist are no error."""
        if keys:
            await self._objects.delete([check_key(key) for key in keys])

    async def delete_folder(self, folder: str) -> int:
        """All objects below it, as `list` finds them; how many. What is put there meanwhile may stay."""
        count, some = 0, []
        async for info in self._objects.list(check_key(folder.removesuffix("/"), "folder")):
            some.append(info.key)
            if len(some) == DELETED_AT_ONCE:
                await self._objects.delete(some)
                count, some = count + len(some), []
        await self.delete(*some)
        return count + len(some)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """What is below this folder, in no certain order: `videos` has `videos/1.mp4`, not `videos-old/1.mp4`."""
        async for info in self._objects.list(check_prefix(prefix)):
            if not is_reserved(info.key):
                yield info

    async def signed_url(self, method: str, key: str, seconds: int = 3600) -> str:
        """A URL that lets anyone who has it do this, and nothing else, for so long. S3 answers it by itself; of other
        storage it leads to `base_url`, where `SignedFiles` is mounted."""
        check_terms(method, seconds)
        if url := await self._objects.sign(method, check_key(key), seconds):
            return url
        if self._signer is None or not self._base_url:
            raise Invalid(
                f"{self.bucket} storage signs no URLs by itself: open it with signer= and base_url=", code="no_signer"
            )
        return f"{self._base_url}/{quote(key)}?token={self._signer.sign(method, key, seconds)}"

    def verify(self, token: str, method: str, key: str) -> None:
        """Forbidden, unless `signed_url` of this storage made the token for this method and this key, and it holds."""
        if self._signer is None:
            raise Forbidden("there are no signed URLs here", code="invalid_signature")
        self._signer.verify(token, method, key)

    async def close(self) -> None:
        """What still runs ends by itself."""
        await self._objects.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"
