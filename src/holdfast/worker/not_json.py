"""Finds which part of a value cannot be converted to JSON: `order.lines[1].price is a Decimal128`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from holdfast.model.names import kind_of

DEPTH_MAX = 64
PATH_MAX = 200  # characters shown


def find_fault(value: Any, path: str, convert: Callable[[Any], Any]) -> str:
    """Says what is wrong and where. `convert` raises for a value that cannot be converted, or that contains one."""
    above: list[Any] = []
    while len(above) < DEPTH_MAX:
        if any(value is each for each in above):
            return f"{path} contains itself"
        above.append(value)
        if (wrong := _wrong_key(value, convert)) is not None:
            return f"{path} has a key that is {kind_of(wrong)}"
        inner = next(((name, each) for name, each in _inside(value) if _fails(each, convert)), None)
        if inner is None:
            return f"{path} is {kind_of(value)}"
        path, value = f"{path}{inner[0]}"[:PATH_MAX].removeprefix("."), inner[1]
    return f"{path} is nested too deeply"


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from (("[...]", each) for each in value)
    elif isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else value.__dataclass_fields__
        yield from ((f".{name}", getattr(value, name, None)) for name in names)


def _wrong_key(value: Any, convert: Callable[[Any], Any]) -> Any:
    return next((key for key in value if _fails({key: None}, convert)), None) if isinstance(value, Mapping) else None


def _fails(value: Any, convert: Callable[[Any], Any]) -> bool:
    try:
        convert(value)
    except Exception:
        return True
    return False
