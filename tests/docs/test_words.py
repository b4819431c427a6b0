"""Pages for users name their actors (the worker, the client, the operator), and no requirement by its number."""

import re

import pytest

from tests.docs.pages import PAGES

_CODE = re.compile(r"(?ms)^```.*?^```$|`[^`]*`")
_ACTORS = re.compile(r"\b(?:whoever|somebody|someone|nobody|anybody|anyone|everybody|everyone)\b", re.IGNORECASE)
_NUMBERS = re.compile(r"\bR\d{3}-\d+\b")
READ_BY_USERS = [page for page in PAGES if page not in {"ARCHITECTURE.md", "CHANGELOG.md", "AGENTS.md"}]


@pytest.mark.parametrize("page", READ_BY_USERS)
def test_the_page_names_its_actors_and_no_requirement(page: str) -> None:
    text = _CODE.sub("", PAGES[page])
    assert _ACTORS.findall(text) == []
    assert _NUMBERS.findall(text) == []
