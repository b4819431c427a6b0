"""Reads answers of providers: what they report as an error, and when to ask again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

LEVELS_MAX = 4  # of objects in each other that are searched
TEXT_MAX = 300
SCANNED_MAX = 4000  # characters of a text that is cut, so that a key is hidden as a whole

_SECRET = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|r8|whsec)[-_][\w*/+=-]{4,}")
_INNER = ("error", "detail", "innererror", "inner_error")
_TEXTS = ("message", "detail", "error", "msg", "title")
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


class Answer(NamedTuple):
    """A complete response, whatever its status. `headers` ignore case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReportedError(NamedTuple):
    """`words` are codes and types in lower case, `text` is for people."""

    words: frozenset[str]
    text: str


def decoded(body: bytes) -> Any:
    """None if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def reported_error(found: Any) -> ReportedError:
    """The error that an answer describes, in any of the usual forms."""
    levels = list(_levels(found))
    words = [level[name] for level in levels for name in ("code", "type") if isinstance(level.get(name), str)]
    texts = [level[name] for level in levels for name in _TEXTS if isinstance(level.get(name), str)]
    return ReportedError(frozenset(word.lower() for word in words), next(filter(None, texts), ""))


def _levels(found: Any) -> Iterator[dict[str, Any]]:
    for _ in range(LEVELS_MAX):
        if not isinstance(found, dict):
            return
        yield found
        found = next((found[name] for name in _INNER if isinstance(found.get(name), dict)), None)


def shown(text: str, secret: str) -> str:
    """A text of a provider as operators may read it: one short line without keys."""
    text = text[:SCANNED_MAX]
    if secret:
        text = text.replace(secret, "***")
    return _SECRET.sub("***", " ".join("".join(c if c.isprintable() else " " for c in text).split()))[:TEXT_MAX]


def retry_after(headers: Mapping[str, str], now: datetime, most: float) -> float | None:
    """The header Retry-After, in seconds from 1 to `most`."""
    said = headers.get("retry-after", "").strip()
    seconds = float(said) if _SECONDS.fullmatch(said) else _seconds_until(said, now)
    return None if seconds is None else min(max(seconds, 1.0), most)


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now.timestamp()
