"""docs/guides/outbound-http.md names every limit, rule and error as the code has it; tests/docs runs its examples."""

import inspect
import re
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.net import EgressRules, Limits
from holdfast.server.http.problems import status_of
from tests.docs.pages import blocks, first_cells, section

PAGE = "docs/guides/outbound-http.md"


def test_the_apps_of_the_page_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not run: they request what is not on this machine."""
    monkeypatch.chdir(tmp_path)
    apps = [block for block in blocks(PAGE, "python") if block.file]
    assert len(apps) == 2
    for block in apps:
        exec(compile(block.text, str(block.file), "exec"), {"__name__": "app"})


def test_every_limit_is_on_the_page_with_its_default() -> None:
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (\S+) \|", section(PAGE, "Limits")))
    assert {name: float(text) for name, text in rows.items()} == {
        name: getattr(Limits(), name) for name in Limits.__struct_fields__
    }


def test_every_rule_is_on_the_page() -> None:
    assert first_cells(section(PAGE, "Rules")) == list(inspect.signature(EgressRules).parameters)


def test_every_error_is_on_the_page_of_errors() -> None:
    kinds = [errors.OutboundError, *errors.OutboundError.__subclasses__()]
    assert {kind.code for kind in kinds} == set(first_cells(section("docs/reference/errors.md", "Outbound HTTP")))


def test_a_network_error_in_an_extension_route_has_a_matching_status() -> None:
    told = {kind.code: status_of(kind("no")) for kind in errors.OutboundError.__subclasses__()}
    assert told.pop("address_refused") == 422
    assert told.pop("outbound_timeout") == 504
    assert set(told.values()) == {502}
