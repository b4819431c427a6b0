"""When the watchdog kills a worker process, and which time does not count."""

import pytest

from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.heartbeat.watchdog import Watchdog

JOB = HeldLease("01a1de03-b562-720c-ae13-288bddb0d36e", "a7b6faab-771e-47ef-8805-061c0bb91a56")


@pytest.fixture
def table():
    """Of a worker that ticked and polled just now, and never again."""
    table = LeaseTable.create(8)
    yield table
    table.close()


@pytest.fixture
def start(table: LeaseTable) -> float:
    return table.header().tick


def watched(watchdog: Watchdog, table: LeaseTable, start: float, seconds: float) -> str | None:
    """The first reason in so many seconds of looking."""
    for look in range(1, int(seconds) + 1):
        if (reason := watchdog.reason_to_kill(table, start + look)) is not None:
            return reason
    return None


def test_a_loop_that_does_not_run_is_complained_of_after_the_time_set(table: LeaseTable, start: float) -> None:
    assert watched(Watchdog(30, start), table, start, 30) is None
    assert watched(Watchdog(30, start), table, start, 31) == "its event loop has not run for 31 s"


def test_zero_switches_it_off(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30, start)
    assert watched(Watchdog(0, start), table, start, 1000) is None


def test_a_loop_that_runs_is_left_alone(table: LeaseTable, start: float) -> None:
    watchdog = Watchdog(1000, start)
    table.put(JOB, 30, start + 1)
    table.tick()
    assert watched(watchdog, table, start, 5) is None


def test_a_job_over_its_time_in_a_blocked_loop_is_not_waited_for(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30, start + 10)
    assert watched(Watchdog(1000, start), table, start, 15) is None
    reason = watched(Watchdog(1000, start), table, start, 16)
    assert reason == f"job {JOB.id} timed out 6 s ago and the event loop has not run for 16 s"


def test_a_job_without_a_deadline_is_never_over_its_time(table: LeaseTable, start: float) -> None:
    table.put(JOB, 30)
    assert watched(Watchdog(1000, start), table, start, 900) is None


def test_what_a_stopped_worker_did_not_do_is_excused(table: LeaseTable, start: float) -> None:
    watchdog = Watchdog(30, start)
    assert watched(watchdog, table, start, 20) is None
    watchdog.restart(start + 20)
    assert watched(watchdog, table, start + 20, 30) is None
    assert watched(watchdog, table, start + 50, 1) is not None


def test_what_nobody_watched_is_excused(table: LeaseTable, start: float) -> None:
    """The machine was suspended, or the worker and its heartbeat process were stopped together."""
    watchdog = Watchdog(30, start)
    assert watchdog.reason_to_kill(table, start + 1) is None
    assert watchdog.reason_to_kill(table, start + 1000) is None
    assert watched(watchdog, table, start + 1000, 30) is None


class TestAWorkerThatDoesNotPoll:
    @pytest.fixture
    def table(self, table: LeaseTable, monkeypatch: pytest.MonkeyPatch) -> LeaseTable:
        """Its loop has just run whenever somebody looks."""
        read = table.header
        monkeypatch.setattr(table, "header", lambda: read()._replace(tick=1e12))
        return table

    @pytest.fixture
    def start(self, table: LeaseTable) -> float:
        return table.header().polled

    def test_is_complained_of_while_the_database_answers(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        assert watched(watchdog, table, start, 30) is None
        assert "has not claimed for 31 s" in (watched(watchdog, table, start + 30, 1) or "")

    def test_cannot_do_so_while_the_database_is_away(self, table: LeaseTable, start: float) -> None:
        assert watched(Watchdog(30, start), table, start, 900) is None

    def test_gets_its_time_anew_when_the_database_is_back(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        watchdog.database_unreachable()
        assert watched(watchdog, table, start, 100) is None
        watchdog.database_reached(start + 100)
        assert watched(watchdog, table, start + 100, 30) is None
        assert watched(watchdog, table, start + 130, 1) is not None

    def test_need_not_when_it_is_stopping(self, table: LeaseTable, start: float) -> None:
        watchdog = Watchdog(30, start)
        watchdog.database_reached(start)
        table.stop()
        assert watched(watchdog, table, start, 900) is None

    def test_is_not_deaf_for_a_few_seconds_without_work_however_strict_the_setting(
        self, table: LeaseTable, start: float
    ) -> None:
        watchdog = Watchdog(1, start)
        watchdog.database_reached(start)
        assert watched(watchdog, table, start, 10) is None
        assert watched(watchdog, table, start + 10, 1) is not None
