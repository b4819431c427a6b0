"""An idle worker starts a job soon: after an enqueue in another process, when it is due, and without a notification."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast.store.notify import CHANNEL
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

ROUNDS = 50
SOON_SECONDS = 2  # of most: milliseconds are the aim, and printed
POLLED_SECONDS = 60  # on a busy machine: a look every second is the floor

LISTENERS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' ORDER BY pid
"""


async def test_an_idle_worker_starts_a_new_job_immediately_and_a_delayed_one_in_time(
    store_url: str, harness: OpenHarness
) -> None:
    on = await harness(store_url)
    await on.start()
    waits = sorted([await start_of(on, jobs.on_the_loop) for _ in range(ROUNDS)])
    print(f"from enqueue to start: p50 {1000 * statistics.median(waits):.1f} ms, p99 {1000 * waits[-1]:.1f} ms")
    assert statistics.median(waits) < SOON_SECONDS

    late = await start_of(on, jobs.on_the_loop.options(delay=2)) - 2
    print(f"a delayed job started {1000 * late:.0f} ms after its time")
    assert 0 <= late < POLLED_SECONDS, "there is no notification when it becomes due"


async def start_of(on: WorkerHarness, job_type: Any) -> float:
    """How long after it was asked for a job began. It is waited for, so that the worker is idle again."""
    asked = time.time()
    job = await job_type.enqueue()
    await job.result(60)
    [started] = on.handler_log.notes("started", job.id)
    return float(started["at"]) - asked


async def test_a_worker_without_its_listen_connection_polls_and_reconnects(
    fresh_postgres_url: str, harness: OpenHarness
) -> None:
    on = await harness(fresh_postgres_url)
    await on.start()
    operator = await asyncpg.connect(fresh_postgres_url)
    [listener] = await operator.fetch(LISTENERS)
    await operator.execute("SELECT pg_terminate_backend($1)", listener["pid"])
    print(f"without its listen connection, {await start_of(on, jobs.on_the_loop):.2f} s")
    await eventually(lambda: operator.fetch(LISTENERS), POLLED_SECONDS)
    assert await operator.fetch(LISTENERS) != [listener]
    wait = statistics.median([await start_of(on, jobs.on_the_loop) for _ in range(5)])
    print(f"with a new one, {1000 * wait:.0f} ms")
    assert wait < SOON_SECONDS
    await operator.close()


async def test_a_job_in_a_callers_transaction_sends_no_notify_and_is_found_by_polling(
    fresh_postgres_url: str, harness: OpenHarness
) -> None:
    """K32: a NOTIFY in there would hold a lock of the whole server at the caller's commit. Ours come by ways of our
    own, the last of them a second after the job was created."""
    on = await harness(fresh_postgres_url)
    await on.start()
    listener, caller = [await asyncpg.connect(fresh_postgres_url) for _ in range(2)]
    said: list[int] = []
    await listener.add_listener(CHANNEL, lambda *notice: said.append(notice[1]))
    async with caller.transaction():
        job = await jobs.on_the_loop.options(connection=caller).enqueue()
        await asyncio.sleep(1.5)
        early = len(said)
        assert on.handler_log.notes("started", job.id) == [], "not before the commit"
        committed = time.time()
    await job.result(60)
    [started] = on.handler_log.notes("started", job.id)
    print(f"started {started['at'] - committed:.2f} s after the caller's commit")
    assert started["at"] - committed < POLLED_SECONDS
    assert len(said) == early
    assert caller.get_server_pid() not in said
    await start_of(on, jobs.on_the_loop)
    await eventually(lambda: len(said) == early + 1)  # the listener was not deaf
    for connection in (listener, caller):
        await connection.close()
