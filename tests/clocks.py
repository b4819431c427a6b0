"""Clocks for tests that need more than the time of day to stand still."""

from holdfast.clock import MovableClock, to_micros


class WholeClock(MovableClock):
    """What is measured moves with it, too."""

    def monotonic(self) -> float:
        return to_micros(self.now()) / 1e6
