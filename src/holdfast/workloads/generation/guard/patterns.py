"""Patterns of operators: regular expressions of RE2, because they run on the event loop. Whatever the pattern is, the
time to find a match grows only as the length of the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

from holdfast.errors import Invalid


class Match(Protocol):
    def span(self) -> tuple[int, int]: ...


class Pattern(Protocol):
    def search(self, text: str) -> Match | None: ...

    def finditer(self, text: str) -> Iterator[Match]: ...


def compiled(pattern: str) -> Pattern:
    """For normalised text. Raises `Invalid`; the message does not repeat the pattern."""
    options = re2.Options()
    options.case_sensitive = options.log_errors = False
    try:
        result = cast(Pattern, re2.compile(pattern, options))
    except re2.error as error:
        said = error.args[0].decode(errors="replace").partition(":")[0]
        raise Invalid(
            f"the pattern is invalid: {said} (the syntax is that of RE2, which has no look-ahead or back-references)"
        ) from None
    if result.search(""):
        raise Invalid("the pattern matches the empty text")
    return result
