"""What the package says about itself: its version, its public names, and the versions of libraries that it takes."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

import holdfast
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [
    Requirement(text)
    for texts in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for text in texts
    if not text.startswith("holdfast[")
]
# Our code uses private parts of these.
PRIVATE = {"asyncpg", "nats-py", "starlette", "uvicorn"}


def test_the_package_knows_its_version() -> None:
    assert holdfast.__version__ == PROJECT["version"] == version("holdfast")


def test_dir_lists_the_public_names_and_each_can_be_loaded() -> None:
    assert dir(holdfast) == sorted(holdfast.__all__)
    assert all(getattr(holdfast, name) for name in dir(holdfast))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = holdfast.Nothing  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, holdfast; print([m for m in sys.modules if m.startswith(('holdfast.', 'importlib.metadata'))])"
    found = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, 'src'); {code}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"


def test_the_pinned_version_of_each_library_satisfies_the_requirements() -> None:
    pins = dict(re.findall(r"(?m)^(\S+?)==(\S+)", (ROOT / "constraints" / "dev.txt").read_text(encoding="utf-8")))
    for required in REQUIRED:
        assert pins[required.name] in required.specifier, required


def test_libraries_whose_private_api_is_used_have_an_upper_bound() -> None:
    bounded = {required.name for required in REQUIRED if any(bound.operator == "<" for bound in required.specifier)}
    assert bounded == PRIVATE
