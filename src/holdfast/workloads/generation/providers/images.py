"""Finds the image in an answer: a URL, or its bytes in base64."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, NamedTuple

from holdfast.workloads.generation.providers.answers import LEVELS_MAX
from holdfast.workloads.generation.providers.errors import bad_answer, too_large

_NAMES = ("b64_json", "url", "output", "images", "data")


class FoundImage(NamedTuple):
    """One of the two."""

    url: str = ""
    base64: str = ""


def first_image(output: Any, name: str = "", depth: int = LEVELS_MAX) -> FoundImage | None:
    """The first image of a text, a list, or an object with one of the usual names."""
    if isinstance(output, str) and output:
        return _of_text(output, name)
    if isinstance(output, list) and output and depth:
        return first_image(output[0], name, depth - 1)
    if isinstance(output, dict) and depth:
        inner = (first_image(output.get(name), name, depth - 1) for name in _NAMES)
        return next(filter(None, inner), None)
    return None


def _of_text(text: str, name: str) -> FoundImage:
    if text[:5].lower() == "data:":
        kind, _, content = text.partition(",")
        if not kind.lower().endswith(";base64"):
            raise bad_answer("the image is a data URL that is not base64")
        return FoundImage(base64=content)
    return FoundImage(base64=text) if name == "b64_json" else FoundImage(url=text)


def from_base64(text: str, most: int) -> bytes:
    text = text.replace("\n", "").replace("\r", "")
    if len(text) // 4 * 3 - 2 > most:
        raise too_large(most)
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise bad_answer("the image is not valid base64") from None
