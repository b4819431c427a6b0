"""Every setting is explained, with the default it really has."""

import re
from typing import Any

import msgspec

from holdfast.settings import Settings
from tests.docs.pages import PAGES, first_cells

PAGE = "docs/settings.md"


def test_every_setting_is_explained_and_every_explained_setting_exists() -> None:
    assert sorted(first_cells(PAGES[PAGE])) == sorted(Settings.__struct_fields__)


def test_the_defaults_on_the_page_are_the_real_ones() -> None:
    said = dict(re.findall(r"(?m)^\| `(\w+)` \| (.*?) \|", PAGES[PAGE]))
    assert said == {name: _shown(value) for name, value in msgspec.to_builtins(Settings()).items()}


def _shown(value: Any) -> str:
    match value:
        case None:
            return "off"
        case "":
            return "empty"
        case str():
            return f"`{value}`"
        case _:
            return str(value)
