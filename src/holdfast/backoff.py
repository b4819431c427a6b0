"""Exponential backoff with jitter: how long to wait before the next try."""

from __future__ import annotations

from holdfast.ids import Ids

EXPONENT_MAX = 64  # 2.0 ** 1024 overflows; the longest delay is far below either way


def delay(
    failures: int, first: float, longest: float, chance: float, *, factor: float = 2, jitter: float = 0.5
) -> float:
    """Seconds to wait after `failures` in a row: `first`, then `factor` times as long each time, at most `longest`.

    `jitter` is the share of it that `chance` (from 0 to 1) decides, so that retries do not come in herds: 1 spreads the
    delay from nothing to the whole, 0 leaves it exact.
    """
    whole = min(longest, first * float(factor) ** min(failures - 1, EXPONENT_MAX))
    return whole * (1 - jitter * (1 - chance))


class Backoff:
    """The delays of one loop, from its first failure to its next success."""

    def __init__(self, ids: Ids, first: float, longest: float, *, jitter: float = 0.5) -> None:
        self._ids, self._first, self._longest, self._jitter = ids, first, longest, jitter
        self.failures = 0

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        return delay(self.failures, self._first, self._longest, self._ids.jitter(), jitter=self._jitter)

    def reset(self) -> None:
        """After a success: the next failure is the first again."""
        self.failures = 0
