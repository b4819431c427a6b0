"""Encodes JSON that every database and language preserves; other values are rejected with their path."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from holdfast.errors import Invalid
from holdfast.model.names import kind_of

DEPTH_MAX = 64
KEYS_MAX = 10_000
PATH_MAX = 200  # characters of a path in an error message
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode


def readable(text: str) -> str:
    """Text that every database can store: error messages may quote any input."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def encode(value: Any, what: str, *, max_bytes: int) -> str:
    """Compact JSON text of `value`, or `Invalid` naming the part that cannot be stored."""
    _check(value, what)
    data = _encode(value)
    if len(data) > max_bytes:
        raise Invalid(
            f"{what} is {len(data)} bytes of JSON, the limit is {max_bytes}; store it elsewhere and send a reference",
            code=f"{what}_too_large",
            bytes=len(data),
            limit=max_bytes,
        )
    return data.decode()


def encode_object(value: Any, what: str, *, max_bytes: int) -> str:
    """Like `encode`, for a value that must be an object."""
    check_object(value, what)
    return encode(value, what, max_bytes=max_bytes)


def encode_objects(values: Iterable[Any], what: str, *, max_bytes: int) -> list[str]:
    """`encode_object` of many; the error has the place of the first that is refused, in its fields."""
    done: list[str] = []
    try:
        for value in values:
            if type(value) is dict and _is_plain(value, DEPTH_MAX) and len(data := _encode(value)) <= max_bytes:
                done.append(data.decode())
            else:
                done.append(encode_object(value, what, max_bytes=max_bytes))
    except Invalid as error:
        error.fields["place"] = len(done)
        raise
    return done


def check_object(value: Any, what: str) -> None:
    if not isinstance(value, dict):
        raise Invalid(f"{what} must be a JSON object, got {type(value).__name__}", code=f"{what}_not_json")


def decode_or_text(text: str) -> Any:
    """Decode JSON; text that is not JSON is returned as it is, so that an operator sees it."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return text


def decode_or_none(text: str | None) -> Any:
    return None if text is None else decode(text)


def encode_or_none(value: Any) -> str | None:
    """JSON text of names that are already checked; None if there are none."""
    return _encode(value).decode() if value else None


def _check(value: Any, what: str) -> None:
    """A fast check; only invalid values are searched for the path."""
    if not _is_plain(value, DEPTH_MAX):
        _find_fault(value, what)


def _is_plain(value: Any, levels: int) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() and "\x00" not in value
    if kind is bool or value is None:
        return True
    if kind is int:
        return INTEGER_MIN <= value <= INTEGER_MAX  # type: ignore[no-any-return]
    if kind is float:
        return math.isfinite(value)
    if not levels or (kind is not dict and kind is not list) or len(value) > 100:
        return False
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii() or "\x00" in key:
                return False
        value = value.values()
    for inner in value:  # noqa: SIM110  all() over a generator takes twice as long
        if not _is_plain(inner, levels - 1):
            return False
    return True


def _find_fault(value: Any, what: str) -> None:
    """Without recursion: deep nesting must give an error message, not a stack overflow."""
    seen = 0
    pending: list[tuple[Any, str, int]] = [(value, what, 0)]
    while pending:
        item, path, depth = pending.pop()
        if isinstance(item, dict | list | tuple):
            if depth >= DEPTH_MAX:
                _refuse(what, f"{path} is nested deeper than {DEPTH_MAX} levels")
            seen += len(item)
            if seen > KEYS_MAX:
                _refuse(what, f"it holds more than {KEYS_MAX} values; send a reference instead")
            pending.extend(_inside(item, path, depth + 1, what))
        else:
            _check_scalar(item, path, what)


def _inside(item: Any, path: str, depth: int, what: str) -> list[tuple[Any, str, int]]:
    if not isinstance(item, dict):
        return [(inner, f"{path}[{place}]"[:PATH_MAX], depth) for place, inner in enumerate(item)]
    for key in item:
        if type(key) is not str:
            _refuse(what, f"{path} has a key that is {kind_of(key)}, not a string")
        _check_text(key, path, what)
    return [(inner, f"{path}.{key}"[:PATH_MAX], depth) for key, inner in item.items()]


def _check_scalar(item: Any, path: str, what: str) -> None:
    if type(item) is str:
        _check_text(item, path, what)
    elif type(item) is int:
        if not INTEGER_MIN <= item <= INTEGER_MAX:
            _refuse(what, f"{path} is an integer beyond 64 bits; send it as a string")
    elif type(item) is float:
        if not math.isfinite(item):
            _refuse(what, f"{path} is {item}, which JSON does not have; send null or a string")
    elif item is not None and type(item) is not bool:
        _refuse(what, f"{path} is {kind_of(item)}, which is not JSON")


def _check_text(text: str, path: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(what, f"{path} contains a lone surrogate, which is not a character")
    if "\x00" in text:
        _refuse(what, f"{path} contains the character NUL, which PostgreSQL cannot store")


def _refuse(what: str, why: str) -> NoReturn:
    raise Invalid(f"{what} cannot be stored: {why}", code=f"{what}_not_json")
