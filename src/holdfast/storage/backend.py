"""The seam between `Storage` and a kind of storage. A backend blocks: `Storage` calls it from threads of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

CONTENT_TYPE = "application/octet-stream"  # of an object that was stored without one


@dataclass(frozen=True)
class Description:
    """What is stored with the bytes of an object."""

    content_type: str = CONTENT_TYPE
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


UNKNOWN = Description("")  # of an object in a listing


@dataclass(frozen=True)
class ObjectInfo:
    """What is known of an object besides its bytes. `etag` is as HTTP writes it, with its quotes; it changes with the
    bytes. `headers`: of those that it is served with, the ones it was put with, in lower case. A listing knows neither
    content type, metadata nor headers: they are empty there."""

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
    """Keys are checked before they come here. `name`: the bucket, as metrics show it. `url`: without any secret."""

    name: str
    url: str

    def head(self, key: str) -> ObjectInfo: ...

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """From `start` up to, without, `end`; ObjectChanged if it is not the object with this etag any more."""
        ...

    def put(self, key: str, chunks: Iterable[bytes], description: Description, size: int) -> str:
        """All chunks or nothing; the etag. `size`: how many bytes it will be, at least; 0 if that is not known."""
        ...

    def copy(self, source: str, target: str) -> None: ...

    def delete(self, keys: list[str]) -> None:
        """Those that are missing are deleted already."""
        ...

    def list(self, prefix: str) -> Iterator[list[ObjectInfo]]:
        """What is below this folder, some at a time, in no certain order."""
        ...

    def sign(self, method: str, key: str, seconds: int) -> str | None:
        """A URL that carries the permission; None if this kind of storage has none of its own."""
        ...
