"""Listed words and phrases, and where they occur in a text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard.prefilter import Beginnings, beginning
from holdfast.workloads.generation.guard.reading import (
    DIGITS,
    GAP,
    HARD,
    LETTER,
    LOOSE,
    SYMBOLS,
    Reading,
    accepted,
    is_unspaced,
    listed,
)

LONG = 8  # letters: no other word is spelled with some of these doubled or apart

_NORMAL, _SPACED = 1, 2  # ways to spell a word: as a word, or with a separator between all letters
_TAIL = re.compile(r"-(?:educat\w+|friendly|like|proof|safe|sized?|shaped|tex)\b")  # a child-sized chair is no child

_SYMBOLS_AND_DIGITS = SYMBOLS.keys() | DIGITS.keys()

Span = tuple[int, int]
State = tuple[int, int, int, int]
Step = tuple[frozenset[State], str, int, bool]  # with a character, the separators before it; a word may start there

_FIRST: State = (0, 0, _NORMAL | _SPACED, 0)


class Term(NamedTuple):
    """`breaks`: the separators before the letters that begin another word. A digit has no other spelling: C4 is not
    `ca`. `clear`: nothing else is spelled nearly so."""

    letters: str
    coarse: str
    breaks: tuple[tuple[int, str], ...]
    clear: bool

    @property
    def has_digits(self) -> bool:
        return any(map(str.isdigit, self.letters))

    @property
    def has_spaces(self) -> bool:
        return any(" " in gap for _, gap in self.breaks)

    @property
    def takes_plural(self) -> bool:
        return self.clear and self.letters[-1] in "abcdefghijklmnopqrtuvwxyz"


def terms_of(entry: str) -> set[Term]:
    """One, or several: the letter cases of some scripts look like different Latin letters."""
    cases = {entry} if entry.isascii() else {entry, entry.lower(), entry.upper(), entry.title()}
    return {_term(reading) for case in cases for reading in listed(case)}


def _term(entry: Reading) -> Term:
    letters = entry.plain
    if not letters:
        raise Invalid("it has no letter or digit; use a /pattern/")
    clear = len(letters) >= LONG or any(map(is_unspaced, letters))
    if len(letters) == 1 and not clear:
        raise Invalid("it is a single letter")
    breaks = tuple((at, gap) for at, gap in entry.gaps.items() if 0 < at < len(letters))
    return Term(letters, entry.coarse, breaks, clear)


class Terms:
    """Finds a few of many terms by their first letters, then exactly."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.beginnings = Beginnings()
        self._by_beginning: defaultdict[str, list[Term]] = defaultdict(list)
        self._prefixes: set[str] = set()
        for entry in entries:
            self.add(entry)

    def add(self, entry: str) -> None:
        """Raises `Invalid`."""
        for term in terms_of(entry):
            first = beginning(term.coarse, (at for at, _ in term.breaks))
            self.beginnings.add(first)
            self._by_beginning[first].append(term)
            self._prefixes.update(first[:size] for size in range(1, len(first) + 1))

    def spans(self, reading: Reading) -> Iterator[Span]:
        """The letters of each occurrence."""
        return (span for term in self._candidates(reading) for span in _occurrences(term, reading))

    def verbatim(self, reading: Reading) -> Iterator[Span]:
        """As `spans`, but of those that are spelled as they are listed."""
        for term in self._candidates(reading):
            yield from (span for span in _occurrences(term, reading) if _is_verbatim(term, reading, span))

    def _candidates(self, reading: Reading) -> list[Term]:
        return [term for first in self._beginnings_in(reading) for term in self._by_beginning[first]]

    def _beginnings_in(self, reading: Reading) -> set[str]:
        prefixes, starts, found = self._prefixes, reading.starts, set[str]()
        seen: set[str] = set()  # prefixes that end here
        for at, (char, letter) in enumerate(zip(reading.plain, reading.coarse, strict=True)):
            if seen:
                longer = {prefix if prefix[-1] == letter else prefix + letter for prefix in seen} & prefixes
                seen = seen | longer if char in SYMBOLS else longer
            if at in starts and letter in prefixes:
                seen = {letter, *seen}
            if seen:
                found |= seen
        return found & self._by_beginning.keys()


