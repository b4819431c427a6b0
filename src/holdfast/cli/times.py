"""Durations and times as people type them: `90`, `30m`, `1h30m`, `2d`, `2026-01-31`, `2026-01-31T12:00:00Z`."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DURATION = re.compile(rf"(?:{_PIECE.pattern})+")


def seconds(text: str) -> float:
    """A duration; a number alone counts seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if _DURATION.fullmatch(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(text))
    raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 90s, 30m, 1h30m or 2d")


def moment(text: str) -> datetime:
    """An ISO time; without a zone it is meant in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def past(text: str) -> datetime | timedelta:
    """A time, or how long ago it was: the database knows what time it is now."""
    try:
        return timedelta(seconds=seconds(text)) if _DURATION.fullmatch(text) else moment(text)
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than anything can be ago") from None
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a duration (30m, 1h) nor a time (2026-01-31T12:00:00Z)"
        ) from None


def before(now: datetime, at: datetime | timedelta | None) -> datetime | None:
    """What `past` read, as a time; what lies before all time is its beginning."""
    if not isinstance(at, timedelta):
        return at
    try:
        return now - at
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
