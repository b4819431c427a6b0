"""UUIDs as text on connections of asyncpg, and arrays of UUIDs and texts in one piece.

asyncpg encodes the items of an array one by one, at up to a microsecond each. Arrays are sent in the binary format of
PostgreSQL: a header, then each item after its length in four bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain
from struct import Struct
from typing import Any
from uuid import UUID

import asyncpg

_UUID, _UUIDS, _TEXT, _TEXTS = 2950, 2951, 25, 1009  # the ids of these types and of their arrays in every PostgreSQL

_HEADER = Struct(">iiIii")  # dimensions, whether it has NULLs, type of the items, their number, index of the first
_EMPTY = Struct(">iiI")
_DIMENSION = Struct(">ii")  # its size, index of the first
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)

_WIDTH = 37  # of a UUID as text, and a comma
_UUID_LENGTH = _LENGTH.pack(16).hex()


async def use_codecs(connection: asyncpg.Connection[Any]) -> None:
    # `set_type_codec` has no codecs of arrays; it ends with the same call.
    settings = connection._protocol.get_settings()  # type: ignore[attr-defined]
    for oid, name, encode, decode in (
        (_UUIDS, "_uuid", encode_uuids, decode_uuids),
        (_TEXTS, "_text", encode_texts, decode_texts),
    ):
        settings.add_python_codec(oid, name, "pg_catalog", [], "scalar", encode, decode, "binary")
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


def encode_uuids(uuids: Collection[Any]) -> bytes:
    """`ValueError`, which asyncpg turns into its `DataError`: an item is no UUID."""
    count = len(uuids)
    try:
        text = ",".join(uuids)
    except TypeError:  # some are None, or no strings
        return _encoded(_UUID, [None if each is None else UUID(str(each)).bytes for each in uuids])
    if not _all_usual(text, count):
        return _encoded(_UUID, [UUID(each).bytes for each in uuids])
    items = bytes.fromhex(_UUID_LENGTH + text.replace("-", "").replace(",", _UUID_LENGTH))
    if len(items) != count * 20:  # `fromhex` ignores spaces
        raise ValueError("not all of these are UUIDs")
    return _HEADER.pack(1, 0, _UUID, count, 1) + items


def _all_usual(text: str, count: int) -> bool:
    """Each is 36 characters long, with dashes in the usual places and nowhere else."""
    if len(text) != count * _WIDTH - 1 or text[36::_WIDTH] != "," * (count - 1):
        return False
    if text.count(",") != count - 1 or text.count("-") != 4 * count:
        return False
    return text[8::_WIDTH] == text[13::_WIDTH] == text[18::_WIDTH] == text[23::_WIDTH] == "-" * count


def encode_texts(texts: Collection[str | None]) -> bytes:
    if isinstance(texts, str):
        raise TypeError("a list of texts is expected, not a single one")
    try:
        return _encoded(_TEXT, list(map(str.encode, texts)))  # type: ignore[arg-type]
    except TypeError:  # some are None
        return _encoded(_TEXT, [None if each is None else str.encode(each) for each in texts])


def _encoded(kind: int, items: list[Any]) -> bytes:
    """`items` are bytes or None."""
    if not items:
        return _EMPTY.pack(0, 0, kind)
    try:
        body = b"".join(chain.from_iterable(zip(map(_LENGTH.pack, map(len, items)), items, strict=True)))
        nulls = 0
    except TypeError:
        body = b"".join([_NULL if item is None else _LENGTH.pack(len(item)) + item for item in items])
        nulls = 1
    return _HEADER.pack(1, nulls, kind, len(items), 1) + body


def decode_uuids(data: bytes) -> list[Any]:
    return _decoded(data, lambda item: str(UUID(bytes=item)))


def decode_texts(data: bytes) -> list[Any]:
    return _decoded(data, bytes.decode)


def _decoded(data: bytes, decode: Callable[[bytes], str]) -> list[Any]:
    """Strings and None; of an array with several dimensions, lists of them."""
    dimensions, _, _ = _EMPTY.unpack_from(data)
    start = _EMPTY.size + dimensions * _DIMENSION.size
    found: list[Any] = _items(data, start, decode)
    for place in range(start - _DIMENSION.size, _EMPTY.size, -_DIMENSION.size):  # the innermost first
        size, _ = _DIMENSION.unpack_from(data, place)
        found = [found[first : first + size] for first in range(0, len(found), size)]
    return found


def _items(data: bytes, place: int, decode: Callable[[bytes], str]) -> list[str | None]:
    found: list[str | None] = []
    while place < len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        found.append(None if length < 0 else decode(data[place : place + length]))
        place += max(length, 0)
    return found