class _Matcher(dict[Step, tuple[frozenset[State], bool]]):
    """A term as an automaton. Its state: the last letter found, how often it was repeated (2: or more), the ways of
    spelling that are still possible, and the kinds of separators since. The items: which states follow several of them,
    and whether the word may end there."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        letters, breaks = term.letters, dict(term.breaks)
        befores, afters = ["", *letters[:-1]], [*letters[1:], ""]
        inside = 0 if term.clear else LOOSE
        self._clear, self._first_final = term.clear, len(letters) - 1
        self._optional = _SYMBOLS_AND_DIGITS if term.clear else SYMBOLS.keys()  # they may be separators
        self._accepted = [accepted(letter, alike=term.clear) for letter in letters]
        self._repeats = [each != after and not each.isdigit() for each, after in zip(letters, afters, strict=True)]
        self._doubles = [each in (before, after) for before, each, after in zip(befores, letters, afters, strict=True)]
        self._ways = [_ways(_barred(breaks[at]) if at in breaks else inside) for at in range(len(letters))]
        self._ways_inside = [ways | _SPACED for ways in _ways(inside)]
        if term.takes_plural:
            self._accepted.append(accepted("s", alike=False))
            self._ways.append(_ways(GAP))
            self._repeats.append(False)
            self._doubles.append(True)
        self._last = len(self._accepted) - 1
        self._known: dict[tuple[State, str, int], list[State]] = {}

    def starts_with(self, char: str) -> bool:
        return char in self._accepted[0]

    def after(self, state: State, char: str, gap: int) -> list[State]:
        """The states that may follow with this character, and the separators before it."""
        key = state, char, gap
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._after(*key)
        return known

    def _after(self, state: State, char: str, gap: int) -> list[State]:
        letter, extra, ways, before = state
        gap |= before
        found = [(letter, extra, ways, gap | GAP)] if char in self._optional else []
        if self._repeats[letter] and char in self._accepted[letter] and (still := ways & self._ways_inside[gap]):
            found.append((letter, 0 if self._clear else 1 + (extra > 0), still, 0))
        if letter < self._last and char in self._accepted[letter + 1] and self._is_complete(letter, extra):
            still = ways & self._ways[letter + 1][gap]
            found += [(letter + 1, 0, still, 0)] if still else []
        return found

    def __missing__(self, key: Step) -> tuple[frozenset[State], bool]:
        states, char, gap, may_start = key
        following = {after for state in states for after in self.after(state, char, gap)}
        if may_start:
            following.add(_FIRST)
        self[key] = frozenset(following), any(map(self.is_final, following))
        return self[key]

    def is_final(self, state: State) -> bool:
        letter, extra, _, gap = state
        return gap == 0 and letter >= self._first_final and self._is_complete(letter, extra)

    def _is_complete(self, letter: int, extra: int) -> bool:
        """Words with a doubled letter may be other words; there are none with three."""
        return extra != 1 or self._doubles[letter]


def _barred(gap: str) -> int:
    """What must not stand between two words of a phrase. A compound with hyphens is one word."""
    return HARD if gap.isspace() else 0


@cache
def _ways(barred: int) -> list[int]:
    """That are still possible after separators of each kind."""
    return [(0 if gap & barred else _NORMAL) | (_SPACED if gap else 0) for gap in range((GAP | LOOSE | HARD) + 1)]


def _occurrences(term: Term, reading: Reading) -> Iterator[Span]:
    """The shortest to each end, at the boundaries of words."""
    if not (term.has_digits or reading.has_letters):
        return iter(())
    matcher = _Matcher(term)
    starts = [at for at in reading.starts_with.get(term.coarse[0], ()) if matcher.starts_with(reading.plain[at])]
    ends = list(_ends(matcher, reading, starts))
    spans = zip(_starts(matcher, reading, starts, ends), ends, strict=True)
    return (span for span in spans if _is_meant(term, reading, span))


def _ends(matcher: _Matcher, reading: Reading, starts: list[int]) -> Iterator[int]:
    plain, gaps, ends = reading.plain, reading.gap_kinds, reading.ends
    states, at = frozenset[State](), 0
    for start, following in pairwise([*starts, len(plain)]):
        states, is_final = matcher[states, plain[start], gaps.get(start, 0), True]
        at = start + 1
        while True:
            if is_final and at in ends:
                yield at
            if not states or at == following:
                break
            states, is_final = matcher[states, plain[at], gaps.get(at, 0), False]
            at += 1


def _starts(matcher: _Matcher, reading: Reading, starts: list[int], ends: list[int]) -> Iterator[int]:
    """The last before each end."""
    plain, gaps = reading.plain, reading.gap_kinds
    states: dict[State, int] = {}  # and where each started
    may_start, begin = set(starts), starts[0] if starts else 0
    for end in ends:
        for at in range(begin, end):
            char, gap, following = plain[at], gaps.get(at, 0), dict[State, int]()
            for state, start in states.items():
                for after in matcher.after(state, char, gap):
                    if after not in following or following[after] < start:
                        following[after] = start
            if at in may_start:
                following[_FIRST] = at
            states = following
        begin = end
        yield max(start for state, start in states.items() if matcher.is_final(state))


def _is_meant(term: Term, reading: Reading, span: Span) -> bool:
    """Some letter is spelled as one: 455 is a number. C4 is not in C45."""
    if term.has_digits:
        return not any(map(reading.is_in_number, span))
    return LETTER.search(reading.plain, *span) is not None and not (
        term.has_spaces and reading.is_followed_by(_TAIL, span[1])
    )


def _is_verbatim(term: Term, reading: Reading, span: Span) -> bool:
    breaks = {at - span[0] for at in range(span[0] + 1, span[1]) if at in reading.gaps}
    return span[1] - span[0] == len(term.letters) and breaks == {at for at, _ in term.breaks}
