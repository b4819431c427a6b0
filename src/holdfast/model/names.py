"""Validation of names, tags, capabilities and ids."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import InvalidField
from holdfast.ids import is_uuid

NAME_MAX = 200
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_MAX})]  # `check_name` refuses the rest
TAGS_MAX = 50


def check_name(name: Any, field: str, each: str = "") -> str:
    """Printable and not blank: names end up in logs, metrics, URLs and terminals."""
    if isinstance(name, str) and _is_name(name):
        return name
    raise InvalidField(
        f"{each}{field} must be 1 to {NAME_MAX} printable characters without spaces at either end, got {quoted(name)}",
        field=field,
    )


@lru_cache(maxsize=4096)  # names repeat from job to job
def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_MAX and text.isprintable() and text == text.strip()


def check_names(names: Any, field: str) -> list[str]:
    if not isinstance(names, list | tuple | set | frozenset) or len(names) > TAGS_MAX:
        raise InvalidField(f"{field} must be a list of at most {TAGS_MAX} names, got {quoted(names)}", field=field)
    return sorted({check_name(name, field, "each of ") for name in names})


def check_id(value: Any, field: str) -> None:
    if not is_uuid(value):
        raise InvalidField(f"{field} must be a UUID, got {quoted(value)}", field=field)


def capabilities_of(declared: dict[str, Any]) -> list[str]:
    """`{"gpu": True, "codecs": ["h264"], "cuda": "12"}` offers gpu, codecs, codecs:h264, cuda and cuda:12."""
    offers: set[str] = set()
    for name, value in declared.items():
        if value is False or value is None:
            continue
        offers.add(check_name(name, "capabilities", "each of "))
        details = value if isinstance(value, list) else [] if isinstance(value, bool | dict) else [value]
        offers.update(check_name(f"{name}:{detail}", "capabilities", "each of ") for detail in details)
    return sorted(offers)


def kind_of(value: Any) -> str:
    """`an int`, `a list`."""
    name = type(value).__qualname__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def quoted(value: Any) -> str:
    """A value for an error message: short, and without raising."""
    try:
        text = repr(value)
    except Exception:  # a number of 5,000 digits, deep nesting, a `__repr__` that raises
        text = f"{kind_of(value)} that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."
