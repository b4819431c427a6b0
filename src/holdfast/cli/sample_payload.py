"""Makes up a sample payload from the annotations of a handler."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.worker.handler import Handler

_AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
_PLAIN: dict[type[inspect.Type], Any] = {
    inspect.StrType: "text",
    inspect.IntType: 1,
    inspect.FloatType: 1.5,
    inspect.BoolType: True,
    inspect.DateTimeType: _AT,
    inspect.DateType: _AT.date(),
    inspect.TimeType: _AT.time(),
    inspect.TimeDeltaType: "PT90S",
    inspect.UUIDType: "01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f",
    inspect.DecimalType: "1.5",
    inspect.AnyType: "anything",
}

# Sample values by field name.
_TEXTS = {
    **dict.fromkeys(("to", "email", "address", "recipient"), "ada@example.com"),
    **dict.fromkeys(("url", "link"), "https://example.com/"),
    "name": "Ada",
}


def sample(handlers: list[Handler]) -> tuple[str, str]:
    """The first job type for which a payload can be made up, and the payload as JSON; else a placeholder."""
    for handler in handlers:
        payload = msgspec.to_builtins(_value(inspect.type_info(handler.signature.shape)))
        try:
            handler.signature.arguments(payload)
        except Invalid:
            continue
        return handler.name, msgspec.json.encode(payload).decode()
    return handlers[0].name, '{"...": "..."}'


def _field(field: inspect.Field) -> Any:
    if isinstance(field.type, inspect.StrType) and field.encode_name in _TEXTS:
        return _TEXTS[field.encode_name]
    return _value(field.type)


def _value(kind: inspect.Type) -> Any:
    """An empty collection, the first of several types. Constraints are checked when the sample is validated."""
    match kind:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            return {field.encode_name: _field(field) for field in kind.fields if field.required}
        case inspect.UnionType():
            return None if kind.includes_none else _value(kind.types[0])
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return []
        case inspect.TupleType():
            return [_value(item) for item in kind.item_types]
        case inspect.DictType():
            return {}
        case inspect.Metadata():
            return _value(kind.type)
    return _PLAIN.get(type(kind))
