"""The services of deploy/compose.yaml, run as processes of this machine instead of in containers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.cli.background import Background
from tests.cli.processes import SECONDS, environment
from tests.deploy import image
from tests.deploy.manifests import DEPLOY

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("${HOLDFAST_IMAGE")]
STATE = "/var/lib/holdfast"  # where the volume of the same name is mounted


def with_defaults(text: str) -> str:
    """With none of its variables set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


class Machine:
    """What a service finds: a folder for its volume, the database, and any free port in place of its own."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder, self.database_url = folder, database_url
        self.state, self._programs = folder / "state", folder / "bin"
        self.state.mkdir(mode=0o700)
        self._programs.mkdir()
        (self._programs / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast.cli "$@"\n')
        (self._programs / "holdfast").chmod(0o755)
        (self._programs / "python").symlink_to(sys.executable)

    def here(self, text: str) -> str:
        url = with_defaults(SERVICES["migrate"]["environment"]["HOLDFAST_DATABASE_URL"])
        return with_defaults(text).replace(STATE, str(self.state)).replace(url, self.database_url)

    def variables(self, name: str) -> dict[str, str]:
        said = {**image.environment(), **SERVICES[name]["environment"]}
        path = f"{self._programs}{os.pathsep}{os.environ['PATH']}"
        return {variable: self.here(value) for variable, value in said.items()} | {"PATH": path}

    def command(self, name: str) -> list[str]:
        return [self.here(word) for word in SERVICES[name]["command"]]

    def run(self, name: str) -> None:
        """To its end, which must be a good one."""
        done = subprocess.run(
            self.command(name),
            cwd=self.folder,
            env=environment(**self.variables(name)),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr

    def start(self, name: str) -> Background:
        """Its port is the last thing in its command."""
        program, *arguments = self.command(name)
        return Background(*arguments[:-1], "0", folder=self.folder, program=[program], **self.variables(name))

    def is_healthy(self, name: str, url: str) -> bool:
        """As its health check finds it, there."""
        variables = environment(**self.variables(name) | {"HEALTH_URL": url + "/livez"})
        return subprocess.run(image.healthcheck(), env=variables, capture_output=True, check=False).returncode == 0
