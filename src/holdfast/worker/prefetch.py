"""How many jobs a worker prefetches: as many as its slots will start in a moment, by the mean duration of past jobs."""

from __future__ import annotations

AHEAD_SECONDS = 0.1
AHEAD_MAX = 1000
WEIGHT = 1 / 16  # of the last job in the moving average
SHORTEST_SECONDS = 1e-6
HOLDS_MAX = 255


class Prefetch:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None
        self._limit = AHEAD_MAX
        self._hold_length = self._hold_left = 0  # claims for which the limit is not raised, and how many are left

    def ended(self, seconds: float) -> None:
        """A job ran for so long."""
        self._mean = seconds if self._mean is None else self._mean + (seconds - self._mean) * WEIGHT

    def ahead(self) -> int:
        if self._mean is None:
            return 0
        return min(self._limit, int(AHEAD_SECONDS * self._slots / max(self._mean, SHORTEST_SECONDS)))

    def claimed(self, jobs: int, *, back: int) -> None:
        """Where jobs had to be released (`back`), the limit is lowered, then raised step by step. If it was too high
        again, the next raise comes after twice as many claims."""
        if back:
            self._limit = 0 if back * 2 >= jobs else self._limit // 2
            self._hold_left = self._hold_length
            self._hold_length = min(HOLDS_MAX, self._hold_length * 2 + 1)
        elif self._hold_left:
            self._hold_left -= 1
        else:
            self._limit = min(AHEAD_MAX, self._limit + self._limit // 4 + 1)
            if self._limit == AHEAD_MAX:
                self._hold_length = 0
