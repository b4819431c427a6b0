"""The S3 and in-memory backends, through obstore.

Only its blocking functions are used. Its async ones resolve futures from their own threads, which aborts a process that
exits at that moment.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any

from holdfast.errors import (
    Invalid,
    ObjectChanged,
    ObjectNotFound,
    StorageDenied,
    StorageError,
    StorageThrottled,
    StorageUnavailable,
)
from holdfast.storage.backend import CONTENT_TYPE, Description, ObjectInfo
from holdfast.storage.checks import HEADERS, invalid_key

PART_BYTES = 5 << 20  # the minimum of S3, except for the last part
PARTS_MAX = 10_000
COPY_BYTES_MAX = 5 << 30  # the limit of a server-side copy in S3
READ_BYTES = 4 << 20
BATCH = 1000
CONNECT_SECONDS = 5

_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_NO_BUCKET = "NoSuchBucket"
_METADATA_SERVICE = "/latest/api/token"  # the instance metadata service of AWS
_THROTTLED = ("429", "SlowDown", "TooManyRequests", "RequestLimitExceeded")
_STATUS = re.compile(r"status code: (\d{3})")


def obstore() -> Any:
    try:
        import obstore as found
        import obstore.store as _  # noqa: F401
    except ImportError:
        raise Invalid(
            "object storage in S3 or in memory needs a library that is not installed: pip install 'holdfast[storage]'",
            code="extra_missing",
        ) from None
    return found


class Bucket:
    puts_at_once = 128  # measured: 5.3 MiB each, when it has a whole part

    def __init__(self, store: Any, name: str, url: str) -> None:
        self._obstore, self._store = obstore(), store
        self.name, self.url = name, url

    @classmethod
    def in_memory(cls) -> Bucket:
        return cls(obstore().store.MemoryStore(), "memory", "memory://")

    @classmethod
    def in_s3(
        cls, bucket: str, prefix: str, config: Mapping[str, str], *, request_seconds: float, retries: int
    ) -> Bucket:
        """What `config` leaves out comes from the AWS variables or the instance role."""
        store = obstore().store.S3Store(
            bucket,
            prefix=prefix or None,
            config=dict(config),
            client_options={
                "allow_http": not config.get("endpoint", "").startswith("https://"),  # AWS_ENDPOINT_URL may name one
                "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, request_seconds)),
                "timeout": timedelta(seconds=request_seconds),
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=request_seconds),
                "backoff": {"max_backoff": timedelta(seconds=min(5.0, request_seconds))},
            },
        )
        return cls(store, bucket, f"s3://{bucket}/{prefix}".removesuffix("/"))

    def head(self, key: str) -> ObjectInfo:
        with self._translated_errors(key):
            found = self._obstore.get(self._store, key, options={"head": True})
            return _info(found.meta, _description(found.attributes))

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        if start >= end:
            return b""
        with self._translated_errors(key):
            options = {"range": (start, end), "if_match": etag}
            return bytes(self._obstore.get(self._store, key, options=options).bytes())

    def put(self, key: str, chunks: Iterable[bytes], description: Description, size: int) -> str:
        """One request for a small object; else a multipart upload, one part at a time."""
        chunks = iter(chunks)
        first, size_of_first = _first_part(chunks)
        attributes = {
            **description.metadata,
            **{name.title(): value for name, value in description.headers.items()},
            "Content-Type": description.content_type,
        }
        with self._translated_errors(key):
            if size_of_first < PART_BYTES:
                done = self._obstore.put(self._store, key, b"".join(first), attributes=attributes, use_multipart=False)
            else:
                done = self._obstore.put(
                    self._store,
                    key,
                    chain(_taken_from(first), chunks),
                    attributes=attributes,
                    use_multipart=True,
                    chunk_size=max(PART_BYTES, -(-size // PARTS_MAX)),
                    max_concurrency=1,
                )
            return str(done["e_tag"] or "")

    def copy(self, source: str, target: str) -> None:
        info = self.head(source)
        if info.size > COPY_BYTES_MAX:
            self.put(target, self._chunks(info), info.description, info.size)
        elif source != target:  # S3 rejects a copy onto itself
            self._copy(source, target)

    def _copy(self, source: str, target: str) -> None:
        with self._translated_errors(source):
            self._obstore.copy(self._store, source, target)

    def delete(self, keys: list[str]) -> None:
        with contextlib.suppress(ObjectNotFound), self._translated_errors(keys[0]):
            self._obstore.delete(self._store, keys)

    def list(self, prefix: str) -> Iterator[list[ObjectInfo]]:
        with self._translated_errors(prefix):
            for batch in self._obstore.list(self._store, prefix or None, chunk_size=BATCH):
                yield [_info(meta) for meta in batch]

    def sign(self, method: str, key: str, seconds: int) -> str | None:
        if self.name == "memory":
            return None
        with self._translated_errors(key):
            return str(self._obstore.sign(self._store, method, key, timedelta(seconds=seconds)))

    def _chunks(self, info: ObjectInfo) -> Iterator[bytes]:
        for start in range(0, info.size, READ_BYTES):
            yield self.read(info.key, start, min(start + READ_BYTES, info.size), info.etag)

    @contextlib.contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        """Maps obstore's errors. Their texts quote requests and responses, which may contain secrets: only the status
        and the S3 code are used."""
        errors = self._obstore.exceptions
        try:
            yield
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                raise _storage_error(self.url, error, errors) from None
            raise ObjectNotFound(f"object {key!r} does not exist", key=key) from None
        except errors.PreconditionError:
            raise ObjectChanged(f"object {key!r} was replaced while it was read; read it again", key=key) from None
        except (errors.BaseError, ValueError, OSError) as error:
            if "KeyTooLong" in str(error):
                raise invalid_key(key, "with the prefix of the storage it is too long for S3 (1024 bytes)") from None
            raise _storage_error(self.url, error, errors) from None


def _storage_error(url: str, error: Exception, errors: Any) -> StorageError:
    text = str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    words = " ".join(found[1] for found in (status, code) if found)
    kind, message, detail = StorageError, "object storage failed", f" ({words})"
    if isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError) or words[:3] in ("401", "403"):
        kind, message = StorageDenied, "object storage denied the request"
        detail = f"; check credentials and policy ({words})"
    elif _NO_BUCKET in text:
        message, detail = "object storage has no such bucket", ""
    elif _METADATA_SERVICE in text:
        kind, message = StorageDenied, "object storage has no credentials"
        detail = ": none are configured, and this machine has no instance role"
    elif any(word in words for word in _THROTTLED):
        kind, message = StorageThrottled, "object storage asks for fewer requests; try again later"
    elif status is None or words[0] == "5" or words[:3] == "408":
        kind, message = StorageUnavailable, "object storage is unreachable or failed; try again"
        detail = f" ({words or 'no response'})"
    return kind(message, full=f"{url}: {message}{detail}")


def _first_part(chunks: Iterator[bytes]) -> tuple[deque[bytes], int]:
    """Read until it is known whether one request is enough."""
    first, size = deque[bytes](), 0
    for chunk in chunks:
        first.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            break
    return first, size


def _taken_from(chunks: deque[bytes]) -> Iterator[bytes]:
    """Release each chunk after it is sent."""
    while chunks:
        yield chunks.popleft()


def _description(attributes: Mapping[str, str]) -> Description:
    metadata = dict(attributes)
    content_type = metadata.pop("Content-Type", CONTENT_TYPE)
    headers = {name: metadata.pop(name.title()) for name in HEADERS if name.title() in metadata}
    return Description(content_type, metadata, headers)


def _info(meta: Mapping[str, Any], description: Description | tuple[()] = ()) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", meta["last_modified"], *description)
