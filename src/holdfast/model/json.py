"""JSON that both databases, every language and every proxy keep as it is; anything else is refused with its path."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from holdfast.errors import Invalid

DEPTH_MAX = 64
KEYS_MAX = 10_000
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode


def encode(value: Any, what: str, *, max_bytes: int) -> str:
    """Compact JSON text of `value`, or `Invalid` naming the part that cannot be stored."""
    _check(value, what)
    data = _encode(value)
    if len(data) > max_bytes:
        raise Invalid(
            f"{what} is {len(data)} bytes of JSON, the limit is {max_bytes}; store the data elsewhere and send a reference",
            code=f"{what}_too_large",
            bytes=len(data),
            limit=max_bytes,
        )
    return data.decode()


def decode_or_none(text: str | None) -> Any:
    return None if text is None else decode(text)


def _check(value: Any, what: str) -> None:
    """Walk without recursion: ten thousand nested lists must end in a sentence, not in a stack overflow."""
    seen = 0
    pending: list[tuple[Any, str, int]] = [(value, what, 0)]
    while pending:
        item, path, depth = pending.pop()
        kind = type(item)
        if kind is str:
            _check_text(item, path, what)
        elif kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                _refuse(what, f"{path} is an integer beyond 64 bits; send it as a string")
        elif kind is float:
            if not math.isfinite(item):
                _refuse(what, f"{path} is {item}, which JSON does not have; send null or a string")
        elif kind is dict or kind is list or kind is tuple:
            if depth >= DEPTH_MAX:
                _refuse(what, f"{path[:80]} is nested deeper than {DEPTH_MAX} levels")
            seen += len(item)
            if seen > KEYS_MAX:
                _refuse(what, f"it holds more than {KEYS_MAX} values; send a reference instead")
            if kind is dict:
                for key, inner in item.items():
                    if type(key) is not str:
                        _refuse(what, f"{path} has the key {key!r}, which is not a string")
                    _check_text(key, path, what)
                    pending.append((inner, f"{path}.{key}", depth + 1))
            else:
                pending.extend((inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(item))
        elif item is not None and kind is not bool:
            _refuse(what, f"{path} is a {kind.__name__}, which is not JSON")


def _check_text(text: str, path: str, what: str) -> None:
    if text.isascii():  # the common case; only NUL can be wrong with it
        if "\x00" in text:
            _refuse(what, f"{path} contains the character NUL, which PostgreSQL cannot store")
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(what, f"{path} contains a lone surrogate, which is not a character")
    if "\x00" in text:
        _refuse(what, f"{path} contains the character NUL, which PostgreSQL cannot store")


def _refuse(what: str, why: str) -> None:
    raise Invalid(f"{what} cannot be stored: {why}", code=f"{what}_not_json")
