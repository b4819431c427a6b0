"""When the watchdog kills a worker process, and which time it does not count."""

import pytest

from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.heartbeat.watchdog import Watchdog

ROUNDING = 1e-6  # the sum of a time and some seconds may be above the exact one

JOB = HeldLease("01a1de03-b562-720c-ae13-288bddb0d36e", "a7b6faab-771e-47ef-8805-061c0bb91a56")


@pytest.fixture
def table():
    """The table of a worker that ticked and polled just now, and never again."""
    table = LeaseTable.create(8)
    yield table
    table.close()


@pytest.fixture
def start(table: LeaseTable) -> float:
    return table.header().tick


def watched(watchdog: Watchdog, table: LeaseTable, start: float, seconds: float) -> str | None:
    """The first reason to kill within so many seconds."""
    for look in range(1, int(seconds) + 1):
        if (reason := watchdog.reason_to_kill(table, start + look - ROUNDING)) is not None:
            return reason
    return None


def test_a_blocked_event_loop_is_killed_after_the_watchdog_time(table: LeaseTable, start: float) -> None:
    assert watched(Watchdog(30, start), table, start, 30) is None
    assert watched(Watchdog(30, start), table, start, 31) == "its event loop has not run for 31 s"


def test_zero_seconds_disable_the_watchdog(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30, start)
    assert watched(Watchdog(0, start), table, start, 1000) is None


def test_a_worker_whose_event_loop_runs_is_not_killed(table: LeaseTable, start: float) -> None:
    watchdog = Watchdog(1000, start)
    table.put(JOB, 30, start + 1)
    table.tick()
    assert watched(watchdog, table, start, 5) is None


def test_a_blocked_loop_with_a_timed_out_job_is_killed_early(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30, start + 10)
    assert watched(Watchdog(1000, start), table, start, 15) is None
    reason = watched(Watchdog(1000, start), table, start, 16)
    assert reason == f"job {JOB.id} timed out 6 s ago and the event loop has not run for 16 s"


def test_a_job_without_a_deadline_never_counts_as_timed_out(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30)
    assert watched(Watchdog(1000, start), table, start, 900) is None


def test_the_watchdog_starts_again_after_a_restart(table: LeaseTable, start: float) -> None:
    watchdog = Watchdog(30, start)
    assert watched(watchdog, table, start, 20) is None
    watchdog.restart(start + 20)
    assert watched(watchdog, table, start + 20, 30) is None
    assert watched(watchdog, table, start + 50, 1) is not None


def test_time_in_which_the_watchdog_did_not_run_does_not_count(table: LeaseTable, start: float) -> None:
    """The machine was suspended, or the worker and its heartbeat process were stopped together."""
    watchdog = Watchdog(30, start)
    assert watchdog.reason_to_kill(table, start + 1) is None
    assert watchdog.reason_to_kill(table, start + 1000) is None
    assert watched(watchdog, table, start + 1000, 30) is None


class TestWorkerThatDoesNotPoll:
    @pytest.fixture
    def table(self, table: LeaseTable, monkeypatch: pytest.MonkeyPatch) -> LeaseTable:
        """The table of a worker whose event loop always has just run."""
        read = table.header
        monkeypatch.setattr(table, "header", lambda: read()._replace(tick=1e12))
        return table

    @pytest.fixture
    def start(self, table: LeaseTable) -> float:
        return table.header().polled

    def test_it_is_killed_while_the_database_is_reachable(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        assert watched(watchdog, table, start, 30) is None
        assert "has not claimed for 31 s" in (watched(watchdog, table, start + 30, 1) or "")

    def test_it_is_not_killed_while_the_database_is_unreachable(self, table: LeaseTable, start: float) -> None:
        assert watched(Watchdog(30, start), table, start, 900) is None

    def test_its_time_starts_again_when_the_database_is_back(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        watchdog.database_unreachable()
        assert watched(watchdog, table, start, 100) is None
        watchdog.database_reached(start + 100)
        assert watched(watchdog, table, start + 100, 30) is None
        assert watched(watchdog, table, start + 130, 1) is not None

    def test_it_is_not_killed_while_it_stops(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        table.stop()
        assert watched(watchdog, table, start, 900) is None

    def test_it_is_not_killed_within_ten_seconds_whatever_the_setting(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(1, start)
        watchdog.database_reached(start)
        assert watched(watchdog, table, start, 10) is None
        assert watched(watchdog, table, start + 10, 1) is not None
