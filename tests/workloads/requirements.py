"""Checks the table of a service that says which tests show each of its requirements."""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


class RequirementsTable:
    """`shown`: the tests of each requirement, `path::name`; a name alone is a test of `file`, which says in its
    docstring what it shows: `R004-3, R004-6..8`."""

    def __init__(self, shown: Mapping[str, Sequence[str]], file: str) -> None:
        self._shown, self._file = shown, Path(file)
        self._document = next(iter(shown)).partition("-")[0]

    def check_tests_exist(self, *, last: int) -> None:
        assert {*self._shown} == {f"{self._document}-{number}" for number in range(1, last + 1)}
        for requirement, names in self._shown.items():
            assert names
            for name in names:
                path, separator, function = name.rpartition("::")
                found = _docstrings(ROOT / path if separator else self._file)
                assert function in found, f"{requirement}: {name}"

    def check_docstrings(self) -> None:
        for name, text in _docstrings(self._file).items():
            assert self._named_in(text) == {each for each, shown in self._shown.items() if name in shown}, name

    def _named_in(self, text: str) -> set[str]:
        ranges = re.findall(rf"{self._document}-(\d+)(?:\.\.(\d+))?", text)
        return {
            f"{self._document}-{number}"
            for first, last in ranges
            for number in range(int(first), int(last or first) + 1)
        }


@cache
def _docstrings(path: Path) -> dict[str, str]:
    """Of each test in the file."""
    body = ast.parse(path.read_text()).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}
