"""The documentation site has every page, once; `make docs` builds it, and this needs no MkDocs."""

import importlib.util
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, links

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
GROUPS = ["Start", "Guides", "Operate", "Reference", "Internals"]


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site" / "hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def added() -> dict[str, str]:
    """The pages from the root of the project, and their places in the site."""
    return dict(hooks().ADDED)


def pages(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from pages(entry)
        case dict():
            yield from pages(list(nav.values()))


def test_every_page_is_in_the_navigation_once() -> None:
    ours = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    assert sorted(pages(SITE["nav"])) == sorted([*ours, *added().values()])


def test_the_navigation_has_the_five_groups_and_each_page_lies_in_the_folder_of_its_group() -> None:
    assert [next(iter(group)) for group in SITE["nav"]] == GROUPS
    for group in SITE["nav"]:
        for name, entries in group.items():
            folders = {page.partition("/")[0] for page in pages(entries)}
            assert folders - {"index.md", "performance.md"} == {name.lower()}


def test_the_pages_from_the_root_exist() -> None:
    for path, place in added().items():
        assert (ROOT / path).is_file()
        assert not (ROOT / "docs" / place).exists()


def test_every_decision_is_in_the_list_of_decisions() -> None:
    folder = "docs/internals/decisions/"
    records = {page.removeprefix(folder) for page in PAGES if page.startswith(f"{folder}0")}
    assert records
    assert set(links(f"{folder}index.md")) == records


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="assets/bundle.js"></script><link rel="stylesheet" href="../site.css">', []),
        ('<a href="https://example.com">read</a><svg xmlns="http://www.w3.org/2000/svg"></svg>', []),
        ('<script src="https://unpkg.com/shim"></script>', ["https://unpkg.com/shim"]),
        ('<link rel="preconnect" href="//fonts.example.com">', ["//fonts.example.com"]),
        ('<img src="https://example.com/badge.svg">', ["https://example.com/badge.svg"]),
        ('<pre class="mermaid"><code>stateDiagram-v2</code></pre>', ["Mermaid"]),
    ],
)
def test_a_page_that_loads_something_from_another_host_fails_the_build(html: str, found: list[str]) -> None:
    assert hooks().loaded_from_elsewhere(html) == found


def test_the_theme_adds_no_scripts_or_fonts_of_other_hosts() -> None:
    assert SITE["plugins"] == ["search"], "`offline` and others load scripts from unpkg.com"
    assert SITE["theme"]["font"] is False
