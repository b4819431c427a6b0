"""A plugin for runs against a mutant: tests that are named for the statement it weakens come first."""

import os

import pytest

from tests.mutation.mutants import VARIABLE


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    area = os.environ[VARIABLE].partition("/")[0]
    items.sort(key=lambda item: area not in item.name)
