"""A quick look at a text: most have none of the letters that a listed word begins with, however it may be spelled.

Only for ASCII. `folded` is coarser than any reading of a text: I, L, 1 and ! are the same letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LETTERS = 4  # with which words are looked for
SET_MIN = 200  # words from which on the letters of the text are looked up among them

_SYMBOLS = {"@": "a", "$": "s", "!": "i", "|": "i", "+": "t"}
_DIGITS = dict(zip("0123456789", "oizeasgtbg", strict=True))
_REPEATED = re.compile(rb"(.)\1+")


def _table(letters: dict[str, str]) -> tuple[bytes, bytes]:
    """For `bytes.translate`: what each character becomes, and which are removed."""
    kept = {chr(code): chr(code | 32) for code in range(65, 91)} | {chr(code): chr(code) for code in range(97, 123)}
    folded = {char: low.replace("l", "i") for char, low in (kept | _DIGITS | letters).items()}  # 1 is either
    table = bytes(ord(folded.get(chr(code), "\0")) for code in range(256))
    return table, bytes(code for code in range(256) if chr(code) not in folded)


_WITHOUT, _WITH = _table({}), _table(_SYMBOLS)
_SYMBOL = re.compile(f"[{re.escape(''.join(_SYMBOLS))}]")


def folded(text: str) -> list[bytes]:
    """Of an ASCII text: symbols may be separators or letters."""
    data = text.encode()
    tables = (_WITHOUT, _WITH) if _SYMBOL.search(text) else (_WITHOUT,)
    return [_REPEATED.sub(rb"\1", data.translate(*table)) for table in tables]


def beginning(skeleton: str) -> bytes | None:
    """The first letters of a listed word. None: it is none that an ASCII text could have."""
    if not skeleton.isascii():
        return None
    return folded(skeleton)[-1][:LETTERS]


class Beginnings:
    def __init__(self) -> None:
        self._found: set[bytes] = set()

    def add(self, skeleton: str) -> None:
        if (first := beginning(skeleton)) is not None:
            self._found.add(first)

    def occur_in(self, texts: Iterable[bytes]) -> bool:
        return any(map(self._occur_in, texts))

    def _occur_in(self, text: bytes) -> bool:
        if len(self._found) < SET_MIN:
            return any(map(text.__contains__, self._found))
        lengths = {len(first) for first in self._found}
        parts = (text[at : at + size] for size in lengths for at in range(len(text) - size + 1))
        return any(map(self._found.__contains__, parts))
