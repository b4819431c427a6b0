"""How many jobs a worker may hold ahead of need: as many as its slots start in a moment, if jobs stay as they are."""

from __future__ import annotations

AHEAD_SECONDS = 0.1
AHEAD_MAX = 1000
WEIGHT = 1 / 16  # of the last job in the mean
SHORTEST_SECONDS = 1e-6
RESTS_MAX = 255


class Prefetch:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None
        self._most = AHEAD_MAX
        self._rests = self._resting = 0  # claims for which it stays as low as it is, and how many of them are left

    def ended(self, seconds: float) -> None:
        """A job took that long."""
        self._mean = seconds if self._mean is None else self._mean + (seconds - self._mean) * WEIGHT

    def ahead(self) -> int:
        if self._mean is None:
            return 0
        return min(self._most, int(AHEAD_SECONDS * self._slots / max(self._mean, SHORTEST_SECONDS)))

    def claimed(self, jobs: int, *, back: int) -> None:
        """Some had to be given back, because they may not wait in here: fewer next time, and more again bit by bit. If
        that was too many again, it takes twice as long until the next try."""
        if back:
            self._most = 0 if back * 2 >= jobs else self._most // 2
            self._resting = self._rests
            self._rests = min(RESTS_MAX, self._rests * 2 + 1)
        elif self._resting:
            self._resting -= 1
        else:
            self._most = min(AHEAD_MAX, self._most + self._most // 4 + 1)
            if self._most == AHEAD_MAX:
                self._rests = 0
