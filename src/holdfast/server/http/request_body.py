"""Reads and parses request bodies and query strings: limits on size and time, JSON, validation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import Invalid, InvalidField, Malformed
from holdfast.server.http.route import BodyLimit, Headers

BODY_SECONDS_MAX = 30.0
QUERY_FIELDS_MAX = 50
QUOTED_CHARS_MAX = 200
# Repeated, these are rejected: a proxy may use the first value where the server would use the last.
SINGLE_HEADERS = (
    *(b"authorization", b"x-admin-secret", b"x-csrf-token", b"host", b"origin"),
    *(b"content-type", b"idempotency-key", b"last-event-id"),
)

T = TypeVar("T")


def merge_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Join repeated headers with commas; reject headers that may occur only once."""
    given: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in given and name in SINGLE_HEADERS:
            raise Malformed(f"the header {name.decode()} occurs twice", code="conflicting_input")
        given[name] = given[name] + b", " + value if name in given else value
    return given


async def read_body(receive: Any, headers: Headers, *, limit: BodyLimit, arrived: bytes | None = None) -> bytes:
    """A body whose content-length exceeds the limit is not read at all. `arrived`: it is here already."""
    _check_content_type(headers)
    check_length(headers, limit)
    if arrived is not None:
        if len(arrived) > limit.size:
            raise too_large(limit)
        return arrived
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _collect(receive, limit)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS_MAX:g} s", code="body_timeout") from None


async def _collect(receive: Any, limit: BodyLimit) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit.size:
            raise too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_content_type(headers: Headers) -> None:
    """Browsers send forms and plain text across origins without asking, but not JSON."""
    kind = headers.get(b"content-type")
    if kind is not None and not _is_json(kind):
        raise Malformed("send JSON: content-type: application/json", code="unsupported_media_type")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Malformed("send the body as it is, without content-encoding", code="unsupported_media_type")


@lru_cache(maxsize=64)
def _is_json(kind: bytes) -> bool:
    name = kind.partition(b";")[0].strip().lower()
    return name == b"application/json" or (name.startswith(b"application/") and name.endswith(b"+json"))


def media_type_of(content_type: bytes) -> str:
    """In lower case and without parameters; empty if there is none."""
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")


def check_length(headers: Headers, limit: BodyLimit) -> None:
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit.size:
        raise too_large(limit)


def too_large(limit: BodyLimit) -> Invalid:
    return Invalid(f"the body is longer than {limit.size} bytes", code=limit.code, limit=limit.size)


@lru_cache(maxsize=256)
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def decode_body(data: bytes, shape: type[T], *, names_field: bool = False) -> T:
    """The body as a type of `wire`. snake_case names are accepted in a second, slower pass."""
    if not data and all_optional(shape):  # type: ignore[arg-type]
        data = b"{}"
    try:
        try:
            found: T = _decoder(shape).decode(data)  # type: ignore[arg-type]
            return found
        except msgspec.ValidationError:
            value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else _shorten(str(error))
        raise Malformed(f"the body is not valid JSON: {why}", code="malformed_json") from None
    return _converted(value, shape, names_field=names_field)


@lru_cache(maxsize=256)
def all_optional(shape: Any) -> bool:
    """Then an absent body counts as an empty object."""
    return _is_struct(shape) and not any(field.required for field in msgspec.structs.fields(shape))


def _shorten(why: str) -> str:
    """Messages of msgspec may quote long input."""
    return why if len(why) <= QUOTED_CHARS_MAX else why[: QUOTED_CHARS_MAX - 1] + "…"


def _converted(value: Any, shape: type[T], *, names_field: bool) -> T:
    value = _to_camel(value, shape)
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        why = _shorten(_first_invalid_item(value, shape) or str(error))
        if names_field and (field := _FIELD.search(why)):
            raise InvalidField(f"invalid request body: {why}", field=field[1] or field[2]) from None
        raise Invalid(f"invalid request body: {why}", code="invalid_body") from None


def _first_invalid_item(value: Any, shape: Any) -> str | None:
    """For a list of items: the index of the first invalid one, and the reason."""
    for field in msgspec.structs.fields(shape) if isinstance(value, dict) and _is_struct(shape) else ():
        inner, items = _item_of(field.type), value.get(field.encode_name)
        for place, item in enumerate(items if inner is not None and isinstance(items, list) else ()):
            try:
                msgspec.convert(item, inner)
            except msgspec.ValidationError as error:
                return f"{field.encode_name}[{place}]: {error}"
    return None


_FIELD = re.compile(r" at `\$\.(\w+)|field `(\w+)`")
_SNAKE = re.compile(r"_([a-z0-9])")


def _to_camel(value: Any, shape: Any) -> Any:
    """Convert field names of structs to camelCase, recursively; keys of user data stay as they are."""
    if isinstance(value, list):
        inner = _item_of(shape)
        return [_to_camel(item, inner) for item in value] if inner is not None else value
    if not isinstance(value, dict) or not _is_struct(shape):
        return value
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    given: dict[str, Any] = {}
    for name, inner_value in value.items():
        camel = _SNAKE.sub(lambda found: found[1].upper(), name)
        if camel in given:
            raise Malformed(f"{_shorten(camel)} is given twice, in two spellings", code="conflicting_input")
        given[camel if camel in fields else name] = _to_camel(inner_value, fields.get(camel))
    return given


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _item_of(shape: Any) -> Any:
    arguments = getattr(shape, "__args__", ())
    return next((inner for inner in arguments if _is_struct(inner)), None)


def parse_query(raw: bytes, shape: type[T]) -> T:
    """The query string as a struct; repeated and unknown parameters are rejected."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Malformed(f"malformed query string: {error}", code="malformed_query") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Malformed(f"the query parameter {name!r:.80} occurs twice", code="conflicting_input")
        given[name] = value
    named = _to_camel(given, shape)
    try:
        found = msgspec.convert(named, shape, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"invalid query: {_shorten(str(error))}", code="invalid_query") from None
    for field, name in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True):  # type: ignore[attr-defined]
        if name in named and getattr(found, field) is None:  # msgspec reads null, which a query string does not have
            raise Invalid(f"invalid query: {name}=null; leave the parameter out", code="invalid_query")
    return found
