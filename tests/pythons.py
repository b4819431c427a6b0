"""`make test-pythons`: the fast tests on each Python that the package names, each in an environment of its own.

Needs nothing but the standard library. An interpreter is taken from the PATH, else from pyenv, else from `uv python`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = Path(".cache/pythons")
UV_SECONDS = 300


def main() -> int:
    outcomes = {version: run(version) for version in supported()}
    print("\nThe fast tests, by version of Python:")
    for version, outcome in outcomes.items():
        print(f"  {version}  {outcome}")
    return 1 if "failed" in outcomes.values() or "passed" not in outcomes.values() else 0


def supported() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def run(version: str) -> str:
    print(f"\n== Python {version}", flush=True)
    python = installed(version)
    if python is None:
        python, reason = downloaded(version)
        if python is None:
            print(f"not run: {reason}", flush=True)
            return f"not run: {reason}"
    command = ["make", "--no-print-directory", "test-fast"]
    done = subprocess.run([*command, f"VENV={HOME / version}", f"PYTHON={python}"], cwd=ROOT, check=False)
    return "failed" if done.returncode else "passed"


def installed(version: str) -> str | None:
    """On the PATH or below pyenv, whose commands on the PATH may stand for a version that is not selected."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [Path(folder) / f"python{version}" for folder in os.get_exec_path()]
    for python in [*on_path, *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]:
        if python.is_file() and answers(python, version):
            return str(python)
    return None


def answers(python: Path, version: str) -> bool:
    code = "import ensurepip, sys; print('{}.{}'.format(*sys.version_info))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return said.stdout.strip() == version


def downloaded(version: str) -> tuple[str | None, str]:
    """The interpreter, or why there is none."""
    with tempfile.TemporaryDirectory() as tool:
        got = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", tool, "uv"],
            capture_output=True,
            text=True,
            check=False,
        )
        if got.returncode:
            return None, f"there is no python{version} here, and uv cannot be installed"
        uv = shutil.which("uv", path=f"{tool}/bin") or "uv"
        where = ["--install-dir", str(ROOT / HOME / "installed")]
        try:
            said = subprocess.run(
                [uv, "python", "install", *where, version],
                capture_output=True,
                text=True,
                check=False,
                timeout=UV_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return None, f"there is no python{version} here, and `uv python install` took over {UV_SECONDS} s"
    found = sorted((ROOT / HOME / "installed").glob(f"cpython-{version}.*/bin/python{version}"))
    if said.returncode or not found:
        why = (said.stderr.strip().splitlines() or ["it says nothing"])[-1].strip()
        return None, f"there is no python{version} here, and `uv python install` failed ({why})"
    return str(found[-1]), ""


if __name__ == "__main__":
    sys.exit(main())
