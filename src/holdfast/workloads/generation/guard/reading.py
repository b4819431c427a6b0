"""A text as a sequence of letters: for finding words however they are spaced, repeated or spelled with digits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from holdfast.workloads.generation.guard.normalize import MARKED, latin, without_marks

GRAM = 4

_EMOJI = {chr(first + n): chr(97 + n) for first in (0x1F150, 0x1F170, 0x1F1E6) for n in range(26)}
_SYMBOLS = {**dict(zip("@$!|+€£¢©®", "asiitelccr", strict=True)), **_EMOJI}
_AS_I: dict[int, str] = str.maketrans({**_SYMBOLS, **dict(zip("0123456789", "oizeasgtbg", strict=True))})
_AS_L = {**_AS_I, ord("1"): "l", ord("|"): "l"}

_BETWEEN = re.compile(rf"(?:_|[^\w{MARKED}])++")
_BETWEEN_WITH_SYMBOLS = re.compile(rf"(?:_|[^\w{MARKED}{re.escape(''.join(_SYMBOLS))}])++")
_NO_LETTER = re.compile(rf"\d|_|[^\w{MARKED}]")
_SYMBOL, _I_OR_L = re.compile(f"[{re.escape(''.join(_SYMBOLS))}]"), re.compile("[1|]")
_TWINS = re.compile(r"I(?<=[a-z]I)I*|l(?<=[A-Z]l)l*(?![a-z])")  # a capital I or a small L in the place of the other
_PUNCTUATION = re.compile(r"[!|+]+(?!\w)")
_REPEATED = re.compile(r"(.)\1+", re.DOTALL)
_RUNS = re.compile(r"(.)\1*+", re.DOTALL)
# Scripts without spaces, and Hangul, which attaches particles: words begin and end anywhere.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]"
)


class Reading:
    """`letters` has no separators, and digits and symbols in the place of letters are replaced; `plain` is what they
    were. `skeleton` has one letter for each run of the same one."""

    def __init__(self, text: str, between: re.Pattern[str] = _BETWEEN, as_letters: dict[int, str] = _AS_I) -> None:
        self._text, self._between = text, between
        self.plain = between.sub("", text)
        self.letters = self.plain.translate(as_letters)
        self.skeleton = _REPEATED.sub(r"\1", self.letters)

    @cached_property
    def grams(self) -> set[str]:
        return {self.skeleton[start : start + GRAM] for start in range(len(self.skeleton) - GRAM + 1)}

    @cached_property
    def runs(self) -> list[int]:
        """Where the run of each letter of the skeleton starts; at last, the end."""
        return [*(run.start() for run in _RUNS.finditer(self.letters)), len(self.letters)]

    @cached_property
    def gaps(self) -> dict[int, str]:
        """The separators before letters."""
        gaps, removed = {}, 0
        for gap in self._between.finditer(self._text):
            gaps[gap.start() - removed] = gap[0]
            removed += len(gap[0])
        return gaps

    @cached_property
    def offsets(self) -> list[int]:
        """Where each letter is in the text; at last, the end."""
        separators = {at for gap in self._between.finditer(self._text) for at in range(*gap.span())}
        return [at for at in range(len(self._text) + 1) if at not in separators]

    def run_of(self, letter: int) -> int:
        return bisect_right(self.runs, letter) - 1

    def is_in_number(self, at: int) -> bool:
        return at not in self.gaps and 0 < at < len(self.plain) and self.plain[at - 1 : at + 1].isdigit()

    @cached_property
    def starts(self) -> set[int]:
        """Where words may start. Digits and symbols beside a word do not belong to it."""
        return {0, *self.gaps, *self._inside_unspaced, *(char.end() for char in _NO_LETTER.finditer(self.plain))}

    @cached_property
    def ends(self) -> set[int]:
        no_letters = (char.start() for char in _NO_LETTER.finditer(self.plain))
        return {len(self.plain), *self.gaps, *self._inside_unspaced, *no_letters}

    @cached_property
    def _inside_unspaced(self) -> set[int]:
        return {at for char in _UNSPACED.finditer(self.plain) for at in char.span()}


def readings(text: str) -> Iterator[Reading]:
    """Of a text without marks. Symbols may be separators or letters, and 1 may be I or L."""
    spelled = _TWINS.sub(lambda twins: "1" * len(twins[0]), latin(text)).casefold()
    yield Reading(spelled)
    if _SYMBOL.search(spelled):
        yield Reading(spelled, _BETWEEN_WITH_SYMBOLS)
    if _I_OR_L.search(spelled):
        yield Reading(spelled, _BETWEEN_WITH_SYMBOLS, _AS_L)


def listed(entry: str) -> Reading:
    """Of an entry of a list, whose symbols are letters unless they are punctuation."""
    return Reading(_PUNCTUATION.sub(" ", latin(without_marks(entry)).casefold()), _BETWEEN_WITH_SYMBOLS)


def is_unspaced(letter: str) -> bool:
    return _UNSPACED.match(letter) is not None
