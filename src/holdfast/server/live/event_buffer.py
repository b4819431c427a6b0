"""The last events, in the order of the log, and which part of it they are."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from holdfast.model import Event

LINES_MAX = 10_000
KIB = 1024

LogPosition = tuple[int, str, int]  # in the log: what a `Cursor` holds


class BufferedEvent:
    """An event, its place, and the text that clients get of it, once somebody wanted it."""

    __slots__ = ("event", "place", "text", "weight")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.place: LogPosition = (event.pos, event.job_id, event.seq)
        self.text: bytes | None = None
        self.weight = 1 if event.data is None else 1 + len(msgspec.json.encode(event.data)) // KIB


class EventBuffer:
    """Everything behind `begin`, up to `end`, as long as it is not too much."""

    def __init__(self, at: LogPosition) -> None:
        self.begin = self.end = at
        self._lines: list[BufferedEvent] = []
        self._weight = 0

    def add(self, lines: list[BufferedEvent], end: LogPosition) -> None:
        self._lines += lines
        self._weight += sum(line.weight for line in lines)
        self.end = end
        if self._weight > LINES_MAX:
            self._drop()

    def _drop(self) -> None:
        """A tenth more than must go: it is not worth it for every line."""
        gone = 0
        while self._weight > LINES_MAX * 0.9:
            self._weight -= self._lines[gone].weight
            gone += 1
        self.begin = self._lines[gone - 1].place
        del self._lines[:gone]

    def holds(self, place: LogPosition) -> bool:
        """All that comes behind it is here, or has not come yet."""
        return place >= self.begin

    def behind(self, place: LogPosition) -> list[BufferedEvent]:
        return self._lines[bisect_right(self._lines, place, key=_place) :]


def _place(line: BufferedEvent) -> LogPosition:
    return line.place
