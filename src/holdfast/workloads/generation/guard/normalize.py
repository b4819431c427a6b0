"""Prompts and listed words in one spelling: without accents and invisible characters, lookalikes as Latin letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def _letters_and_marks(*ranges: range) -> str:
    """The inside of a character class."""
    chars = (chr(code) for codes in ranges for code in codes)
    return "".join(char for char in chars if unicodedata.category(char)[0] in "LM")


# Scripts whose combining marks are vowels, or make another letter: they stay there, and only there.
MARKED = _letters_and_marks(range(0x900, 0x10A0), range(0x1780, 0x1800), range(0x3041, 0x3100))
# Scripts without spaces, and Hangul, which attaches particles. The inside of a character class.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u3041-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff"
)

_WITH_MARKS = (range(0x80, 0x20000), range(0xE0000, 0xE0200))
_INVISIBLE = "\u115f\u1160\u17b4\u17b5\u3164\uffa0\u0640\u07fa"  # letters by their category; two stretch words
_LATIN = tuple(
    range(*bounds) for bounds in ((0xC0, 0x2B0), (0x1D00, 0x1DC0), (0x2C60, 0x2C80), (0xA720, 0xA800), (0xAB30, 0xAB70))
)
_LATIN_NAME = re.compile(
    r"LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL )?"
    r"(?:OPEN |REVERSED |SCRIPT |DOTLESS |INSULAR |TURNED |BARRED |LENIS |BLACKLETTER |SIDEWAYS |STRETCHED )?"
    r"([A-Z])(?: WITH .*)?"
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


def out_of_place(text: str) -> str:
    """Letters of scripts without spaces as the Latin letters or dashes that they look like, where there are only such
    ones in a row."""
    if text.isascii():
        return text
    alone, table = _foreign()
    return alone.sub(lambda found: found[0].translate(table), latin(text))


def prepare() -> None:
    """Make the tables, which takes some 15 ms, before the first text needs them."""
    out_of_place(without_marks("\u00e9"))


@cache
def _replaced_marks() -> dict[int, str | None]:
    """Digits of all scripts are replaced, too, and those in circles."""
    kept = set(_kept_marks())
    table: dict[int, str | None] = dict.fromkeys(map(ord, _INVISIBLE))
    for code in (code for codes in _WITH_MARKS for code in codes):
        category = unicodedata.category(chr(code))
        if category in ("Mn", "Me", "Cf") and chr(code) not in kept:
            table[code] = None
        elif (digit := unicodedata.digit(chr(code), None)) is not None:
            table[code] = str(digit)
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
    alike = [(letter, other) for letter, other in _lookalikes() if letter[0] != "+"]
    table = {ord(other): letter for letter, other in alike}
    for letter, other in alike:
        for code in map(ord, other.lower() + other.upper()):
            table.setdefault(code, letter)
    for code in (code for codes in _LATIN for code in codes):
        if named := _LATIN_NAME.fullmatch(unicodedata.name(chr(code), "")):
            table.setdefault(code, named[1].lower())
    return table


@cache
def _foreign() -> tuple[re.Pattern[str], dict[int, str]]:
    table = {ord(other): letter[1] for letter, other in _lookalikes() if letter[0] == "+"}
    some = "".join(map(chr, table))
    return re.compile(f"(?<![{UNSPACED}])[{some}]+(?![{UNSPACED}])"), table


def _lookalikes() -> Iterator[tuple[str, str]]:
    lines = Path(__file__).with_name("lookalikes.txt").read_text(encoding="utf-8").splitlines()
    alike = (line.split() for line in lines if not line.startswith("# "))
    return ((letter, other) for letter, others in alike for other in others)
