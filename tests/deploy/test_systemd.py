"""The units for systemd are what systemd takes, and name commands and settings that exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.server.http.server import STOP_SECONDS
from tests.deploy.commands import parsed, unknown
from tests.deploy.manifests import DEPLOY

SERVER, WORKER = DEPLOY / "systemd" / "holdfast-server.service", DEPLOY / "systemd" / "holdfast-worker@.service"
UNITS = pytest.mark.parametrize("unit", [SERVER, WORKER], ids=lambda unit: unit.stem)
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on the PATH")
EXPOSURE_MAX = 25  # of 100, as `systemd-analyze security` counts


def said(unit: Path, name: str) -> list[str]:
    return re.findall(rf"(?m)^{name}=(.*)$", unit.read_text(encoding="utf-8"))


def variables(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in said(unit, "Environment"))


def here(unit: Path, folder: Path, text: str = "") -> Path:
    """With a program that this machine has."""
    copy = folder / unit.name
    text = text or unit.read_text(encoding="utf-8")
    copy.write_text(text.replace("/opt/holdfast/.venv/bin/holdfast", str(shutil.which("true"))), encoding="utf-8")
    return copy


def analyze(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@needs_systemd
@UNITS
def test_systemd_analyze_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    assert analyze("verify", "--man=no", here(unit, tmp_path)) == (0, "")


@needs_systemd
def test_systemd_analyze_reports_an_invalid_unit(tmp_path: Path) -> None:
    wrong = SERVER.read_text(encoding="utf-8").replace("ProtectHome=", "ProtectHouse=")
    assert "ProtectHouse" in analyze("verify", "--man=no", here(SERVER, tmp_path, wrong))[1]


@needs_systemd
@UNITS
def test_the_unit_is_sandboxed(unit: Path, tmp_path: Path) -> None:
    code, why = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_MAX}", here(unit, tmp_path))
    assert code == 0, why


@UNITS
@pytest.mark.parametrize("options", ["", "--queues mail,reports --processes 4 --metrics-port 9464"])
def test_commands_and_settings_exist(unit: Path, options: str) -> None:
    [command] = said(unit, "ExecStart")
    assert parsed(shlex.split(command.replace("$WORKER_OPTIONS", options))).run
    assert unknown(variables(unit)) == set()


@UNITS
def test_every_secret_file_is_a_credential_of_the_unit(unit: Path) -> None:
    credentials = {line.partition(":")[0] for line in said(unit, "LoadCredential")}
    files = {value for name, value in variables(unit).items() if name.endswith("_FILE")}
    assert files == {f"%d/{name}" for name in credentials}


def test_the_stop_timeout_of_systemd_exceeds_that_of_the_process() -> None:
    [server], [worker] = said(SERVER, "TimeoutStopSec"), said(WORKER, "TimeoutStopSec")
    assert float(server) >= STOP_SECONDS + 10
    assert float(worker) >= float(variables(WORKER)["HOLDFAST_STOP_GRACE_SECONDS"]) + 30
    assert said(SERVER, "Restart") == said(WORKER, "Restart") == ["always"]
