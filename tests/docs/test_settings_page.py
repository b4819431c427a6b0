"""Every setting is explained, with the default it really has."""

import re
from typing import Any

from holdfast.settings import NAMES, RANGES, Settings
from tests.docs.generate import SETTINGS, bundled, with_settings
from tests.docs.pages import PAGES, first_cells

PAGE = PAGES["docs/reference/settings.md"]
OWN = PAGE.partition(SETTINGS)[0]  # without those of extensions
ROWS = re.findall(r"(?m)^\| `(\w+)` \| (.*?) \| (.*?) \|", OWN)
UNLIMITED = 10**9 - 1


def test_every_setting_is_explained_and_every_explained_setting_exists() -> None:
    assert sorted(first_cells(OWN)) == sorted(NAMES)


def test_the_settings_of_bundled_extensions_are_up_to_date() -> None:
    assert with_settings(PAGE, bundled()) == PAGE, "run `python -m tests.docs.generate`"
    assert {variable for section in bundled() for variable in section.variables} >= {*first_cells(PAGE)} - {*NAMES}


def test_the_defaults_on_the_page_are_the_real_ones() -> None:
    said = {name: default for name, default, _ in ROWS}
    assert said == {name: _shown(value) for name in NAMES for value in [getattr(Settings(), name)]}


def test_the_allowed_values_on_the_page_are_the_real_ones() -> None:
    said = {name: allowed for name, _, allowed in ROWS if allowed}
    assert said == {name: _range(least, most) for name, (least, most) in RANGES.items()}


def _range(least: float, most: float) -> str:
    if most < UNLIMITED:
        return f"{least:,} to {most:,}"
    return f"{least:,} or more" if isinstance(least, int) else "more than 0"


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
