"""Listed words and phrases, and where they occur in a text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard.prefilter import Beginnings
from holdfast.workloads.generation.guard.reading import GRAM, Reading, is_unspaced, listed

LONG = 8  # letters: no other word is spelled with some of these doubled or apart

_LOOSE = re.compile(r"[\s'/,;:]")  # between letters they are not a way to spell one word: he'll, pen is

Span = tuple[int, int]


class Term(NamedTuple):
    """`counts`: how often each letter of the skeleton is repeated. `breaks`: the letters before which a word starts.
    `digits` are no other spelling of a letter: C4 is not `ca`. `clear`: nothing else is spelled nearly so."""

    skeleton: str
    counts: tuple[int, ...]
    breaks: frozenset[int]
    digits: tuple[tuple[int, str], ...]
    clear: bool

    @property
    def size(self) -> int:
        return sum(self.counts)

    def repeats(self, letter: int, count: int) -> bool:
        """Words with a doubled letter may be other words; there are none with three."""
        wanted = self.counts[letter]
        return count == wanted or (count > wanted and (self.clear or count > 2))


def terms_of(entry: str) -> set[Term]:
    """One, or several: the letter cases of some scripts look like different Latin letters."""
    cases = {entry} if entry.isascii() else {entry, entry.lower(), entry.upper(), entry.title()}
    return {_term(listed(case)) for case in cases}


def _term(entry: Reading) -> Term:
    if not entry.letters:
        raise Invalid("it has no letter or digit; use a /pattern/")
    clear = len(entry.letters) >= LONG or any(map(is_unspaced, entry.letters))
    if len(entry.letters) == 1 and not clear:
        raise Invalid("it is a single letter")
    spans = list(pairwise(entry.runs))
    return Term(
        skeleton=entry.skeleton,
        counts=tuple(end - start for start, end in spans),
        breaks=frozenset(entry.run_of(at) for at in entry.gaps if 0 < at < len(entry.letters)),
        digits=tuple(
            (run, char) for run, (start, end) in enumerate(spans) for char in entry.plain[start:end] if char.isdigit()
        ),
        clear=clear,
    )


class Terms:
    """Finds a few of many terms: by the first letters of their skeletons, then by these, then exactly."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.beginnings = Beginnings()
        self._short: list[Term] = []
        self._by_gram: defaultdict[str, list[Term]] = defaultdict(list)
        for entry in entries:
            self.add(entry)

    def add(self, entry: str) -> None:
        """Raises `Invalid`."""
        for term in terms_of(entry):
            self.beginnings.add(term.skeleton)
            if len(term.skeleton) < GRAM:
                self._short.append(term)
            else:
                self._by_gram[term.skeleton[:GRAM]].append(term)

    def spans(self, reading: Reading) -> Iterator[Span]:
        """The letters of each occurrence."""
        return (span for term in self._candidates(reading) for span in _occurrences(term, reading))

    def verbatim(self, reading: Reading) -> Iterator[Span]:
        """As `spans`, but of those that are spelled as they are listed."""
        for term in self._candidates(reading):
            yield from (span for span in _occurrences(term, reading) if _is_verbatim(term, reading, span))

    def _candidates(self, reading: Reading) -> Iterator[Term]:
        yield from self._short
        if self._by_gram:
            for gram in self._by_gram.keys() & reading.grams:
                yield from self._by_gram[gram]


def _occurrences(term: Term, reading: Reading) -> Iterator[Span]:
    first = reading.skeleton.find(term.skeleton)
    while first >= 0:
        span = _span(term, reading, first)
        if span and _has_letters(term, reading, span) and _is_spaced_like_one(term, reading, span):
            yield span
        first = reading.skeleton.find(term.skeleton, first + 1)


def _span(term: Term, reading: Reading, first: int) -> Span | None:
    """The letters of an occurrence that starts in this run, at the boundaries of words."""
    starts = list(filter(reading.starts.__contains__, range(reading.runs[first], reading.runs[first + 1])))
    if not starts:
        return None
    runs, last = reading.runs[first : first + len(term.counts) + 1], len(term.counts) - 1
    if not all(term.repeats(run, runs[run + 1] - runs[run]) for run in range(1, last)):
        return None
    ends = filter(reading.ends.__contains__, range(runs[last + 1], runs[last], -1))
    if last == 0:
        start, end = starts[0], next(ends, starts[0])
        return (start, end) if term.repeats(0, end - start) else None
    start = next((start for start in starts if term.repeats(0, runs[1] - start)), -1)
    end = next((end for end in ends if term.repeats(last, end - runs[last])), -1)
    return (start, end) if start >= 0 and end >= 0 else None


def _has_letters(term: Term, reading: Reading, span: Span) -> bool:
    """Some letter is spelled as one: 455 is a number. C4 is neither in `ca` nor in C45."""
    if not term.digits:
        return any(char.isalpha() or not char.isascii() for char in reading.plain[slice(*span)])
    first, runs = reading.run_of(span[0]), reading.runs
    digits = (digit in reading.plain[runs[first + run] : runs[first + run + 1]] for run, digit in term.digits)
    return all(digits) and not any(map(reading.is_in_number, span))


def _is_spaced_like_one(term: Term, reading: Reading, span: Span) -> bool:
    """Separators are between words, or between all letters, or such as are not between words of a sentence."""
    if term.clear:
        return True
    first = reading.run_of(span[0])
    inside = [at for at in range(span[0] + 1, span[1]) if at in reading.gaps]
    if all(reading.run_of(at) - first in term.breaks or not _LOOSE.search(reading.gaps[at]) for at in inside):
        return True
    starts = reading.runs[first + 1 : first + len(term.counts)]
    return len(inside) >= term.size - 1 and all(start in reading.gaps for start in starts)


def _is_verbatim(term: Term, reading: Reading, span: Span) -> bool:
    first = reading.run_of(span[0])
    breaks = {reading.run_of(at) - first for at in range(span[0] + 1, span[1]) if at in reading.gaps}
    return span[1] - span[0] == term.size and breaks == term.breaks
