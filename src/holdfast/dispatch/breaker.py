"""Keeps off a broker that fails: for a tenth of a second at first, then longer, never for more than five."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from holdfast.backoff import delay
from holdfast.clock import Clock
from holdfast.ids import Ids

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 5.0
CALM_SECONDS = 10.0  # what fails again sooner goes on as it was: some of it may work, as with a Redis that is full

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Closed while the broker works. One failure opens it; when the pause is over it is half open, and may be tried.

    All of a process share one, so that what one of them finds out spares the others the wait. Nobody holds the right to
    try: whoever comes first after the pause tries, and if he ends without a word, the next does.
    """

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids
        self._failures = 0  # one after another
        self._failures_before, self._closed_at = 0, 0.0
        self._again_at = 0.0
        self.openings = 0
        self.reason = ""  # of the last failure
        self.watchers: list[Callable[[], None]] = []  # called when it opens and when it closes

    @property
    def state(self) -> State:
        if not self._failures:
            return "closed"
        return "open" if self.pause > 0 else "half_open"

    @property
    def closed(self) -> bool:
        return not self._failures

    @property
    def allows(self) -> bool:
        """Whether it is worth trying now."""
        return not self._failures or self.pause <= 0

    @property
    def pause(self) -> float:
        """Seconds until it may be tried again."""
        return max(0.0, self._again_at - self._clock.monotonic()) if self._failures else 0.0

    def succeeded(self) -> None:
        """During the pause that says nothing: whoever succeeds then does something else than what failed."""
        if self.state == "half_open":
            self._failures_before, self._failures = self._failures, 0
            self._closed_at = self._clock.monotonic()
            self._tell()

    def failed(self, reason: str = "") -> None:
        """Those who tried at the same time fail together, and that is one failure."""
        if self.state == "open":
            return
        closed = self.closed
        if closed and self._clock.monotonic() - self._closed_at < CALM_SECONDS:
            self._failures = self._failures_before
        self._failures += 1
        self.reason = reason
        pause = delay(self._failures, PAUSE_SECONDS, PAUSE_MAX_SECONDS, self._ids.jitter())
        self._again_at = self._clock.monotonic() + pause
        if closed:
            self.openings += 1
            self._tell()

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher()
