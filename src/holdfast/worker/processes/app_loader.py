"""Imports an app by its reference: `module:attribute`, or `path/to/file.py:attribute` for a script."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import Invalid

RUN_NAME = "__holdfast_main__"  # not __main__: the script must not start another worker


def load(reference: str, path: list[str]) -> Any:
    """Import it with `path` at the front of `sys.path`."""
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    where, _, attribute = reference.rpartition(":")
    if not where or not attribute:
        name = reference.rstrip(":") or "module"
        raise Invalid(
            f"{reference!r} names no app; write {name}:app, where app is the variable that holds it", code="invalid_app"
        )
    if "/" in where and not where.endswith(".py"):
        raise Invalid(
            f"{where!r} is a path, not a module; write {Path(where).name}:{attribute}, or {where}.py:{attribute}",
            code="invalid_app",
        )
    module = _script(where) if where.endswith(".py") else importlib.import_module(where)
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        raise Invalid(f"{where} has no {attribute!r}", code="invalid_app") from None


def _script(file: str) -> ModuleType:
    """It stays in `sys.modules`, where annotations are resolved."""
    spec = importlib.util.spec_from_file_location(RUN_NAME, Path(file).absolute())
    if spec is None or spec.loader is None:
        raise Invalid(f"{file} is not a Python file", code="invalid_app")
    if not Path(file).is_file():
        raise Invalid(f"there is no file {file}", code="invalid_app")
    module = sys.modules[RUN_NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
