"""What the handlers wrote while they ran: one mark for each execution, with its process and its moment."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("=QQ")


class Mark(NamedTuple):
    process: int
    nanoseconds: int  # CLOCK_MONOTONIC, which all processes of a machine share


class Marks:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def count(self) -> int:
        return self.path.stat().st_size // _RECORD.size

    def all(self) -> list[Mark]:
        data = self.path.read_bytes()
        return [Mark(*fields) for fields in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size])]

    def wait(self, count: int, seconds: float, alive: Callable[[], None]) -> bool:
        """Whether the marks arrived in time; `alive` raises when no worker is left."""
        deadline = time.monotonic() + seconds
        while self.count() < count:
            if time.monotonic() > deadline:
                return False
            alive()
            time.sleep(0.01)
        return True


def all_at_work(marks: list[Mark], processes: int) -> int:
    """When the last of the worker's processes began: before that, fewer than asked for share the work. A peer that
    makes a process for each job is at work from the first."""
    first: dict[int, int] = {}
    for mark in marks:
        first.setdefault(mark.process, mark.nanoseconds)
    return max(first.values()) if len(first) <= processes else min(first.values())
