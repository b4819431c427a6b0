"""Lists of words, phrases and patterns, and files of them that are read again when they change."""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard.patterns import Pattern, compiled
from holdfast.workloads.generation.guard.terms import Terms

MAX_BYTES, MAX_LINES = 2**20, 100_000

Parsed = TypeVar("Parsed")
Stamp = tuple[int, int, int]

log = logging.getLogger(__name__)


class WordList(NamedTuple):
    terms: Terms
    patterns: tuple[Pattern, ...]


def parse_blocklist(text: str) -> WordList:
    """An entry per line: words, or a /pattern/; `#` starts a comment. Raises `Invalid` with the number of the line."""
    terms, patterns = Terms(), []
    lines = text.split("\n")
    if len(lines) > MAX_LINES + 1:
        raise Invalid(f"{MAX_LINES + 1}: there are more than {MAX_LINES} lines")
    for number, line in enumerate(map(str.strip, lines), 1):
        try:
            if re.fullmatch("/.+/", line):
                patterns.append(compiled(line[1:-1]))
            elif line and not line.startswith("#"):
                terms.add(line)
        except Invalid as error:
            raise Invalid(f"{number}: {error.message}") from None
    return WordList(terms, tuple(patterns))


def parse_allowlist(text: str) -> Terms:
    """As `parse_blocklist`, without patterns."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.fullmatch("/.+/", line.strip()):
            raise Invalid(f"{number}: a pattern cannot be allowed; list the phrase")
    return parse_blocklist(text).terms


class ListFile(Generic[Parsed]):
    """`content` is that of the last valid version; `problem` says what is wrong with a newer one. No path: empty."""

    def __init__(self, path: str, parse: Callable[[str], Parsed]) -> None:
        self._path, self._parse = path, parse
        self._stamp: Stamp | None = None
        self.problem: str | None = None
        self.content = self._load() if path else parse("")

    def refresh(self) -> None:
        """Read the file if it has changed."""
        if self._path:
            try:
                if self._stamp != self._stamp_now():
                    self.content, self.problem = self._load(), None
            except Invalid as error:
                self._report(error.message)

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s; the previous list stays in force", problem)
        self.problem = problem

    def _load(self) -> Parsed:
        self._stamp = self._stamp_now()  # before reading: a later change is another one
        try:
            return self._parse(self._text())
        except Invalid as error:
            raise Invalid(f"{self._path}:{error.message}") from None

    def _stamp_now(self) -> Stamp:
        try:
            found = Path(self._path).stat()
        except (OSError, ValueError) as error:
            raise self._unreadable(str(error)) from None
        if not stat.S_ISREG(found.st_mode):
            raise self._unreadable("it is not a file")
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _unreadable(self, why: str) -> Invalid:
        self._stamp = None  # when it is back, it is read again
        return Invalid(f"{self._path} cannot be read: {why}")

    def _text(self) -> str:
        try:
            with Path(self._path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            self._stamp = None
            raise Invalid(f" {error}") from None
        if len(data) > MAX_BYTES:
            raise Invalid(f" the file is larger than {MAX_BYTES} bytes")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Invalid(f"{line}: this is not UTF-8") from None
