"""Validation of numbers: finite, not negative, and in the range of both databases."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from holdfast.errors import InvalidField
from holdfast.model.names import quoted

COUNT_MAX = 2**31 - 1
SECONDS_MAX = 10**9  # thirty years
Seconds = Annotated[float, Meta(extra_json_schema={"minimum": 0})]  # `check_number` refuses the rest


def check_number(value: Any, field: str, *, most: float = SECONDS_MAX) -> None:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise InvalidField(f"{field} must be a number from 0 to {most}, got {quoted(value)}", field=field)


def check_count(value: Any, field: str) -> None:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise InvalidField(f"{field} must be a whole number from 0 to {COUNT_MAX}, got {quoted(value)}", field=field)


def check_limit(limit: Any, what: str, *, most: int = COUNT_MAX) -> int:
    """Validate the `limit` of a call."""
    if type(limit) is int and 1 <= limit <= most:
        return limit
    raise InvalidField(f"a call handles 1 to {most} {what}, got the limit {quoted(limit)}", field="limit")
