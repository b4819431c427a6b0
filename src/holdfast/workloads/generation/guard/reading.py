"""A text as a sequence of letters: for finding words however they are spaced, repeated or spelled with symbols."""

# ruff: noqa: RUF001  lookalikes are what it is about

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from holdfast.workloads.generation.guard.normalize import MARKED, UNSPACED, latin, out_of_place, without_marks

DIGITS = dict(zip("0123456789", ("o", "il", "z", "e", "a", "s", "gb", "t", "b", "gq"), strict=True))
TWIN = "\u04cf"  # in the place of a capital I or a small L that looks like the other
_EMOJI = {chr(first + n): chr(97 + n) for first in (0x1F150, 0x1F170, 0x1F1E6) for n in range(26)}
_DRAWN = {"()": "\U0001f17e", "[]": "\U0001f17e", "{}": "\U0001f17e", "|)": "\U0001f173", "|=": "\U0001f175"}
_DRAWN["\\/\\/"] = "\U0001f186"
_SIGNS = {"@": "a", "$": "s", "!": "il", "|": "il", "+": "t"} | {
    sign: letter
    for letter, signs in {
        "a": "∆△▲∀₳",
        "b": "฿",
        "c": "¢©₵",
        "d": "∂",
        "e": "€℮∑∃",
        "f": "₣",
        "g": "₲",
        "k": "₭",
        "l": "£꒒",
        "m": "₥",
        "n": "∩₦",
        "o": "°•●○◯⭕⚪⚫∘∅⊙◎¤๏⦿",
        "p": "₱℘",
        "r": "®",
        "s": "§₴",
        "t": "†‡✝✞┬₮⊤꓄",
        "u": "∪",
        "v": "√∨",
        "w": "₩",
        "x": "×✕✖✗✘❌",
        "y": "¥",
    }.items()
    for sign in signs
}
SYMBOLS = _SIGNS | _EMOJI  # each may also be a separator
_READ_AS = {TWIN: "il"} | DIGITS | SYMBOLS

# Letters that the same character may stand for are one letter here, and W is V, because VV is W.
_SAME = str.maketrans("lgqw", "ibbv")
COARSE = _SAME | {ord(char): ord(letters[0].translate(_SAME)) for char, letters in _READ_AS.items()}

GAP, LOOSE, HARD = 1, 2, 4  # kinds of separators: any, such as are between words, such as are between sentences

LETTER = re.compile(r"[^\W\d_]|[^\x00-\x7f]")  # no digit or symbol in the place of one
_LETTER = rf"\w{MARKED}"
_SYMBOL_CLASS = re.escape("".join(SYMBOLS))
_BETWEEN = re.compile(rf"(?:_|[^{_LETTER}{_SYMBOL_CLASS}])++")
_NO_LETTER = re.compile(rf"[\d_{TWIN}]|[^{_LETTER}]")
_SPACE = re.compile(r"[\s'/,;:]")  # between letters they are not a way to spell one word: he'll, pen is
_STOP = re.compile(r"[,;:\u3001\u3002]|(?<![.])[.?]\s")
DRAWING = re.compile("|".join(map(re.escape, _DRAWN)))
_TWINS = re.compile(r"I(?<=[a-z]I)I*|l(?<=[A-Z]l)l*(?![a-z])")
_DOUBLE_V = re.compile("vv", re.IGNORECASE)
_TWO_WORDS = re.compile(r"(?<![a-zA-Z])(?:[A-Z]{2,}(?=-[a-z]{2})|[A-Z][a-z]*(?=-[A-Z][a-z]))")  # LOL-icon, C-Sam
_PUNCTUATION = re.compile(r"[!|+]+(?!\w)")
_UNSPACED = re.compile(f"[{UNSPACED}]")  # words begin and end anywhere


