"""Logs an outage of the database, or of the server, once when it begins and once when it ends.

Many parts of a process notice an outage, each at every retry. Only the first is logged as a warning, the others at
`debug`.
"""

from __future__ import annotations

import logging
import threading

from holdfast.clock import Clock
from holdfast.errors import Locked, OutcomeUnknown, StoreError, StoreUnavailable

log = logging.getLogger("holdfast.connection")


class Outage:
    """Thread-safe. It only logs: each part retries by itself."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.of = "the database"
        self._clock = clock or Clock()
        self._failing: dict[str, bool] = {}  # what failed, and whether that part retries often
        self._since = 0.0
        self._lock = threading.Lock()

    def failed(self, doing: str, error: object, *, often: bool = True) -> None:
        """A part failed and will retry. Not `often`: its next retry may be long after the outage."""
        with self._lock:
            first = not self._failing
            self._failing[doing] = often
            if first:
                self._since = self._clock.monotonic()
        if first:
            log.warning("cannot %s, retrying: %s", doing, error)
        else:
            log.debug("also cannot %s: %s", doing, error)

    def succeeded(self, doing: str) -> None:
        """A part succeeded. The outage is over when no part that retries often still fails."""
        if not self._failing:
            return
        with self._lock:
            self._failing.pop(doing, None)
            over = not any(self._failing.values())
            if over:
                self._failing.clear()
            lasted = self._clock.monotonic() - self._since
        if over:
            log.info("%s is reachable again after %.1f s", self.of, lasted)

    def forget(self) -> None:
        """Reset, for tests."""
        self._failing.clear()


outage = Outage()  # of this process


def is_outage(error: BaseException) -> bool:
    """Whether the database is unreachable. A refused connection slot or a lock timeout is not an outage."""
    if isinstance(error, Locked) or (isinstance(error, StoreUnavailable) and error.code == "store_refused"):
        return False
    return isinstance(error, (StoreUnavailable, OutcomeUnknown, TimeoutError))


class LoopFailures:
    """Logs the failures of one loop: an outage once for the whole process, any other failure when it begins."""

    def __init__(self, doing: str, log: logging.Logger, *, often: bool = False) -> None:
        """`often`: the loop runs every second or two."""
        self._doing, self._log, self._often = doing, log, often
        self._failing: str | None = None  # the kind of failure since the last success

    def failed(self, error: Exception) -> None:
        """A failure of the same kind as the last one is logged at debug only."""
        before, self._failing = self._failing, "outage" if is_outage(error) else "error"
        text = str(error) or type(error).__name__
        if self._failing == before:
            self._log.debug("still cannot %s: %s", self._doing, text)
        elif is_outage(error):
            outage.failed(self._doing, text, often=self._often)
        else:
            unexpected = None if isinstance(error, StoreError) else error
            self._log.warning("cannot %s, retrying: %s", self._doing, text, exc_info=unexpected)

    def succeeded(self) -> None:
        self._failing = None
        outage.succeeded(self._doing)
