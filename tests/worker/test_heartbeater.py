"""The heartbeat process: renews the leases of its worker whatever the worker does, and ends with it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.model.reports import HeldLease
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.worker.processes.process_state import ProcessState, state_of
from tests.servers.postgres import running
from tests.worker.lease_holder import PATIENCE_SECONDS, Holder, until

LEASE_SECONDS = 2.0
pytestmark = pytest.mark.slow


class LeaseHolders:
    """An engine in real time, and processes that hold what is claimed here."""

    def __init__(self, engine: Engine, worker: str, settings: Settings) -> None:
        self.engine, self.worker, self.settings = engine, worker, settings
        self.holders: list[Holder] = []

    async def hold(
        self, jobs: int = 1, *, lease_seconds: float = LEASE_SECONDS, watchdog_seconds: float = 0
    ) -> tuple[Holder, list[HeldLease]]:
        """A process that holds this many jobs, each renewed once."""
        await self.engine.create_many([NewJob(type="kept") for _ in range(jobs)])
        leases = [HeldLease(lease.id, lease.token) for lease in await self.engine.claim(self.worker, limit=jobs)]
        holder = await Holder.start(
            leases,
            lease_seconds,
            worker=self.worker,
            heartbeat_seconds=3600,
            watchdog_seconds=watchdog_seconds,
            settings=msgspec.to_builtins(self.settings),
        )
        self.holders.append(holder)
        return holder, leases

    async def reaped(self) -> list[str]:
        return [row["id"] for row in await self.engine.maintenance.reap()]

    async def reap_until(self, job_id: str) -> list[str]:
        """Sweep until this job was taken from its holder; what else was."""
        taken: list[str] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while job_id not in taken:
                taken += await self.reaped()
                await asyncio.sleep(0.05)
        return [each for each in taken if each != job_id]


Open = Callable[[str], Awaitable[LeaseHolders]]


@pytest.fixture
async def open_holders() -> AsyncIterator[Open]:
    opened: list[LeaseHolders] = []

    async def open_holders(url: str) -> LeaseHolders:
        settings = Settings(database_url=url, lease_seconds=LEASE_SECONDS, heartbeat_seconds=1, startup_grace_seconds=0)
        engine = await open_engine(settings)
        opened.append(LeaseHolders(engine, (await engine.workers.register(name="holder")).id, settings))
        return opened[-1]

    yield open_holders
    for holders in opened:
        for holder in holders.holders:
            await holder.end()
        await holders.engine.close()


@pytest.fixture
async def holders(store_url: str, open_holders: Open) -> LeaseHolders:
    return await open_holders(store_url)


async def test_a_handler_that_holds_the_gil_for_five_leases_keeps_its_job(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold()
    blocked = asyncio.create_task(holder.ask("ages", hold_the_gil=int(5 * LEASE_SECONDS)))
    while not blocked.done():
        assert await holders.reaped() == []
        await asyncio.sleep(0.1)
    [age] = blocked.result()
    assert age < LEASE_SECONDS  # the worker sees at once that it was renewed, before it has read any news
    settled = await holders.engine.complete(holders.worker, lease.id, lease.token)
    assert settled.state is State.SUCCEEDED


async def test_a_stopped_process_loses_its_leases_and_learns_it_when_continued(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold()
    holder.process.send_signal(signal.SIGSTOP)
    await holders.reap_until(lease.id)
    holder.process.send_signal(signal.SIGCONT)
    await until(lambda: any(lease in news.lost for news in holder.news))


async def test_only_the_lease_of_a_dead_executor_expires(holders: LeaseHolders) -> None:
    holder, [in_child, other] = await holders.hold(jobs=2)
    child = await holder.ask("child", run_in_child=0)
    beats = len(holder.news)
    await until(lambda: len(holder.news) > beats + 4)  # 4 / 3 of a lease: it counts while it lives
    assert await holders.reaped() == []

    os.kill(child, signal.SIGKILL)
    assert await holders.reap_until(in_child.id) == []
    assert (await holders.engine.reads.get(other.id)).state is State.RUNNING


async def test_the_lease_of_a_stopped_executor_expires(holders: LeaseHolders) -> None:
    holder, [lease, other] = await holders.hold(jobs=2)
    os.kill(await holder.ask("child", run_in_child=0), signal.SIGSTOP)
    assert await holders.reap_until(lease.id) == []
    assert (await holders.engine.reads.get(other.id)).state is State.RUNNING


async def test_the_heartbeat_process_exits_when_its_worker_is_killed(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold()
    heartbeater = await holder.ask("heartbeater", heartbeater=True)
    holder.process.kill()
    await until(lambda: state_of(heartbeater) is ProcessState.GONE)
    await holders.reap_until(lease.id)


async def test_a_cancel_request_is_reported_before_the_next_heartbeat(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold(lease_seconds=3600)
    await holders.engine.cancel(lease.id)
    await until(lambda: any(lease in news.cancel for news in holder.news))


async def test_a_disabled_worker_learns_it_from_its_heartbeat(holders: LeaseHolders) -> None:
    holder, _ = await holders.hold()
    await holders.engine.workers.disable(holders.worker)
    await until(lambda: not holder.news[-1].enabled)


async def test_a_heartbeat_process_that_dies_is_replaced(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold()
    first = await holder.ask("heartbeater", heartbeater=True)
    os.kill(first, signal.SIGKILL)
    died = len(holder.news)
    await until(lambda: any(news.renewed for news in holder.news[died:]))
    assert await holder.ask("heartbeater", heartbeater=True) != first
    await holders.engine.complete(holders.worker, lease.id, lease.token)


async def test_signals_for_the_whole_group_do_not_end_the_heartbeat_process(holders: LeaseHolders) -> None:
    holder, _ = await holders.hold()
    heartbeater = await holder.ask("heartbeater", heartbeater=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(heartbeater, number)
    beats = len(holder.news)
    await until(lambda: len(holder.news) > beats + 1)
    assert await holder.ask("heartbeater", heartbeater=True) == heartbeater


async def test_a_closed_heartbeat_process_exits_with_0_and_renews_no_lease(holders: LeaseHolders) -> None:
    holder, [lease] = await holders.hold()
    heartbeater = await holder.ask("heartbeater", heartbeater=True)
    assert await holder.ask("closed", close=True) == 0
    assert state_of(heartbeater) is ProcessState.GONE
    await holders.reap_until(lease.id)


# -- the watchdog ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watchdog_seconds", "command", "reason"),
    [
        (60, {"block_the_loop": 50, "over_after": 0.5}, "s ago and the event loop has not run"),
        (2, {"block_the_loop": 50, "over_after": 1000}, "its event loop has not run for"),
        (2, {"stop_polling": True}, "s although the database is reachable"),
    ],
)
async def test_the_watchdog_kills_an_unresponsive_worker_and_its_job_is_reaped(
    fresh_sqlite_url: str, open_holders: Open, watchdog_seconds: float, command: dict[str, Any], reason: str
) -> None:
    holders = await open_holders(fresh_sqlite_url)
    holder, [lease] = await holders.hold(watchdog_seconds=watchdog_seconds)
    holder.tell(**command)
    await asyncio.wait_for(holder.process.wait(), 60)
    assert holder.process.returncode == -signal.SIGKILL
    assert reason in await holder.end()
    await holders.reap_until(lease.id)


async def test_without_a_watchdog_a_blocked_worker_is_not_killed(fresh_sqlite_url: str, open_holders: Open) -> None:
    holders = await open_holders(fresh_sqlite_url)
    holder, [lease] = await holders.hold(watchdog_seconds=0)
    holder.tell(block_the_loop=7, over_after=0.1)
    await holder.ask("heartbeater", heartbeater=True)
    await holders.engine.complete(holders.worker, lease.id, lease.token)


# -- the database ---------------------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_leases_survive_a_restart_of_the_database(open_holders: Open) -> None:
    with running() as server:
        await migrate(server.dsn())
        holders = await open_holders(server.dsn())
        holder, [lease] = await holders.hold()
        await asyncio.to_thread(server.stop)
        await until(lambda: holder.news[-1].failed)
        await asyncio.to_thread(server.start)
        await until(lambda: holder.news[-1].renewed)
        settled = await holders.engine.complete(holders.worker, lease.id, lease.token)
        assert settled.state is State.SUCCEEDED
        await holder.end()
