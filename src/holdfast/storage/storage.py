"""`Storage`: put, get, list, copy, delete and sign objects, on any backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Self
from urllib.parse import quote

from holdfast.clock import Clock
from holdfast.errors import Forbidden, Invalid, ObjectNotFound
from holdfast.storage.backend import CONTENT_TYPE, Backend, ObjectInfo
from holdfast.storage.checks import check_key, check_prefix, described, is_reserved
from holdfast.storage.objects import Data, Download, Objects, Watch
from holdfast.storage.signing import Signer, check_terms
from holdfast.storage.staging import Staging

DELETED_AT_ONCE = 1000  # the limit of S3


class Storage:
    """Created by `open_storage`. Every operation may raise StorageUnavailable, after retries."""

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
        """Its URL, without options and secrets."""
        return self._objects.backend.url

    @property
    def bucket(self) -> str:
        """The name in metrics: the bucket, or `directory` or `memory`."""
        return self._objects.backend.name

    @property
    def presigns(self) -> bool:
        """Whether it serves signed URLs itself, as S3 does."""
        return self.url.startswith("s3://")

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
        """Store an object, all of it or nothing. An existing object is replaced. `data`: bytes, a file (a `Path`) or an
        async iterator of bytes.

        `headers`: response headers, such as `{"cache-control": "public, max-age=31536000"}`. `size`: if known; another
        number of bytes is rejected. S3 needs it above 48 GiB.
        """
        return await self._objects.put(check_key(key), data, described(content_type, metadata, headers), size)

    async def get(self, key: str, start: int = 0, end: int | None = None) -> Download:
        """Bytes from `start` to `end`, exclusive; both are clamped to the size."""
        if start < 0 or (end is not None and end < start):
            raise Invalid(f"bytes {start} to {end} are not a valid range", code="invalid_range")
        info = await self._objects.head(check_key(key))
        end = info.size if end is None else min(end, info.size)
        return Download(self._objects, info, min(start, end), end)

    async def read(self, key: str) -> bytes:
        """The whole content of a small object."""
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
        """Raise if the storage is unreachable, denies access, or has no such bucket. For `head` and `get`, a missing
        bucket looks like a missing object."""
        async for _ in self._objects.list(""):
            return

    async def copy(self, source: str, target: str) -> None:
        """With content type, metadata and headers. An existing object is replaced."""
        await self._objects.copy(check_key(source), check_key(target))

    async def delete(self, *keys: str) -> None:
        """Missing objects are ignored."""
        await self._objects.delete([check_key(key) for key in keys])

    async def delete_folder(self, folder: str) -> int:
        """Delete all objects below a folder; returns their number. Objects that are put meanwhile may remain."""
        count, some = 0, []
        async for info in self._objects.list(check_key(folder.removesuffix("/"), "folder")):
            some.append(info.key)
            if len(some) == DELETED_AT_ONCE:
                await self._objects.delete(some)
                count, some = count + len(some), []
        await self.delete(*some)
        return count + len(some)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """The objects below a folder, in no particular order: `videos` has `videos/1.mp4`, not `videos-old/1.mp4`."""
        async for info in self._objects.list(check_prefix(prefix)):
            if not is_reserved(info.key):
                yield info

    async def signed_url(self, method: str, key: str, seconds: int = 3600) -> str:
        """A URL that allows this one operation until it expires. S3 serves it itself; for other backends it points to
        `base_url`, where `SignedFiles` is mounted."""
        check_terms(method, seconds)
        if url := await self._objects.sign(method, check_key(key), seconds):
            return url
        if self._signer is None or not self._base_url:
            raise Invalid(
                f"{self.bucket} storage has no presigned URLs: open it with signer= and base_url=", code="no_signer"
            )
        return f"{self._base_url}/{quote(key)}?token={self._signer.sign(method, key, seconds)}"

    def verify(self, token: str, method: str, key: str) -> None:
        """Forbidden, unless the token is from `signed_url` for this method and key, and has not expired."""
        if self._signer is None:
            raise Forbidden("this storage has no signed URLs", code="invalid_signature")
        self._signer.verify(token, method, key)

    async def close(self) -> None:
        """Running operations end by themselves."""
        await self._objects.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"
