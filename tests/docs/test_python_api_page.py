"""The page on the Python API names every public name, with the parameters and defaults that it really has."""

import importlib
import inspect
import re
from operator import attrgetter
from typing import Any

import pytest

from holdfast import errors
from tests.docs.pages import PAGES

PAGE = PAGES["docs/reference/python-api.md"]
PARTS = dict(re.findall(r"(?ms)^## (holdfast[.\w]*)\n(.*?)(?=^## |\Z)", PAGE))
# Public in name, but for those who read the core.
INNER = {"holdfast.lifecycle": {"BIT", "BUILT_IN", "DEFAULT", "FINAL", "PAIRS", "STATUS", "VERBS"}}


def cells(text: str) -> list[str]:
    return [cell for row in re.findall(r"(?m)^\| (`.*?`) \|", text) for cell in re.findall(r"`([^`]+)`", row)]


def public(module: str) -> set[str]:
    if module == "holdfast.errors":
        classes = inspect.getmembers(errors, inspect.isclass)
        return {name for name, of in classes if of.__module__ == module and not name.startswith("_")}
    return set(importlib.import_module(module).__all__) - INNER.get(module, set())


@pytest.mark.parametrize("module", PARTS)
def test_every_public_name_is_on_the_page(module: str) -> None:
    told = {re.split(r"[.(]", cell)[0] for cell in cells(PARTS[module])}
    assert told == public(module)


@pytest.mark.parametrize("module", PARTS)
def test_each_name_takes_the_documented_parameters(module: str) -> None:
    for cell in cells(PARTS[module]):
        name, called, parameters = cell.partition("(")
        thing = attrgetter(name)(importlib.import_module(module))
        if called:
            real = list(inspect.signature(thing).parameters.values())
            if inspect.isroutine(thing) and "." in name:
                real = real[1:]  # self
            assert told(parameters.removesuffix(")")) == [described(parameter) for parameter in real], cell


def test_the_names_of_other_modules_exist() -> None:
    names = re.findall(r"(?m)^\| `(holdfast\.[\w.]+)` \|", PAGE)
    assert names
    for name in names:
        module, _, thing = name.rpartition(".")
        assert hasattr(importlib.import_module(module), thing), name


def told(parameters: str) -> list[tuple[str, Any, str]]:
    scope: dict[str, Any] = {}
    exec(f"def function({parameters}): pass", scope)
    return [described(parameter) for parameter in inspect.signature(scope["function"]).parameters.values()]


def described(parameter: inspect.Parameter) -> tuple[str, Any, str]:
    """Name, kind and default; on the page `...` stands for a default that is too long to show."""
    default = parameter.default
    plain = default is None or default is parameter.empty or isinstance(default, str | bytes | int | float)
    short = isinstance(default, tuple) and len(default) < 3
    return parameter.name, parameter.kind, repr(default) if plain or short else "..."
