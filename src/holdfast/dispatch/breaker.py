"""Circuit breaker for a broker: pauses for 0.1 s after a failure, then longer, at most 5 s. Logs outages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from holdfast.backoff import delay
from holdfast.clock import Clock
from holdfast.ids import Ids

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 5.0
# A failure sooner than this continues the old outage: a full Redis, for example, fails some calls only.
CALM_SECONDS = 10.0

State = Literal["closed", "open", "half_open"]


class Breaker:
    """Closed while the broker works. One failure opens it; after the pause it is half open and allows calls.

    All parts of a process share one breaker. Half open, it does not reserve the trial call for one caller: if that
    caller were cancelled, no call would be made.
    """

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids
        self._failures = 0  # consecutive
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
        """Whether a call is allowed now."""
        return not self._failures or self.pause <= 0

    @property
    def pause(self) -> float:
        """Seconds until a call is allowed again."""
        return max(0.0, self._again_at - self._clock.monotonic()) if self._failures else 0.0

    def succeeded(self) -> None:
        """Ignored while open: a call that succeeds during the pause is of another kind than the one that failed."""
        if self.state == "half_open":
            self._failures_before, self._failures = self._failures, 0
            self._closed_at = self._clock.monotonic()
            self._notify()

    def failed(self, reason: str = "") -> None:
        """Concurrent calls that fail together count as one failure."""
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
            self._notify()

    def _notify(self) -> None:
        for watcher in self.watchers:
            watcher()


class OutageLogger:
    """Logs an outage when it begins and when it ends. A broker that fails some calls only opens and closes the breaker
    every few seconds: the outage ends when the breaker has been closed for a while."""

    calm_seconds = CALM_SECONDS

    def __init__(self, breaker: Breaker, *, lost: Callable[[str], None], back: Callable[[], None]) -> None:
        self._breaker, self._lost, self._back = breaker, lost, back
        self._is_out = False
        self._calm: asyncio.TimerHandle | None = None
        breaker.watchers.append(self._changed)

    def _changed(self) -> None:
        if self._calm is not None:
            self._calm.cancel()
            self._calm = None
        if self._breaker.closed:
            self._calm = asyncio.get_running_loop().call_later(self.calm_seconds, self._over)
        elif not self._is_out:
            self._is_out = True
            self._lost(self._breaker.reason)

    def _over(self) -> None:
        self._is_out, self._calm = False, None
        self._back()
