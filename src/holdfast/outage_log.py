"""Says once that the database, or the server, cannot be reached, and once that it can be again.

Many parts of a process notice an outage, each at every try. The first of them says so; the rest is logged at `debug`.
"""

from __future__ import annotations

import logging
import threading

from holdfast.clock import Clock
from holdfast.errors import Locked, OutcomeUnknown, StoreError, StoreUnavailable

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


def is_outage(error: BaseException) -> bool:
    """The database did not answer. A refusal, or a lock that was not to be had, is an answer."""
    if isinstance(error, Locked) or (isinstance(error, StoreUnavailable) and error.code == "store_refused"):
        return False
    return isinstance(error, (StoreUnavailable, OutcomeUnknown, TimeoutError))


class LoopFailures:
    """How one loop of a process fails: an outage is told once for the whole process, another failure when it begins."""

    def __init__(self, doing: str, log: logging.Logger, *, often: bool = False) -> None:
        """`often`: it tries every second or two, as long as the process runs."""
        self._doing, self._log, self._often = doing, log, often
        self._failing: str | None = None  # how, since it worked last

    def failed(self, error: Exception) -> None:
        """Nothing new if it fails as before, also when others have noticed the end of an outage meanwhile."""
        before, self._failing = self._failing, "by an outage" if is_outage(error) else "otherwise"
        text = str(error) or type(error).__name__
        if self._failing == before:
            self._log.debug("still cannot %s: %s", self._doing, text)
        elif is_outage(error):
            outage.failed(self._doing, text, often=self._often)
        else:
            unexpected = None if isinstance(error, StoreError) else error
            self._log.warning("cannot %s, trying again: %s", self._doing, text, exc_info=unexpected)

    def works(self) -> None:
        self._failing = None
        outage.works(self._doing)
