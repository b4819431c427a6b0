"""A buffer of the most recent events of the log, shared by all event streams."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from holdfast.engine import Cursor
from holdfast.model import Event

ENTRIES_MAX = 10_000
KIB = 1024


class BufferedEvent:
    """An event, its position in the log, and its encoded text once a client needed it."""

    __slots__ = ("event", "position", "text", "weight")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.position = Cursor(event.pos, event.job_id, event.seq)
        self.text: bytes | None = None
        self.weight = 1 if event.data is None else 1 + len(msgspec.json.encode(event.data)) // KIB


class EventBuffer:
    """All events after `begin` up to `end`; the oldest are dropped when the buffer is full."""

    def __init__(self, at: Cursor) -> None:
        self.begin = self.end = at
        self._lines: list[BufferedEvent] = []
        self._weight = 0

    def add(self, entries: list[BufferedEvent], end: Cursor) -> None:
        self._lines += entries
        self._weight += sum(entry.weight for entry in entries)
        self.end = end
        if self._weight > ENTRIES_MAX:
            self._drop()

    def _drop(self) -> None:
        """Drop a tenth more than needed, so that this happens rarely."""
        gone = 0
        while self._weight > ENTRIES_MAX * 0.9:
            self._weight -= self._lines[gone].weight
            gone += 1
        self.begin = self._lines[gone - 1].position
        del self._lines[:gone]

    def holds(self, position: Cursor) -> bool:
        """Whether all later events are in the buffer."""
        return position >= self.begin

    def after(self, position: Cursor) -> list[BufferedEvent]:
        return self._lines[bisect_right(self._lines, position, key=lambda entry: entry.position) :]
