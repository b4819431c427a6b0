"""Which of several formats a client gets that asks for a variant without naming one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from holdfast.workloads.images.variants import MEDIA_TYPE, PREFERRED

_T = TypeVar("_T")
_QUALITY = re.compile(r"0(\.[0-9]*)?|1(\.0*)?")
SAFE = ("jpeg", "png")  # every client can show these


def best_format(accept: str, offered: Mapping[str, _T]) -> _T | None:
    """What the client likes best, and of equals AVIF before WebP before JPEG. A wildcard is no promise to show AVIF or
    WebP: it stands for JPEG and PNG, where there is one. None: the client accepts no format that there is."""
    accepted = _accepted(accept or "*/*")
    wildcard = accepted.get("image/*", accepted.get("*/*", 0.0))
    named = {name: accepted.get(MEDIA_TYPE[name]) for name in PREFERRED if name in offered}
    liked = {name: (wildcard if name in SAFE else 0.0) if given is None else given for name, given in named.items()}
    if not any(liked.values()):
        liked = {name: wildcard if given is None else given for name, given in named.items()}
    best = max(liked, key=lambda name: liked[name], default=None)  # the first of equals
    return offered[best] if best is not None and liked[best] > 0 else None


def _accepted(accept: str) -> dict[str, float]:
    """The quality of each media type of the header."""
    found = {}
    for item in accept.split(","):
        media_type, *parameters = (word.strip().lower() for word in item.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        found[media_type] = float(quality) if _QUALITY.fullmatch(quality) else 0.0
    return found
