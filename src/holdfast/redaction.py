"""Removes secrets, and characters that control a terminal, from text that is shown.

The only place for it: logs, traces, settings and commands all use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

HIDDEN = "***"
KNOWN_CHARS_MIN, WORD_CHARS_MAX = 8, 15  # of a value that is hidden wherever it occurs
CHARS_MAX = 16_000
MARGIN_CHARS = 1000  # scanned as well, so that a truncated secret is recognized
DEPTH_MAX, ITEMS_MAX = 6, 100

_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"'&;,)}\]]+)"""
_NAMES = r"pass(?:word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|credential|cookie|authorization"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_PATTERNS = (
    # `holdfast_client_<id>_<secret>_<checksum>`: the id stays, it says which key to revoke
    (re.compile(r"(holdfast_(?:client|worker|admin)_[0-9a-f]{1,16})_\w+"), rf"\1_{HIDDEN}"),
    (re.compile(r"\bwhsec_[\w+/=-]+"), f"whsec_{HIDDEN}"),
    # headers, as they are sent, as a dict shows them, and as the pairs of ASGI
    (
        re.compile(
            r"""(?i)\b((?:proxy-)?authorization|x-admin-secret|(?:set-)?cookie)(["']?\s*[:=]\s*|["']\s*,\s*)"""
            r"""b?(?:"[^"]*"|'[^']*'|[^\r\n"']+)"""
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer)\s+[\w.~+/=-]+"), rf"\1 {HIDDEN}"),
    # `password=...`, `"leaseToken": "..."`
    (re.compile(rf"(?i)((?:{_NAMES})\w{{0,40}})(\s*=\s*|[\"']\s*:\s*)b?{_VALUE}"), rf"\1\2{HIDDEN}"),
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]{1,2000}")


class _Known:
    """The values of this process's secrets."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        self.pattern: re.Pattern[str] | None = None


_known = _Known()


def know(secrets: Iterable[str]) -> None:
    """Hide these values wherever they occur. One that may be an ordinary word is left to the patterns."""
    _known.values.update(value for value in secrets if len(value) >= KNOWN_CHARS_MIN and not _is_word(value))
    longest_first = sorted(_known.values, key=len, reverse=True)
    _known.pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _is_word(value: str) -> bool:
    return value.isalpha() and len(value) <= WORD_CHARS_MAX


def redacted(text: str, most: int = CHARS_MAX) -> str:
    """The text without what is, or looks like, a secret; truncated to `most` characters."""
    return _redacted(text[: most + MARGIN_CHARS])[:most]


def redacted_end(text: str, most: int = CHARS_MAX) -> str:
    """The same for the end of a text, which matters most in a traceback."""
    end = _redacted(text[-most - MARGIN_CHARS :])
    return end if len(end) <= most else f"…{end[-most:]}"


def _redacted(text: str) -> str:
    if _known.pattern is not None:
        text = _known.pattern.sub(HIDDEN, text)
    if "://" in text:
        text = _URL.sub(lambda found: without_password(found[0]), text)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def is_secret_name(name: str) -> bool:
    """Whether the value of a header, a field or a setting of this name must be hidden."""
    return _SECRET_NAME.search(name) is not None


def redacted_value(value: Any, name: str = "", depth: int = 0) -> Any:
    """The same for any JSON value. A value under the name of a secret is hidden completely."""
    if value is None or isinstance(value, bool | float):
        return value
    if is_secret_name(name):
        return HIDDEN
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else text_of(value)[:100]
    if isinstance(value, dict) and depth < DEPTH_MAX:
        return {text_of(key): redacted_value(each, text_of(key), depth + 1) for key, each in _some(value.items())}
    if isinstance(value, list | tuple | set | frozenset) and depth < DEPTH_MAX:
        return [redacted_value(each, "", depth + 1) for each in _some(value)]
    return redacted(text_of(value))


def _some(items: Iterable[Any]) -> list[Any]:
    return list(islice(items, ITEMS_MAX))


def text_of(value: Any) -> str:
    """Encodable text for any object, even one whose `str` fails."""
    try:
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
        return text.encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"<{type(value).__name__}>"


def printable(text: str, keep: str = "") -> str:
    """Escapes control characters: text from workers and clients must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def without_password(url: str) -> str:
    """A URL without the password before its host or in its options; nothing if it is not a URL."""
    if "://" not in url:
        return HIDDEN if url else ""
    shorter = re.sub(r"(://[^:/@?]*):.*@", rf"\1:{HIDDEN}@", url)
    shorter = re.sub(
        r"^(nats|tls|wss?)://[^@/]*@", rf"\1://{HIDDEN}@", shorter
    )  # there, a user name alone may be a token
    return re.sub(r"([?&][^=&]*password[^=&]*=)[^&]*", rf"\1{HIDDEN}", shorter)


def passwords_in(url: str) -> list[str]:
    """The passwords in a URL, as they are written there."""
    found = re.findall(r"://[^:/@?]*:([^@]*)@", url)
    return [*found, *re.findall(r"[?&][^=&]*password[^=&]*=([^&]+)", url)]
