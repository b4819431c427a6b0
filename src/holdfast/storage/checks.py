"""What keys, content types and metadata may look like, the same for every kind of storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Invalid

KEY_BYTES_MAX = 1024
METADATA_BYTES_MAX = 2048  # names and values together, as S3 has it
RESERVED = ".holdfast"  # what storage keeps for itself: staged objects, unfinished uploads, descriptions

# Headers of an object: obstore would set these, whatever metadata is meant by them.
_HEADERS = ("cache-control", "content-disposition", "content-encoding", "content-language", "content-type")

_PRINTABLE = re.compile(r"[ -~]*")
_METADATA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def check_key(key: Any, what: str = "key") -> str:
    """The key of an object of the caller's."""
    if fault := _fault(key):
        raise invalid_key(key, fault, what)
    if is_reserved(key):
        raise invalid_key(key, f"{RESERVED}/ is kept for Holdfast itself", what)
    return str(key)


def is_reserved(key: str) -> bool:
    return key.partition("/")[0] == RESERVED


def check_prefix(prefix: str) -> str:
    """The folder of objects to list; all of them if it is empty."""
    return check_key(prefix.removesuffix("/"), "prefix") if prefix else ""


def check_content_type(content_type: str) -> str:
    if not 0 < len(content_type) <= 255 or not _PRINTABLE.fullmatch(content_type):
        raise Invalid(
            f"a content type is 1 to 255 printable ASCII characters, not {content_type[:300]!r}",
            code="invalid_content_type",
        )
    return content_type


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Names in lower case: HTTP, which carries them, does not tell the cases apart."""
    for name, value in metadata.items():
        if name in (*_HEADERS, "storage-class"):
            raise Invalid(f"metadata cannot be named {name!r}: that is a header", code="invalid_metadata")
        if not _METADATA_NAME.fullmatch(name) or not _PRINTABLE.fullmatch(value) or value != value.strip():
            raise Invalid(
                f"metadata {name!r} is not a name of a-z, 0-9 and - with a value of printable ASCII characters",
                code="invalid_metadata",
            )
    if sum(len(name) + len(value) for name, value in metadata.items()) > METADATA_BYTES_MAX:
        raise Invalid(f"the metadata of an object has at most {METADATA_BYTES_MAX} bytes", code="invalid_metadata")
    return metadata


def check_size(key: str, stored: int, promised: int | None) -> None:
    if promised is not None and stored != promised:
        raise Invalid(f"object {key!r} was to have {promised} bytes, and {stored} came", code="invalid_object_size")


def invalid_key(key: Any, fault: str, what: str = "key") -> Invalid:
    shown = repr(key) if len(repr(key)) <= 200 else f"{repr(key)[:200]}..."
    return Invalid(f"{shown} cannot be the {what} of an object: {fault}", code="invalid_object_key")


def _fault(key: Any) -> str:
    if not isinstance(key, str):
        return "it is not text"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not 0 < size <= KEY_BYTES_MAX:
        return f"it has {size} bytes; at least 1 and at most {KEY_BYTES_MAX} are allowed"
    if any(ord(char) < 32 or ord(char) == 127 for char in key):
        return "it has a control character"
    segments = key.split("/")
    if "" in segments:
        return "it begins or ends with a slash, or has two in a row"
    if "." in segments or ".." in segments:
        return "it has a segment . or .."
    return ""
