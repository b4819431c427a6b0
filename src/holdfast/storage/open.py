"""`open_storage`: opens the storage that a URL names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.clock import Clock
from holdfast.errors import Invalid, InvalidField
from holdfast.ids import Ids
from holdfast.storage.backend import Backend
from holdfast.storage.bucket import Bucket
from holdfast.storage.checks import check_prefix
from holdfast.storage.directory import Directory
from holdfast.storage.objects import Watch
from holdfast.storage.signing import Signer
from holdfast.storage.storage import Storage

REQUEST_SECONDS, RETRIES = 60.0, 5
FORMS = "a directory (a path or file:///PATH), s3://BUCKET/PREFIX?endpoint=URL&region=REGION, or memory://"
OPTIONS = ("endpoint", "region")

_HALF_A_URL = re.compile(r"(s3|memory|file):(?!//)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")


class _S3(NamedTuple):
    bucket: str
    prefix: str
    options: dict[str, str]


def open_storage(
    url: str | os.PathLike[str],
    *,
    access_key_id: str = "",
    secret_access_key: str = "",
    session_token: str = "",
    request_seconds: float = REQUEST_SECONDS,
    retries: int = RETRIES,
    watch: Watch | None = None,
    signer: Signer | None = None,
    base_url: str = "",
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Storage:
    """Does not connect to S3 yet. Missing credentials come from the AWS variables or the instance role. `signer` and
    `base_url`: for signed URLs of backends without presigned URLs."""
    if request_seconds <= 0 or retries < 0:
        raise InvalidField(
            "request_seconds must be more than 0, and retries at least 0",
            field="retries" if retries < 0 else "request_seconds",
        )
    credentials = {
        "access_key_id": access_key_id,
        "secret_access_key": secret_access_key,
        "session_token": session_token,
    }
    backend: Backend
    match _read(url):
        case Path() as path:
            backend = Directory(path, ids or Ids())
        case _S3(bucket, prefix, options):
            config = {name: value for name, value in (credentials | options).items() if value}
            backend = Bucket.in_s3(bucket, prefix, config, request_seconds=request_seconds, retries=retries)
        case None:
            backend = Bucket.in_memory()
    return Storage(backend, clock=clock, watch=watch, signer=signer, base_url=base_url)


def check_storage_url(url: str | os.PathLike[str]) -> None:
    """Raises Invalid for a URL that `open_storage` would reject."""
    _read(url)


def check_shared_storage_url(url: str) -> None:
    """Raises Invalid also for storage that not all processes have: servers, workers and their child processes."""
    check_storage_url(url)
    advice = "use file:///PATH or s3://BUCKET/PREFIX"
    if url.startswith("memory:"):
        raise Invalid(f"unusable storage URL: each process has a memory of its own; {advice}")
    if "://" not in url and not url.startswith("/"):
        raise Invalid(f"unusable storage URL: the path is relative, and depends on where a process starts; {advice}")


def _read(url: str | os.PathLike[str]) -> Path | _S3 | None:
    """None: in memory."""
    url = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(url, str) or _HALF_A_URL.match(url):
        raise _invalid("it is incomplete" if url else "it is empty")
    scheme, found, _ = url.partition("://")
    if not found or scheme == "file":
        return _path(url)
    if url == "memory://":
        return None
    if scheme == "s3":
        return _s3(url)
    raise _invalid(f"{scheme[:20]}:// is not supported")


def _path(url: str) -> Path:
    if "://" not in url:
        path = url
    else:
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            raise _invalid("the URL of a directory is file:///PATH, without a host and without options")
        path = unquote(parts.path)
    if not path.strip() or "\0" in path:
        raise _invalid("the directory has no name")
    return Path(path)


def _s3(url: str) -> _S3:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid("it is malformed") from None
    if "@" in parts.netloc:
        raise _invalid("it must not contain credentials: use the AWS variables, or the arguments")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _invalid("the name of the bucket is 3 to 63 letters, digits, dots, - and _")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise _invalid(f"unknown option {unknown[0][:40]!r}; options are {', '.join(OPTIONS)}")
    if options.get("endpoint") and not _ENDPOINT.fullmatch(options["endpoint"]):
        raise _invalid("an endpoint is http://HOST:PORT or https://HOST:PORT")
    return _S3(parts.netloc, check_prefix(unquote(parts.path).strip("/")), options)


def _invalid(fault: str) -> Invalid:
    """The error does not contain the URL, which may have a secret in it."""
    return Invalid(f"invalid storage URL: {fault}; use {FORMS}", code="invalid_storage_url")