class Reading:
    """`plain` has no separators; `coarse` has one letter for all that look alike."""

    def __init__(self, text: str, cased: str = "") -> None:
        self._text, self._cased = text, cased
        self.plain = _BETWEEN.sub("", text)
        self.coarse = self.plain.translate(COARSE)

    @cached_property
    def has_letters(self) -> bool:
        return LETTER.search(self.plain) is not None

    @cached_property
    def gaps(self) -> dict[int, str]:
        """The separators before letters."""
        gaps, removed = {}, 0
        for gap in _BETWEEN.finditer(self._text):
            gaps[gap.start() - removed] = gap[0]
            removed += len(gap[0])
        return gaps

    @cached_property
    def gap_kinds(self) -> dict[int, int]:
        kinds = {at: _kind(gap) for at, gap in self.gaps.items()}
        if len(self._cased) == len(self._text) and "-" in self._text:
            offsets = self.offsets
            dashes = {dash.end() for dash in _TWO_WORDS.finditer(self._cased)}
            kinds.update((at, GAP | LOOSE) for at, gap in self.gaps.items() if gap == "-" and offsets[at] - 1 in dashes)
        return kinds

    @cached_property
    def offsets(self) -> list[int]:
        """Where each letter is in the text; at last, the end."""
        separators = {at for gap in _BETWEEN.finditer(self._text) for at in range(*gap.span())}
        return [at for at in range(len(self._text) + 1) if at not in separators]

    def is_in_number(self, at: int) -> bool:
        return at not in self.gaps and 0 < at < len(self.plain) and self.plain[at - 1 : at + 1].isdigit()

    def is_followed_by(self, pattern: re.Pattern[str], letter: int) -> bool:
        """By separators and letters that match it."""
        return pattern.match(self._text, self.offsets[letter - 1] + 1) is not None

    @cached_property
    def starts(self) -> set[int]:
        """Where words may start. Digits and symbols beside a word do not belong to it."""
        return {0, *self.gaps, *self._inside_unspaced, *(char.end() for char in _NO_LETTER.finditer(self.plain))}

    @cached_property
    def ends(self) -> set[int]:
        no_letters = (char.start() for char in _NO_LETTER.finditer(self.plain))
        return {len(self.plain), *self.gaps, *self._inside_unspaced, *no_letters}

    @cached_property
    def starts_with(self) -> dict[str, list[int]]:
        """Where words may start with each coarse letter, in order."""
        found = defaultdict(list)
        for at in sorted(self.starts):
            found[self.coarse[at : at + 1]].append(at)
        return found

    @cached_property
    def _inside_unspaced(self) -> set[int]:
        return {at for char in _UNSPACED.finditer(self.plain) for at in char.span()}


def readings(text: str) -> Iterator[Reading]:
    """Of a text without marks."""
    yield _reading(text)
    if (replaced := out_of_place(text)) != text:
        yield _reading(replaced)


def _reading(text: str) -> Reading:
    drawn = DRAWING.sub(lambda drawing: _DRAWN[drawing[0]], latin(text))
    cased = _DOUBLE_V.sub("w", _TWINS.sub(lambda twins: TWIN * len(twins[0]), drawn))
    return Reading(cased.casefold(), cased)


def listed(entry: str) -> Iterator[Reading]:
    """Of an entry of a list, whose symbols are letters unless they are punctuation. VV may be W there, too."""
    text = _PUNCTUATION.sub(" ", latin(without_marks(entry)).casefold())
    spelled = text.translate({ord(symbol): letters[0] for symbol, letters in SYMBOLS.items()})
    return map(Reading, {spelled, _DOUBLE_V.sub("w", spelled)})


def accepted(letter: str, *, alike: bool) -> str:
    """The characters that may stand for a letter. `alike`: I and L also for each other."""
    if alike and letter in "il":
        return _SPELLINGS["i"] + _SPELLINGS["l"]
    return _SPELLINGS.get(letter, letter)


def is_unspaced(letter: str) -> bool:
    return _UNSPACED.match(letter) is not None


def _kind(gap: str) -> int:
    return GAP | (LOOSE if _SPACE.search(gap) else 0) | (HARD if _STOP.search(gap) else 0)


def _spellings() -> dict[str, str]:
    found: defaultdict[str, str] = defaultdict(str)
    for char, letters in _READ_AS.items():
        for letter in letters:
            found[letter] += char
    return {letter: letter + chars for letter, chars in found.items()}


_SPELLINGS = _spellings()
