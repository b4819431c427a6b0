"""What the pages point at is there: links, headings, files, and the names in those files."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, files, links

# `engine/claim.py`, or `engine/claim.py: claim`, from the root of the project or of the package
_FILE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|sql|md))(?:: (\w+))?`")
# Of the user's making, not ours.
_ELSEWHERE = {"holdfast-postgres.sql"}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_has_a_target(page: str) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(str(target.resolve().relative_to(ROOT))), f"{page} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_name_that_is_mentioned_exists(page: str) -> None:
    saved = files(page, before=len(PAGES[page]))
    for path, name in _FILE.findall(PAGES[page]):
        if path in _ELSEWHERE or path in saved:
            continue
        file = find(path)
        assert file is not None, f"{page} mentions {path}"
        assert not name or defines(file, name), f"{page} says that {path} has {name}"


def test_the_tree_on_the_architecture_page_is_complete() -> None:
    package = ROOT / "src" / "holdfast"
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    tree = PAGES["ARCHITECTURE.md"].partition("## The tree")[2].partition("## ")[0]
    assert {name for name in modules | folders if not re.search(rf"\b{name}", tree)} == set()


def find(path: str) -> Path | None:
    return next((place / path for place in (ROOT, ROOT / "src" / "holdfast") if (place / path).is_file()), None)


def defines(file: Path, name: str) -> bool:
    form = rf"-- name: {name}$" if file.suffix == ".sql" else rf"(class |async def |def )?{name}\b(?(1)[(:]| = )"
    return re.search(rf"(?m)^{form}", file.read_text(encoding="utf-8")) is not None


def test_every_documented_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = set(re.findall(r"`make (\w+)`", "".join(PAGES.values())))
    assert {command for command in told if not re.search(rf"(?m)^{command}:", makefile)} == set()
    assert told >= {"setup", "run", "check", "test", "bench", "mutate"}
