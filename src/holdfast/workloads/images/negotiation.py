"""Which of several formats a client gets that asks for a variant without naming one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from holdfast.workloads.images.variants import MEDIA_TYPE, PREFERRED

_T = TypeVar("_T")
WILDCARDS = ("image/*", "*/*")
SAFE = ("jpeg", "png")  # every client can show these


def best_format(accept: str, offered: Mapping[str, _T]) -> _T | None:
    """What the client likes best, and of equals AVIF before WebP before JPEG. A wildcard is no promise to show AVIF or
    WebP: such a client gets JPEG or PNG where there is one. None: the client accepts no format that there is."""
    accepted = _accepted(accept or "*/*")
    named = [name for name in PREFERRED if name in offered and accepted.get(MEDIA_TYPE[name], 0) > 0]
    if named:
        return offered[max(named, key=lambda name: accepted[MEDIA_TYPE[name]])]  # the first of equals
    if any(accepted.get(wildcard, 0) > 0 for wildcard in WILDCARDS):
        allowed = [name for name in (*SAFE, *PREFERRED) if name in offered and accepted.get(MEDIA_TYPE[name]) != 0]
        return offered[allowed[0]] if allowed else None
    return None


def _accepted(accept: str) -> dict[str, float]:
    """The quality of each media type of the header."""
    found = {}
    for item in accept.split(","):
        media_type, *parameters = (word.strip().lower() for word in item.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            found[media_type] = float(quality)
        except ValueError:
            found[media_type] = 0.0
    return found
