"""The watchdog: decides when a worker process is unresponsive and must be killed."""

from __future__ import annotations

from holdfast.worker.heartbeat.lease_table import LeaseTable

OVERDUE_SECONDS = 5.0
SUSPENDED_SECONDS = 2.0  # between two checks: this process was suspended
CLAIM_SECONDS_MIN = 10.0  # an idle worker polls every few seconds


class Watchdog:
    """Time counts only while both processes could run: not while either was suspended nor, for claims, while the
    database could not be reached."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._measured_since = self._checked_at = now
        self._reachable_since: float | None = None

    def restart(self, now: float) -> None:
        """Measure from now on: the worker could not run before."""
        self._measured_since = self._checked_at = now

    def database_reached(self, now: float) -> None:
        if self._reachable_since is None:
            self._reachable_since = now

    def database_unreachable(self) -> None:
        self._reachable_since = None

    def reason_to_kill(self, table: LeaseTable, now: float) -> str | None:
        if now - self._checked_at > SUSPENDED_SECONDS:
            self.restart(now)
        self._checked_at = now
        if not self._seconds:
            return None
        header = table.header()
        silent = now - max(header.tick, self._measured_since)
        if silent > self._seconds:
            return f"its event loop has not run for {silent:.0f} s"
        if silent > OVERDUE_SECONDS:
            return _overdue(table, silent, now)
        if self._reachable_since is None or header.stopping:
            return None
        idle = now - max(header.polled, self._measured_since, self._reachable_since)
        if idle > max(self._seconds, CLAIM_SECONDS_MIN):
            return f"it has not claimed for {idle:.0f} s although the database is reachable"
        return None


def _overdue(table: LeaseTable, silent: float, now: float) -> str | None:
    """Only the event loop can end an attempt that timed out, and it does not run."""
    for entry in table.entries():
        if entry.deadline and now - entry.deadline > OVERDUE_SECONDS:
            over = now - entry.deadline
            return f"job {entry.held.id} timed out {over:.0f} s ago and the event loop has not run for {silent:.0f} s"
    return None
