"""The protocol of storage backends. Backends block: `Storage` calls them from a thread pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

CONTENT_TYPE = "application/octet-stream"  # of an object that was stored without one


class Description(NamedTuple):
    """Content type, metadata and headers of an object."""

    content_type: str = CONTENT_TYPE
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}


@dataclass(frozen=True)
class ObjectInfo:
    """An object without its bytes. `etag` is quoted as in HTTP, and changes with the bytes. `headers`: the headers it
    was put with, in lower case. Content type, metadata and headers are empty in a listing."""

    key: str
    size: int
    etag: str
    modified: datetime
    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def description(self) -> Description:
        return Description(self.content_type, self.metadata, self.headers)


class Backend(Protocol):
    """Keys are validated already. `name`: the bucket in metrics. `url`: without secrets. `puts_at_once`: each has
    a thread, also while it waits for its source."""

    name: str
    url: str
    puts_at_once: int

    def head(self, key: str) -> ObjectInfo: ...

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Bytes from `start` to `end`, exclusive; ObjectChanged if the etag differs."""
        ...

    def put(self, key: str, chunks: Iterable[bytes], description: Description, size: int) -> str:
        """All chunks or nothing; returns the etag. `size`: a lower bound of the number of bytes; 0 if unknown."""
        ...

    def copy(self, source: str, target: str) -> None: ...

    def delete(self, keys: list[str]) -> None:
        """Missing objects are ignored."""
        ...

    def list(self, prefix: str) -> Iterator[list[ObjectInfo]]:
        """The objects below this folder, in batches, in no particular order."""
        ...

    def sign(self, method: str, key: str, seconds: int) -> str | None:
        """A presigned URL; None if the backend has none."""
        ...
