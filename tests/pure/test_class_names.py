"""One name means one thing: no class name is used for two classes of different modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"
BY_CONVENTION = {"Settings"}  # of Holdfast, and of each extension


def test_no_class_name_is_used_twice() -> None:
    used: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in BY_CONVENTION:
                used[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in used.items() if len(places) > 1} == {}
