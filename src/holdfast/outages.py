"""Says once that the database, or the server, cannot be reached, and once that it can be again.

Many parts of a process notice an outage, each at every try. The first of them says so; the rest is logged at `debug`.
"""

from __future__ import annotations

import logging
import threading

from holdfast.clock import Clock

log = logging.getLogger("holdfast.connection")


class Outage:
    """What is done against it is each part's own business: this is only about the log. From any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.of = "the database"
        self._clock = clock or Clock()
        self._failing: dict[str, bool] = {}  # what cannot be done, and whether that part tries again soon
        self._since = 0.0
        self._lock = threading.Lock()

    def failed(self, doing: str, error: object, *, often: bool = True) -> None:
        """A part could not do this and will try again. Not `often`: its next try may be long after the outage."""
        with self._lock:
            first = not self._failing
            self._failing[doing] = often
            if first:
                self._since = self._clock.monotonic()
        if first:
            log.warning("cannot %s, trying again: %s", doing, error)
        else:
            log.debug("cannot %s either: %s", doing, error)

    def works(self, doing: str) -> None:
        """A part that tries often has done this. The outage is over when no other of them still fails."""
        if not self._failing:
            return
        with self._lock:
            self._failing.pop(doing, None)
            over = not any(self._failing.values())
            if over:
                self._failing.clear()
            lasted = self._clock.monotonic() - self._since
        if over:
            log.info("%s answers again after %.1f s", self.of, lasted)

    def forget(self) -> None:
        """Begin anew, as a test does."""
        self._failing.clear()


outage = Outage()  # of this process
