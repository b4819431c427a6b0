"""Reading a request within limits: size and time while it arrives, then shape."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import Invalid, Malformed
from holdfast.server.http.route import Headers

BODY_BYTES_MAX = 1_048_576
BODY_SECONDS_MAX = 30.0
QUERY_FIELDS_MAX = 50
QUOTED_CHARS_MAX = 200
# Whoever stands between us and the client may believe the first of two; we must not believe the last.
SAID_ONCE = frozenset(
    (
        b"authorization",
        b"x-admin-secret",
        b"x-csrf-token",
        b"host",
        b"origin",
        b"content-type",
        b"idempotency-key",
        b"last-event-id",
    )
)

T = TypeVar("T")


def in_one_line_each(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Of headers that came in several lines: a list goes on, and what says one thing must not say two."""
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in said and name in SAID_ONCE:
            raise Malformed(f"the header {name.decode()} is there twice", code="conflicting_input")
        said[name] = said[name] + b", " + value if name in said else value
    return said


async def read_body(receive: Any, headers: Headers, *, whole: bool = False, limit: int = BODY_BYTES_MAX) -> bytes:
    """Not one byte more than the limit: a body that says it is longer is not read at all.

    `whole`: it has come with its head, and there is nothing to wait for.
    """
    _check_kind(headers)
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    if whole:
        return await _collect(receive, limit)
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _collect(receive, limit)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS_MAX:g} s", code="body_timeout") from None


async def _collect(receive: Any, limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_kind(headers: Headers) -> None:
    """A form or plain text may be sent by any web page from its visitor's browser; JSON may not."""
    kind = headers.get(b"content-type")
    if kind is not None and not _is_json(kind):
        raise Malformed(
            "send JSON: content-type: application/json",
            code="unsupported_media_type",
        )
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Malformed("send the body as it is, without content-encoding", code="unsupported_media_type")


@lru_cache(maxsize=64)
def _is_json(kind: bytes) -> bool:
    name = kind.partition(b";")[0].strip().lower()
    return name == b"application/json" or (name.startswith(b"application/") and name.endswith(b"+json"))


def too_large(limit: int) -> Invalid:
    return Invalid(f"the body is longer than {limit} bytes", code="body_too_large", limit=limit)


@lru_cache(maxsize=256)
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def decoded(data: bytes, shape: type[T]) -> T:
    """The body as a type of `wire`. Names in snake_case are taken too, at the price of a second look."""
    if not data and _needs_nothing(shape):  # type: ignore[arg-type]
        data = b"{}"
    try:
        found: T = _decoder(shape).decode(data)  # type: ignore[arg-type]
        return found
    except msgspec.ValidationError:
        return _converted(_parsed(data), shape)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _malformed(error) from None


@lru_cache(maxsize=256)
def _needs_nothing(shape: Any) -> bool:
    """Then no body is as good as an empty one."""
    return _is_struct(shape) and not any(field.required for field in msgspec.structs.fields(shape))


def _parsed(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _malformed(error) from None


def _malformed(error: Exception) -> Malformed:
    why = "it is nested too deeply" if isinstance(error, RecursionError) else _cut(str(error))
    return Malformed(f"the body is no JSON that we can read: {why}", code="malformed_json")


def _cut(why: str) -> str:
    """It may quote what was sent, and that may be long."""
    return why if len(why) <= QUOTED_CHARS_MAX else why[: QUOTED_CHARS_MAX - 1] + "…"


def _converted(value: Any, shape: type[T]) -> T:
    value = _in_camel(value, shape)
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        why = _cut(_of_one(value, shape) or str(error))
        raise Invalid(f"the body is not what this route takes: {why}", code="invalid_body") from None


def _of_one(value: Any, shape: Any) -> str | None:
    """Where one of many is wrong: which, and what is wrong with it."""
    for field in msgspec.structs.fields(shape) if isinstance(value, dict) and _is_struct(shape) else ():
        inner, items = _item_of(field.type), value.get(field.encode_name)
        for place, item in enumerate(items if inner is not None and isinstance(items, list) else ()):
            try:
                msgspec.convert(item, inner)
            except msgspec.ValidationError as error:
                return f"{field.encode_name}[{place}]: {error}"
    return None


_SNAKE = re.compile(r"_([a-z0-9])")


def _in_camel(value: Any, shape: Any) -> Any:
    """Its own names in camelCase, and those of the structs inside it; what users name themselves is left alone."""
    if isinstance(value, list):
        inner = _item_of(shape)
        return [_in_camel(item, inner) for item in value] if inner is not None else value
    if not isinstance(value, dict) or not _is_struct(shape):
        return value
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    said: dict[str, Any] = {}
    for name, inner_value in value.items():
        camel = _SNAKE.sub(lambda found: found[1].upper(), name)
        if camel in said:
            raise Malformed(f"{_cut(camel)} is said twice, in two spellings", code="conflicting_input")
        said[camel if camel in fields else name] = _in_camel(inner_value, fields.get(camel))
    return said


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _item_of(shape: Any) -> Any:
    arguments = getattr(shape, "__args__", ())
    return next((inner for inner in arguments if _is_struct(inner)), None)


def query_of(raw: bytes, shape: type[T]) -> T:
    """The query as a struct: each name at most once, and none that the route does not know."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Malformed(f"the query cannot be read: {error}", code="malformed_query") from None
    said: dict[str, str] = {}
    for name, value in pairs:
        if name in said:
            raise Malformed(f"the query says {name!r:.80} twice", code="conflicting_input")
        said[name] = value
    return _query(said, shape)


def _query(said: Mapping[str, str], shape: type[T]) -> T:
    named = _in_camel(dict(said), shape)
    try:
        found = msgspec.convert(named, shape, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"the query is not what this route takes: {_cut(str(error))}", code="invalid_query") from None
    for field, name in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True):  # type: ignore[attr-defined]
        if name in named and getattr(found, field) is None:  # a query has no null, but msgspec reads one
            raise Invalid(f"the query says {name}=null: leave out what has no value", code="invalid_query")
    return found
