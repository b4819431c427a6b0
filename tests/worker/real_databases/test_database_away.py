"""PostgreSQL restarts under load: workers wait, reconnect and continue, and no worker counts as crashed."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest

from holdfast.sdk.handle import JobHandle
from holdfast.store.migrate import migrate
from tests.servers.postgres import PostgresServer, running
from tests.store.open_transactions import assert_none_is_left_open
from tests.worker.real_databases.ledger import all_done
from tests.worker.real_databases.load import load
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

AWAY_SECONDS = 2.5
RESUMED_SECONDS = 60  # on a busy machine: 5 is the aim, and printed

END_ALL_OTHERS = """
SELECT count(pg_terminate_backend(pid))
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_a_database_restart_loses_no_job_and_no_worker(harness: OpenHarness) -> None:
    """F4, L5: stopped in order, then killed. The lease is 30 s: nothing may have to wait for that."""
    with running(durable=True) as server:
        await migrate(server.dsn())
        on = await harness(server.dsn())
        command = await on.start("--processes", "2", ready=2)
        workers = command.workers
        returns: list[float] = []
        spanning: list[JobHandle[Any]] = []
        async with load() as handed_in:
            for kill in (False, True):
                await handed_in.more()
                spanning += [await jobs.on_the_loop.enqueue(seconds=AWAY_SECONDS / 2) for _ in range(4)]
                await asyncio.gather(*(on.started(job) for job in spanning))
                returns.append(await away(server, partial(all_returned, on, spanning), kill=kill))
                await handed_in.more()
        assert handed_in.refusals > 0, "no client saw an error"
        ids = [*handed_in.ids, *(job.id for job in spanning)]
        ledger = await all_done(on, ids, RESUMED_SECONDS)

        for back in returns:
            print(f"the first claim came {ledger.first_claim(back):.2f} s after the database")
            assert ledger.first_claim(back) < RESUMED_SECONDS
        assert ledger.reaped() == {}, "neither a restart nor a reconnect is a death"
        assert ledger.attempts() == {1: len(ids)}
        assert {len(on.handler_log.notes("started", job)) for job in ids} == {1}, "each ran once"
        for number, job in enumerate(spanning):
            back = returns[number // 4]
            [returned], [completed] = on.handler_log.notes("returned", job.id), ledger.times("complete", job.id)
            assert returned["at"] < back < completed, "it ended meanwhile, and its result was delivered"
        assert command.workers == workers, "they are the same processes"
        await eventually(lambda: command.log.count("the database is reachable again") >= 2)
        assert await command.stop() == 0
        said = [json.loads(line) for line in command.log.splitlines()]
        levels = [line["level"] for line in said if line["logger"] == "holdfast.connection"]
        most = 2 * 2 * 2  # two processes in two outages; a busy one may take both for one
        assert 2 <= levels.count("warning") <= most, "not one for each try"


def all_returned(on: WorkerHarness, spanning: list[JobHandle[Any]]) -> bool:
    return all(on.handler_log.notes("returned", job.id) for job in spanning)


async def away(server: PostgresServer, ended: Callable[[], bool], *, kill: bool) -> float:
    """When it began to come back: workers may be connected again before its start is known here."""
    await asyncio.to_thread(server.stop, kill=kill)
    await asyncio.sleep(AWAY_SECONDS)
    await eventually(ended)
    back = time.time()
    await asyncio.to_thread(server.start)
    return back


async def test_connections_terminated_ten_times_a_second_lose_no_job(
    fresh_postgres_url: str, harness: OpenHarness
) -> None:
    """F5: connections of the workers, of their heartbeat processes and of the clients."""
    on = await harness(fresh_postgres_url)
    command = await on.start("--processes", "2", ready=2)
    workers = command.workers
    operator = await asyncpg.connect(fresh_postgres_url)
    async with load() as handed_in:
        await handed_in.more()
        ended = 0
        for _ in range(50):
            ended += await operator.fetchval(END_ALL_OTHERS)
            await asyncio.sleep(0.1)
        calm = time.time()
        await handed_in.more()
    ledger = await all_done(on, handed_in.ids)
    print(f"{ended} connections ended; the next claim came {ledger.first_claim(calm):.2f} s after the last of it")
    assert ended >= 100, "there was nothing to end"
    assert ledger.reaped() == {}
    assert ledger.attempts() == {1: len(handed_in.ids)}
    await assert_none_is_left_open(operator)
    await operator.close()
    assert command.workers == workers
    assert await command.stop() == 0
