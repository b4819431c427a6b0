"""Parses durations and times: `90`, `30m`, `1h30m`, `2d`, `2026-01-31`, `2026-01-31T12:00:00Z`."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DURATION = re.compile(rf"(?:{_PIECE.pattern})+")


def seconds(text: str) -> float:
    """A duration; a plain number is in seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if _DURATION.fullmatch(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 30m, 1h30m or 2d")


def moment(text: str) -> datetime:
    """An ISO 8601 time; UTC if it has no time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def past(text: str) -> datetime | timedelta:
    """A time, or a duration before the current time of the database."""
    try:
        return timedelta(seconds=seconds(text)) if _DURATION.fullmatch(text) else moment(text)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long ago") from None
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration (30m, 1h) nor a time (2026-01-31T12:00:00Z)"
        ) from None


def before(now: datetime, at: datetime | timedelta | None) -> datetime | None:
    """The result of `past` as a time; at least the earliest time that Python has."""
    if not isinstance(at, timedelta):
        return at
    try:
        return now - at
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
