"""How many jobs a worker may hold ahead of need: as many as it starts within a moment, at the pace of the last ones."""

from __future__ import annotations

AHEAD_SECONDS = 0.1
AHEAD_MAX = 500
SMOOTH = 0.5


class Pace:
    def __init__(self) -> None:
        self._ended = 0
        self._rate = 0.0
        self._at: float | None = None
        self._ahead = 0

    def ended(self) -> None:
        self._ended += 1

    def tick(self, now: float) -> None:
        if self._at is not None and now > self._at:
            rate = self._ended / (now - self._at)
            self._rate = rate if rate > self._rate else SMOOTH * self._rate + (1 - SMOOTH) * rate
            self._ahead = min(AHEAD_MAX, int(self._rate * AHEAD_SECONDS))
        self._at, self._ended = now, 0

    def ahead(self) -> int:
        return self._ahead

    def surplus(self, back: int, of: int) -> None:
        """Jobs had to be given back because they may not wait here: claim fewer ahead until that is over."""
        if back:
            self._ahead = 0 if back * 2 >= of else self._ahead // 2
            self._rate = 0.0 if not self._ahead else self._rate / 2
