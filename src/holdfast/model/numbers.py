"""What a number may be: finite, not negative, and small enough for a column of either database."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Invalid
from holdfast.model.names import quoted

COUNT_MAX = 2**31 - 1
SECONDS_MAX = 10**9  # thirty years


def check_number(value: Any, what: str, *, code: str, most: float = SECONDS_MAX) -> None:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise Invalid(f"{what} must be a number from 0 to {most}, got {quoted(value)}", code=code)


def check_count(value: Any, what: str, *, code: str) -> None:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise Invalid(f"{what} must be a whole number from 0 to {COUNT_MAX}, got {quoted(value)}", code=code)


def check_limit(limit: Any, what: str, *, most: int = COUNT_MAX) -> int:
    """How many things one call may ask for."""
    if type(limit) is int and 1 <= limit <= most:
        return limit
    raise Invalid(f"a call handles 1 to {most} {what}, got the limit {quoted(limit)}", code="invalid_limit")
