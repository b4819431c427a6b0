"""When a worker process is beyond help: what it holds or could do is better done by another."""

from __future__ import annotations

from holdfast.worker.heartbeat.lease_table import LeaseTable

OVERDUE_SECONDS = 5.0
ASLEEP_SECONDS = 2.0
DEAF_SECONDS_MIN = 10.0  # a worker that has nothing to do says every few seconds that it has looked


class Watchdog:
    """Silence counts only while both sides could speak: not while somebody had stopped the worker, or us, nor, for
    claims, while the database could not be reached."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._fair_since = self._looked = now
        self._reached_since: float | None = None

    def excuse(self, now: float) -> None:
        """Whatever was not done before now could not be done."""
        self._fair_since = self._looked = now

    def reached(self, now: float) -> None:
        """A beat got through to the database."""
        if self._reached_since is None:
            self._reached_since = now

    def unreached(self) -> None:
        self._reached_since = None

    def complaint(self, table: LeaseTable, now: float) -> str | None:
        """Why the worker should be killed, if it should."""
        if now - self._looked > ASLEEP_SECONDS:
            self.excuse(now)
        self._looked = now
        if not self._seconds:
            return None
        header = table.header()
        silent = now - max(header.tick, self._fair_since)
        if silent > self._seconds:
            return f"its event loop has not run for {silent:.0f} s"
        if silent > OVERDUE_SECONDS:
            return _overdue(table, silent, now)
        if self._reached_since is None or header.stopping:
            return None
        deaf = now - max(header.polled, self._fair_since, self._reached_since)
        if deaf > max(self._seconds, DEAF_SECONDS_MIN):
            return f"it has not looked for work for {deaf:.0f} s although the database answers"
        return None


def _overdue(table: LeaseTable, silent: float, now: float) -> str | None:
    """Nobody but the event loop could end an attempt whose time is up, and it does not run."""
    for entry in table.entries():
        if entry.deadline and now - entry.deadline > OVERDUE_SECONDS:
            over = now - entry.deadline
            return (
                f"job {entry.held.id} is {over:.0f} s over its time and the event loop has not run for {silent:.0f} s"
            )
    return None
