"""A clock that stands still until the test moves it, in all processes of the test."""

from __future__ import annotations

import mmap
from datetime import datetime, timedelta
from pathlib import Path
from struct import Struct

from holdfast.clock import Clock, from_micros, to_micros

_MICROS = Struct("<q")


class SharedClock(Clock):
    """The time is in a file beside the database, so that child processes share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, start: datetime | None = None) -> SharedClock:
        path.write_bytes(_MICROS.pack(to_micros(start or soon())))
        return cls(path)

    def now(self) -> datetime:
        return from_micros(_MICROS.unpack_from(self._memory)[0])

    def database_now(self) -> datetime | None:
        return self.now()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        moved = self.now() + timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        _MICROS.pack_into(self._memory, 0, to_micros(moved))


def soon() -> datetime:
    """A full minute, not the one that comes but the next: code that asks the computer what time it is will, for as long
    as the test runs, not get ahead of this clock, and what it wants done now is due."""
    return Clock().now().replace(second=0, microsecond=0) + timedelta(minutes=2)
