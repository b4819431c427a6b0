"""The heartbeat loop: when it sends a heartbeat, for which leases, and what it reports; against a fake database."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model import Liveness
from holdfast.model.reports import Beat, Fleet, HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.heartbeat.loop import HeartbeatLoop
from tests.worker.lease_holder import until


def lease(number: int, token: int = 0) -> HeldLease:
    return HeldLease(f"{number:036d}", f"{token:036d}")


class FakeDatabase:
    """Returns the answers that the test sets, and records the calls."""

    def __init__(self) -> None:
        self.beats: list[list[HeldLease]] = []
        self.shown: list[tuple[Liveness, int]] = []
        self.looks = 0
        self.lost: list[str] = []
        self.cancel: list[str] = []
        self.stopped: list[HeldLease] = []
        self.enabled = True
        self.fleet = Fleet()
        self.before_answer: Callable[[], Any] = lambda: None

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat:
        self.beats.append(leases)
        self.shown.append((liveness, slots))
        if (waiting := self.before_answer()) is not None:
            await waiting
        return Beat(self.lost, self.cancel, self.enabled, {}, self.fleet)

    async def stop_requests(self, leases: list[HeldLease]) -> list[HeldLease]:
        self.looks += 1
        return [held for held in leases if held in self.stopped]


@pytest.fixture
def database() -> FakeDatabase:
    return FakeDatabase()


@pytest.fixture
def table():
    table = LeaseTable.create(64)
    yield table
    table.close()


Start = Callable[..., tuple[list[HeartbeatResult], asyncio.Event]]


@pytest.fixture
async def start(database: FakeDatabase, table: LeaseTable) -> AsyncIterator[Start]:
    """Starts the loop in this process; returns its results, and the event that triggers a heartbeat."""
    tasks = []

    def start(heartbeat_seconds: float = 3600, idle_seconds: float = 0) -> tuple[list[HeartbeatResult], asyncio.Event]:
        news: list[HeartbeatResult] = []
        triggered = asyncio.Event()
        keeping = HeartbeatLoop(
            database,
            table,
            heartbeat_seconds=heartbeat_seconds,
            watchdog_seconds=0,
            idle_seconds=idle_seconds,
            on_result=news.append,
            triggered=triggered,
        )
        tasks.append(asyncio.create_task(keeping.run()))
        return news, triggered

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settle(table: LeaseTable, *leases: HeldLease, lease_seconds: float = 3600) -> list[int]:
    """Put the leases, and wait until they are old enough to be renewed."""
    slots = [table.put(each, lease_seconds) for each in leases]
    await asyncio.sleep(1)
    return slots


# -- intervals --------------------------------------------------------------------------------------------------------


async def test_an_idle_worker_sends_heartbeats(database: FakeDatabase, table: LeaseTable, start: Start) -> None:
    table.show(Liveness.IDLE, 12)
    news, _ = start(heartbeat_seconds=0.05)
    await until(lambda: len(news) >= 3)
    assert database.beats[:3] == [[], [], []]
    assert set(database.shown) == {(Liveness.IDLE, 12)}
    assert news[0].renewed
    assert news[0].enabled


async def test_the_shortest_lease_sets_the_heartbeat_interval(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    table.put(lease(1), 600.0)
    table.put(lease(2), 0.3)
    table.show(Liveness.BUSY, 12)
    start(heartbeat_seconds=3600)
    await until(lambda: len(database.beats) >= 4)
    assert lease(2) in database.beats[-1]
    assert database.shown[-1] == (Liveness.BUSY, 12)


async def test_the_shortest_heartbeat_policy_sets_the_heartbeat_interval(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    """R003-136: as its lifecycle's setting or its job type says; never fewer than the worker's own setting."""
    table.put(lease(1), 3600.0, heartbeat_seconds=1800)
    slot = table.put(lease(2), 3600.0, heartbeat_seconds=0.1)
    table.show(Liveness.BUSY, 12)
    start(heartbeat_seconds=900)
    await until(lambda: len(database.beats) >= 4)
    table.clear(slot)
    assert {entry.heartbeat_seconds for entry in table.entries()} == {1800}


async def test_an_idle_worker_uses_the_idle_interval_until_it_claims_a_job(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    """It only has to stay online; but what it does now is to be seen."""
    table.show(Liveness.IDLE, 12)
    start(heartbeat_seconds=0.05, idle_seconds=3600)
    await until(lambda: len(database.beats) == 1)
    await asyncio.sleep(0.7)
    assert len(database.beats) == 1

    table.show(Liveness.BUSY, 12)
    await until(lambda: len(database.beats) >= 4)
    table.show(Liveness.IDLE, 12)
    await until(lambda: database.shown[-1] == (Liveness.IDLE, 12))
    said = len(database.beats)
    await asyncio.sleep(0.7)
    assert len(database.beats) == said

    table.put(lease(1), 3600.0)
    await until(lambda: len(database.beats) >= said + 2)


async def test_a_disabled_worker_keeps_the_short_heartbeat_interval(database: FakeDatabase, start: Start) -> None:
    database.enabled = False
    start(heartbeat_seconds=0.05, idle_seconds=3600)
    await until(lambda: len(database.beats) >= 3)
    database.enabled = True
    asked = len(database.beats)
    await asyncio.sleep(0.7)
    assert len(database.beats) <= asked + 1


async def test_a_trigger_sends_a_heartbeat_immediately(database: FakeDatabase, start: Start) -> None:
    _, triggered = start()
    await until(lambda: len(database.beats) == 1)
    triggered.set()
    await until(lambda: len(database.beats) == 2)


@pytest.mark.slow
async def test_stop_requests_are_found_between_heartbeats_and_reported_once(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    await settle(table, lease(1))
    news, _ = start()
    await until(lambda: len(news) == 1)
    database.stopped, database.cancel = [lease(1)], [lease(1).id]
    await until(lambda: len(news) == 2)
    assert news[1].cancel == [lease(1)]

    looks = database.looks
    await until(lambda: database.looks >= looks + 2)
    assert len(database.beats) == 2  # it knows, and does not ask which is which every second


# -- which leases are renewed -----------------------------------------------------------------------------------------


async def test_a_lease_is_renewed_when_it_is_old_enough_and_the_lease_table_shows_it(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    slot = table.put(lease(1), 3.0)
    put = table.valid_since(slot)
    news, _ = start()
    await until(lambda: lease(1) in database.beats[-1] if database.beats else False)
    await until(lambda: table.valid_since(slot) > put)
    assert table.valid_since(slot) in [each.sent for each in news]
    assert table.valid_since(slot) >= put + 0.5


async def test_the_lease_of_a_dead_executor_is_not_renewed(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    dead, own = await settle(table, lease(1), lease(2))
    table.executor(dead, os.getppid())  # alive, but no child of the worker: the pid must have been given anew
    start()
    await until(lambda: len(database.beats) == 1)
    assert database.beats[0] == [lease(2)]
    assert table.valid_since(dead) < table.valid_since(own)


# -- reported results -------------------------------------------------------------------------------------------------


async def test_a_lost_lease_is_reported_and_not_marked_as_renewed(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    lost, kept = await settle(table, lease(1), lease(2))
    database.lost = [lease(1).id]
    news, _ = start()
    await until(lambda: len(news) == 1)
    assert news[0].lost == [lease(1)]
    assert table.valid_since(lost) < news[0].sent == table.valid_since(kept)


async def test_a_job_that_ended_during_a_heartbeat_is_not_reported_as_lost(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    [slot] = await settle(table, lease(1))
    database.lost, database.before_answer = [lease(1).id], lambda: table.clear(slot)
    news, _ = start()
    await until(lambda: len(news) == 1)
    assert (database.beats, news[0].lost) == ([[lease(1)]], [])


async def test_the_older_of_two_tokens_for_one_job_is_reported_as_lost(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    """Its lease ran out, and this very worker claimed it again."""
    await settle(table, lease(1, token=7), lease(1, token=3))
    database.lost, database.cancel = [lease(1).id], [lease(1).id]
    news, _ = start()
    await until(lambda: len(news) == 1)
    assert (news[0].lost, news[0].cancel) == ([lease(1, token=7)], [lease(1, token=3)])


async def test_a_result_contains_the_fleet(database: FakeDatabase, start: Start) -> None:
    database.fleet = Fleet(50, 7, busy=False)
    news, _ = start()
    await until(lambda: len(news) == 1)
    assert news[0].fleet == database.fleet


async def test_a_failed_heartbeat_reports_a_fleet_of_one(database: FakeDatabase, start: Start) -> None:
    """K10: a process relies on no other process that it knows nothing of."""
    database.fleet, database.before_answer = Fleet(50, 7), _fail
    news, _ = start()
    await until(lambda: len(news) >= 1)
    assert news[0].failed
    assert news[0].fleet == Fleet()


def _fail() -> None:
    raise StoreUnavailable("gone")


async def test_a_result_tells_a_worker_that_it_is_disabled(database: FakeDatabase, start: Start) -> None:
    database.enabled = False
    news, _ = start()
    await until(lambda: len(news) == 1)
    assert not news[0].enabled


# -- database errors --------------------------------------------------------------------------------------------------


async def test_a_failed_heartbeat_is_reported_and_retried_until_it_succeeds(
    database: FakeDatabase, table: LeaseTable, start: Start
) -> None:
    def fail_thrice() -> None:
        if len(database.beats) <= 3:
            raise StoreUnavailable("gone for a while")

    [slot] = await settle(table, lease(1))
    database.before_answer = fail_thrice
    news, _ = start()
    await until(lambda: len(news) == 4)
    assert [each.failed for each in news] == ["gone for a while"] * 3 + [""]
    assert [each.renewed for each in news] == [False] * 3 + [True]
    assert table.valid_since(slot) == news[3].sent


@pytest.mark.slow
async def test_a_heartbeat_without_an_answer_is_given_up(database: FakeDatabase, start: Start) -> None:
    database.before_answer = lambda: asyncio.Event().wait() if len(database.beats) == 1 else None
    news, _ = start(heartbeat_seconds=1)
    await until(lambda: len(news) >= 2)
    assert news[0].failed == "the database did not respond within 2 s"
    assert news[1].renewed
