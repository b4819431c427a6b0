"""One finding of `holdfast doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    level: str
    name: str
    says: str
    remedy: str = ""


def ok(name: str, says: str) -> Finding:
    return Finding("ok", name, says)


def warn(name: str, says: str, remedy: str) -> Finding:
    return Finding("warn", name, says, remedy)


def fail(name: str, says: str, remedy: str = "") -> Finding:
    return Finding("fail", name, says, remedy)
