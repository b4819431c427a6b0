"""Validates keys, content types, headers and metadata, the same for every backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Invalid, InvalidField
from holdfast.storage.backend import Description

KEY_BYTES_MAX = 1024
METADATA_BYTES_MAX = 2048  # names and values together, the limit of S3
RESERVED = ".holdfast"  # internal objects: staging, unfinished uploads, descriptions

HEADERS = ("cache-control", "content-disposition", "content-encoding", "content-language")
HEADER_BYTES_MAX = 1024

_PRINTABLE = re.compile(r"[ -~]*")
_METADATA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def check_key(key: Any, what: str = "key") -> str:
    """The key of a user's object."""
    if fault := _fault(key):
        raise invalid_key(key, fault, what)
    if is_reserved(key):
        raise invalid_key(key, f"{RESERVED}/ is reserved", what)
    return str(key)


def is_reserved(key: str) -> bool:
    return key.partition("/")[0] == RESERVED


def check_prefix(prefix: str) -> str:
    """The folder to list; empty: everything."""
    return check_key(prefix.removesuffix("/"), "prefix") if prefix else ""


def described(content_type: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None) -> Description:
    return Description(_content_type(content_type), _metadata(metadata or {}), _headers(headers or {}))


def _content_type(content_type: str) -> str:
    if not _is_text(content_type) or not 0 < len(content_type) <= 255:
        raise InvalidField(
            f"a content type is 1 to 255 printable ASCII characters, not {content_type!r:.300}",
            field="content_type",
        )
    return content_type


def _is_text(value: Any) -> bool:
    """Valid as a header value."""
    return isinstance(value, str) and bool(_PRINTABLE.fullmatch(value)) and value == value.strip()


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    given = {str(name).lower(): value for name, value in headers.items()}
    for name, value in given.items():
        if name not in HEADERS:
            raise InvalidField(
                f"an object cannot be served with the header {name[:80]!r}; it can with {', '.join(HEADERS)}",
                field="headers",
            )
        if not _is_text(value) or not 0 < len(value) <= HEADER_BYTES_MAX:
            raise InvalidField(
                f"the header {name} of an object is 1 to {HEADER_BYTES_MAX} printable ASCII characters",
                field="headers",
            )
    return given


def _metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Names must be in lower case: HTTP headers are case-insensitive."""
    for name, value in metadata.items():
        if name in (*HEADERS, "content-type", "storage-class"):  # obstore would set these
            raise InvalidField(f"metadata cannot be named {name!r}: that is a header", field="metadata")
        if not isinstance(name, str) or not _METADATA_NAME.fullmatch(name) or not _is_text(value):
            raise InvalidField(
                f"metadata {name!r} is not a name of a-z, 0-9 and - with a value of printable ASCII characters",
                field="metadata",
            )
    if sum(len(name) + len(value) for name, value in metadata.items()) > METADATA_BYTES_MAX:
        raise InvalidField(f"the metadata of an object has at most {METADATA_BYTES_MAX} bytes", field="metadata")
    return dict(metadata)


def as_bytes(chunk: Any) -> bytes:
    """A chunk of an object, copied if it is mutable."""
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise InvalidField(
            f"an object is made of bytes, of a pathlib.Path or of an async iterator of bytes, not of "
            f"{type(chunk).__name__}",
            field="data",
        )
    return bytes(chunk)


def check_size(key: str, stored: int, promised: int | None) -> None:
    if promised is not None and stored != promised:
        raise Invalid(f"object {key!r} has {stored} bytes instead of {promised}", code="invalid_object_size")


def invalid_key(key: Any, fault: str, what: str = "key") -> Invalid:
    shown = repr(key) if len(repr(key)) <= 200 else f"{repr(key)[:200]}..."
    return Invalid(f"{shown} cannot be the {what} of an object: {fault}", code="invalid_object_key")


def _fault(key: Any) -> str:
    if not isinstance(key, str):
        return "it is not a string"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not 0 < size <= KEY_BYTES_MAX:
        return f"it has {size} bytes; at least 1 and at most {KEY_BYTES_MAX} are allowed"
    if any(ord(char) < 32 or ord(char) == 127 for char in key):
        return "it has a control character"
    if "\\" in key:
        return "it has a backslash, which some stores treat as a slash"
    segments = key.split("/")
    if "" in segments:
        return "it begins or ends with a slash, or has two in a row"
    if "." in segments or ".." in segments:
        return "it has a segment . or .."
    return ""
