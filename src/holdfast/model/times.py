"""Validation of times: with a time zone, and in the range of both databases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.errors import InvalidField
from holdfast.model.names import quoted

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def check_time(at: Any, field: str) -> None:
    try:
        if not isinstance(at, datetime) or at.utcoffset() is None:
            shown = quoted(str(at) if isinstance(at, datetime) else at)
            raise InvalidField(f"{field} must be a time with a time zone, got {shown}", field=field)
        known = EARLIEST <= at.astimezone(UTC) <= LATEST
    except (OverflowError, ValueError):  # the time zone moves it out of the range of `datetime`
        known = False
    if not known:
        raise InvalidField(
            f"{field} must lie between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}, got {quoted(at)}", field=field
        )
