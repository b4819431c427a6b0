"""`make run` is for somebody who wants to look: it installs little, says so, and the next time it starts at once."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.pythons import answers, supported

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
PINS = {
    name: (ROOT / "constraints" / f"{name}.txt").read_text(encoding="utf-8")
    for name in ("runtime", "all", "build", "dev")
}


def planned(target: str, venv: Path) -> str:
    """What make would do, in an environment of its own; the same below `make test`, where make names its directory."""
    command = ["make", "--no-print-directory", "--dry-run", target, f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_run_installs_only_the_runtime_pins_and_shows_progress(tmp_path: Path) -> None:
    plan = planned("run", tmp_path / "venv")
    assert "constraints/runtime.txt" in plan
    assert "constraints/dev.txt" not in plan
    [install] = [line for line in plan.splitlines() if "constraints/runtime.txt" in line]
    assert "--quiet" not in install, "it shows its progress"
    assert "constraints/dev.txt" in planned("test", tmp_path / "venv")


def test_a_second_make_run_installs_nothing(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / ".holdfast-run").touch()
    assert planned("run", venv).splitlines() == [f"{venv}/bin/holdfast dev"]


@pytest.mark.parametrize("goal", ["run", "test"])
def test_with_an_old_python_the_advice_repeats_the_goal_that_was_asked_for(goal: str, tmp_path: Path) -> None:
    command = ["make", "--no-print-directory", goal, f"VENV={tmp_path / 'venv'}", "PYTHON=false"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"name one: make {goal} PYTHON=python3.12\n" in done.stderr


def test_an_interpreter_is_used_only_for_its_own_version() -> None:
    here = "{}.{}".format(*sys.version_info)
    assert here in supported()
    assert [answers(Path(sys.executable), version) for version in (here, "3.10")] == [True, False]


def test_a_package_has_the_same_pin_in_every_constraints_file() -> None:
    pinned = {name: dict(re.findall(r"(?m)^(\S+)==(\S+)", text)) for name, text in PINS.items()}
    for name in ("runtime", "all", "build"):
        assert pinned[name]
        assert pinned[name].items() <= pinned["dev"].items(), name
