"""Prompts and listed words in one spelling: without accents and invisible characters, lookalikes as Latin letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Scripts whose combining marks are vowels, or make another letter: they stay there, and only there.
MARKED = "\u0900-\u0963\u0966-\u109f\u1780-\u17ff\u3041-\u30ff"

_WITH_MARKS = (range(0x80, 0x20000), range(0xE0000, 0xE0200))
_INVISIBLE = "\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters by their category
_LATIN = tuple(
    range(*bounds) for bounds in ((0xC0, 0x2B0), (0x1D00, 0x1DC0), (0x2C60, 0x2C80), (0xA720, 0xA800), (0xAB30, 0xAB70))
)
_LATIN_NAME = re.compile(
    r"LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL )?"
    r"(?:OPEN |REVERSED |SCRIPT |DOTLESS |INSULAR |TURNED |BARRED )?([A-Z])(?: WITH .*)?"
)


def without_marks(text: str) -> str:
    """The compatibility form, without accents and invisible characters. Letter case stays."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text).translate(_replaced_marks())
    return unicodedata.normalize("NFC", _stray_marks().sub("", decomposed))


def latin(text: str) -> str:
    """Characters that look like Latin letters as these."""
    return text if text.isascii() else text.translate(_latin())


def prepare() -> None:
    """Make the tables, which takes some 15 ms, before the first text needs them."""
    latin(without_marks("\u00e9"))


@cache
def _replaced_marks() -> dict[int, str | None]:
    """Digits of all scripts are replaced, too."""
    kept = set(_kept_marks())
    table: dict[int, str | None] = dict.fromkeys(map(ord, _INVISIBLE))
    for code in (code for codes in _WITH_MARKS for code in codes):
        category = unicodedata.category(chr(code))
        if category in ("Mn", "Me", "Cf") and chr(code) not in kept:
            table[code] = None
        elif category == "Nd":
            table[code] = str(unicodedata.digit(chr(code)))
    return table


@cache
def _stray_marks() -> re.Pattern[str]:
    return re.compile(f"(?<![{MARKED}])[{''.join(_kept_marks())}]+")


def _kept_marks() -> Iterator[str]:
    marked = re.compile(f"[{MARKED}\u3099\u309a]")
    marks = (char for char in map(chr, range(0x900, 0x3100)) if unicodedata.category(char) in ("Mn", "Mc"))
    return filter(marked.match, marks)


@cache
def _latin() -> dict[int, str]:
    _comment, *lines = Path(__file__).with_name("lookalikes.txt").read_text(encoding="utf-8").splitlines()
    alike = [(other, letter) for letter, others in map(str.split, lines) for other in others]
    table = {ord(other): letter for other, letter in alike}
    for other, letter in alike:
        for code in map(ord, other.lower() + other.upper()):
            table.setdefault(code, letter)
    for code in (code for codes in _LATIN for code in codes):
        if named := _LATIN_NAME.fullmatch(unicodedata.name(chr(code), "")):
            table.setdefault(code, named[1].lower())
    return table
