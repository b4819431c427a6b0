"""What a number may be: finite, not negative, and small enough for a column of either database."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Invalid

COUNT_MAX = 2**31 - 1
SECONDS_MAX = 10**9  # thirty years


def check_number(value: Any, what: str, *, code: str, most: float = SECONDS_MAX) -> None:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise Invalid(f"{what} must be a number from 0 to {most}, got {value!r}", code=code)


def check_count(value: Any, what: str, *, code: str) -> None:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise Invalid(f"{what} must be a whole number from 0 to {COUNT_MAX}, got {value!r}", code=code)
