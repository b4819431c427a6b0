"""Decides whether a prompt has listed words or patterns, with the lists of the moment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate, chain
from pathlib import Path

from holdfast.workloads.generation.guard.lists import ListFile, parse_allowlist, parse_blocklist
from holdfast.workloads.generation.guard.normalize import latin, prepare, without_marks
from holdfast.workloads.generation.guard.patterns import Pattern
from holdfast.workloads.generation.guard.prefilter import folded
from holdfast.workloads.generation.guard.reading import Reading, readings
from holdfast.workloads.generation.guard.terms import Span, Terms

BUILT_IN, BLOCKLIST, PATTERN = "built_in", "blocklist", "pattern"
CHECK_SECONDS = 1.0


class PromptGuard:
    """Files that are invalid at the start are an error (`Invalid`); when they become so later, `problem` says it, and
    the previous lists stay in force."""

    def __init__(self, blocklist_file: str = "", allowlist_file: str = "", *, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._checked = monotonic, monotonic()
        self._blocked = ListFile(blocklist_file, parse_blocklist)
        self._allowed = ListFile(allowlist_file, parse_allowlist)
        _built_in()
        prepare()

    @property
    def problem(self) -> str | None:
        self._refresh()
        return "; ".join(filter(None, (self._blocked.problem, self._allowed.problem))) or None

    def refuses(self, *texts: str) -> str | None:
        """The category of the first refusal, or None. It does not tell which word it was."""
        self._refresh()
        return next(filter(None, map(self._category, filter(None, texts))), None)

    def _refresh(self) -> None:
        now = self._monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._blocked.refresh()
            self._allowed.refresh()

    def _category(self, text: str) -> str | None:
        clean = without_marks(text)
        lists = self._lists_in_question(clean)
        for reading in readings(clean) if lists else ():
            for category, terms in lists:
                if self._has(terms, reading):
                    return category
        return PATTERN if self._has_pattern(clean) else None

    def _lists_in_question(self, clean: str) -> list[tuple[str, Terms]]:
        every = [(BUILT_IN, _built_in()), (BLOCKLIST, self._blocked.content.terms)]
        if not clean.isascii():
            return every
        quick = folded(clean)
        return [(category, terms) for category, terms in every if terms.beginnings.occur_in(quick)]

    def _has(self, terms: Terms, reading: Reading) -> bool:
        found = terms.spans(reading)
        if (first := next(found, None)) is None:
            return False
        return not _Cover(self._allowed.content.verbatim(reading)).has_all(chain([first], found))

    def _has_pattern(self, clean: str) -> bool:
        patterns = self._blocked.content.patterns
        if not patterns:
            return False
        clean = clean.encode(errors="replace").decode()  # without lone surrogates, which RE2 cannot read
        return any(self._matches(patterns, text) for text in {clean.casefold(), latin(clean).casefold()})

    def _matches(self, patterns: Iterable[Pattern], text: str) -> bool:
        found = (match.span() for pattern in patterns for match in pattern.finditer(text))
        if (first := next(found, None)) is None:
            return False
        reading = Reading(text)
        letters, offsets = self._allowed.content.verbatim(reading), reading.offsets
        return not _Cover((offsets[start], offsets[end - 1] + 1) for start, end in letters).has_all(
            chain([first], found)
        )


class _Cover:
    """Spans that are allowed."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._ends = list(accumulate((end for _, end in ordered), max))

    def has_all(self, spans: Iterable[Span]) -> bool:
        return all(map(self._has, spans))

    def _has(self, span: Span) -> bool:
        before = bisect_right(self._starts, span[0])
        return before > 0 and self._ends[before - 1] >= span[1]


@cache
def _built_in() -> Terms:
    return parse_blocklist(Path(__file__).with_name("blocklist.txt").read_text(encoding="utf-8")).terms
