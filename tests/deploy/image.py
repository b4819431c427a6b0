"""The Dockerfile, as far as tests need to read it."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch

from tests.docs.pages import ROOT

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Each with its arguments on one line, without comments."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def arguments_of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def copied() -> list[str]:
    """What COPY takes from the build context."""
    found = [rest.split() for rest in arguments_of("COPY") if not rest.startswith("--from")]
    return [source.rstrip("/") for *sources, _ in found for source in sources]


def healthcheck() -> list[str]:
    return list(json.loads(arguments_of("HEALTHCHECK")[0].partition("CMD ")[2]))


def environment() -> dict[str, str]:
    [said] = arguments_of("ENV")
    return dict(word.split("=", 1) for word in said.split())


def is_ignored(path: str) -> bool:
    """By .dockerignore: the last pattern that fits decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and _fits(path, pattern):
            ignored = not line.startswith("!")
    return ignored


def _fits(path: str, pattern: str) -> bool:
    parts = path.split("/")
    if pattern.startswith("**/"):
        return any(fnmatch(part, pattern[3:]) for part in parts)
    return any(
        fnmatch("/".join(parts[:depth]), pattern) for depth in range(1, len(parts) + 1) if pattern.count("/") < depth
    )
