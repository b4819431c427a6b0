"""The project's pages and what stands in them: fenced blocks, sections, tables, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
}

_FENCED = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")
_HEADING = re.compile(r"(?m)^#+ (.*)$")
_FILE = re.compile(r"(?:#|--) ([\w/-]+\.(?:py|toml|sql))\n")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block, where it stands, and the text block right behind it: what it prints."""

    page: str
    heading: str
    line: int
    language: str
    text: str
    prints: str | None

    @property
    def file(self) -> str | None:
        """The name to save it under, if its first line is a comment that says so."""
        named = _FILE.match(self.text)
        return named[1] if named else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, language: str) -> Iterator[Block]:
    text = PAGES[page]
    found = list(_FENCED.finditer(text))
    for place, match in enumerate(found):
        if match[1] == language:
            after = found[place + 1] if place + 1 < len(found) else None
            answers = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
            yield Block(
                page,
                (_HEADING.findall(_FENCED.sub("", text[: match.start()])) or [""])[-1],
                text.count("\n", 0, match.start()) + 1,
                language,
                match[2],
                after[2] if after and answers else None,
            )


def files(page: str, before: int) -> dict[str, str]:
    """What the page has saved before this line, by file name; the last of a name counts."""
    named = (block for language in ("python", "toml", "sql") for block in blocks(page, language))
    return {block.file: block.text for block in named if block.file and block.line < before}


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    _, _, rest = PAGES[page].partition(f"# {heading}\n")
    assert rest, f"{page} has no section {heading!r}"
    return _HEADING.split(rest, maxsplit=1)[0]


def first_cells(text: str) -> list[str]:
    """The first cell of each row of each table, if it is one word in backticks."""
    return re.findall(r"(?m)^\| `([^`|]+)` +\|", text)


def links(page: str) -> list[str]:
    return [link for link in _LINK.findall(PAGES[page]) if "://" not in link]


def anchors(page: str) -> set[str]:
    """What `page.md#...` may end in, as GitHub makes it from the headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(PAGES[page])}
