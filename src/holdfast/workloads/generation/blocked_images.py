"""The block list of images: SHA-256 digests and perceptual hashes, from a file that is read again when it changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard.lists import ListFile

_CHECK_SECONDS = 1.0
_DISTANCE_MAX = 6  # bits, of 64: what a copy in another size and quality has


class Hashes(NamedTuple):
    sha256: frozenset[str]
    dhash: frozenset[int]


class BlockedImages:
    """A file that is invalid at the start raises Invalid; later, the list before it stays in force."""

    def __init__(self, path: str, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._checked = monotonic, monotonic()
        self._file = ListFile(path, parse_hashes)

    def matches(self, sha256: str, dhash: str) -> bool:
        self._refresh()
        listed, value = self._file.content, int(dhash, 16)
        return sha256 in listed.sha256 or any((value ^ each).bit_count() <= _DISTANCE_MAX for each in listed.dhash)

    def _refresh(self) -> None:
        now = self._monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            self._file.refresh()


def parse_hashes(text: str) -> Hashes:
    """One per line; `#` starts a comment. Raises `Invalid` with the number of the line."""
    sha256, dhash = set[str](), set[int]()
    for number, line in enumerate(text.split("\n"), 1):
        found = line.partition("#")[0].strip().lower()
        if re.fullmatch("[0-9a-f]{64}", found):
            sha256.add(found)
        elif re.fullmatch("[0-9a-f]{16}", found):
            dhash.add(int(found, 16))
        elif found:
            raise Invalid(f"{number}: neither a SHA-256 digest (64 hexadecimal digits) nor a perceptual hash (16)")
    return Hashes(frozenset(sha256), frozenset(dhash))
