"""A quick look at a text: most have none of the letters that a listed word begins with, however it may be spelled.

Only for ASCII. It is coarser than any reading of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from holdfast.workloads.generation.guard.reading import COARSE, DRAWING, SYMBOLS

MIN_LETTERS, MAX_LETTERS = 4, 6  # with which words are looked for
SET_MIN = 200  # words from which on the letters of the text are looked up among them

_ASCII_SYMBOLS = "".join(filter(str.isascii, SYMBOLS))
_SYMBOL = re.compile(rf"([{re.escape(_ASCII_SYMBOLS)}])\1*")
_REPEATED = re.compile(r"(.)\1+", re.DOTALL)
_REPEATED_BYTES = re.compile(rb"(.)\1+")


def _table(removed: str) -> tuple[bytes, bytes]:
    """For `bytes.translate`: what each character becomes, and which are removed."""
    lower = {code: chr(code).lower().translate(COARSE) for code in range(128)}
    kept = {code: char for code, char in lower.items() if char.isalpha() and chr(code) not in removed}
    return bytes(ord(kept.get(code, "\0")) for code in range(256)), bytes(set(range(256)) - kept.keys())


_WITHOUT, _WITH = _table(_ASCII_SYMBOLS), _table("")


def folded(text: str) -> list[bytes] | None:
    """The letters of an ASCII text: without its symbols, and with them. None: it may be any text, because several of
    them are near each other, and each may be a letter or not."""
    symbols = [symbol.span() for symbol in _SYMBOL.finditer(text)]
    if DRAWING.search(text) or not all(_is_long(text[one[1] : other[0]]) for one, other in pairwise(symbols)):
        return None
    return [_letters(text, table) for table in ((_WITHOUT, _WITH) if symbols else (_WITHOUT,))]


def _is_long(text: str) -> bool:
    """No beginning of a word has symbols on both sides of it."""
    return len(_letters(text, _WITHOUT)) >= MAX_LETTERS


def _letters(text: str, table: tuple[bytes, bytes]) -> bytes:
    return _REPEATED_BYTES.sub(rb"\1", text.encode().translate(*table))


def beginning(coarse: str, breaks: Iterable[int]) -> str:
    """The first letters of a listed phrase, without repetitions, and without the words after that which completes the
    minimum."""
    end = min((at for at in breaks if at >= MIN_LETTERS), default=len(coarse))
    return _REPEATED.sub(r"\1", coarse[:end])[:MAX_LETTERS]


class Beginnings:
    """Of listed words. Only those in ASCII can be in an ASCII text."""

    def __init__(self) -> None:
        self._found: set[bytes] = set()
        self._lengths: set[int] = set()

    def add(self, first: str) -> None:
        if first.isascii():
            self._found.add(first.encode())
            self._lengths.add(len(first))

    def occur_in(self, texts: Iterable[bytes] | None) -> bool:
        return bool(self._found) and (texts is None or any(map(self._occur_in, texts)))

    def _occur_in(self, text: bytes) -> bool:
        if len(self._found) < SET_MIN:
            return any(map(text.__contains__, self._found))
        parts = (text[at : at + size] for size in self._lengths for at in range(len(text) - size + 1))
        return any(map(self._found.__contains__, parts))
