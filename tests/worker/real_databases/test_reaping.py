"""Recovery of lost jobs: it needs no slot, survives a kill, uses each job's own lease, and finds hung workers."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast.engine import Engine
from holdfast.lifecycle import State
from tests.worker.real_databases.ledger import Ledger, all_done
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

pytestmark = pytest.mark.slow
OpenHarness = Callable[..., Awaitable[WorkerHarness]]

BRISK = {"sweep_seconds": 0.5, "startup_grace_seconds": 0, "backoff_base": 0.1}


def lease(seconds: float) -> dict[str, float]:
    return {"lease_seconds": seconds, "heartbeat_seconds": seconds / 3}


async def test_reaping_needs_no_free_slot_and_survives_a_kill_of_the_reaper(
    store_url: str, harness: OpenHarness
) -> None:
    """K10: a worker claimed many jobs and vanished; the workers that reap them serve another queue and are killed."""
    on = await harness(store_url, **BRISK)
    engine = await on.engine()
    stranger = (await engine.workers.register(name="stranger")).id
    busy = await jobs.on_the_loop.options(queue="elsewhere").enqueue(seconds=100)
    rescuer = await on.start("--concurrency", "1", "--queues", "elsewhere")
    await on.started(busy)
    abandoned = [await claimed_by(engine, stranger, lease_seconds=seconds) for seconds in (1, 2, 3)]
    await eventually(lambda: reaped(on, at_least=100))
    assert (await busy.get()).epoch == 1, "its only slot was taken all the time"

    for _ in range(2):  # while leases run out
        rescuer.signal(signal.SIGKILL)
        rescuer = await on.start("--concurrency", "1", "--queues", "elsewhere")
        await asyncio.sleep(0.2)
    await on.start()
    ledger = await all_done(on, [*(job for some in abandoned for job in some), busy.id])
    assert {tuple(ledger.verbs(job)[:2]) for some in abandoned for job in some} == {("claim", "reap")}


async def claimed_by(engine: Engine, worker: str, *, lease_seconds: float) -> list[str]:
    made = await jobs.on_the_loop.options(policy=lease(lease_seconds), queue="abandoned").enqueue_many([{}] * 100)
    assert len(await engine.claim(worker, limit=100, queues=["abandoned"])) == 100
    return [job.id for job in made]


async def reaped(on: WorkerHarness, *, at_least: int) -> bool:
    return (await Ledger.read(await on.engine())).reaped().total() >= at_least


async def test_each_job_of_a_stopped_worker_waits_for_its_own_lease(store_url: str, harness: OpenHarness) -> None:
    """K24: a worker process is stopped for a while; of its two jobs one has a short lease and one a long one."""
    on = await harness(store_url, **BRISK)
    paused = await on.start()
    short = await jobs.on_the_loop.options(policy=lease(2)).enqueue(seconds=100)
    long = await jobs.on_the_loop.options(policy=lease(100_000)).enqueue(seconds=1)
    for job in (short, long):
        await on.started(job)
    stopped_at = time.time()
    await on.freeze(paused, paused.workers)
    await on.start()
    assert await short.result(60) == 2
    waited = await on.claimed_at(short, 2) - stopped_at
    print(f"the job with a lease of 2 s was taken over after {waited:.1f} s")
    assert await long.status() == "RUNNING"

    paused.signal(signal.SIGCONT, paused.workers)
    assert await long.result(60) == 1, "its first execution went on where it was"
    assert await on.outcomes(short) == ["lost", "succeeded"]
    assert await on.outcomes(long) == ["succeeded"]


async def test_a_worker_that_stopped_claiming_is_replaced_despite_its_heartbeats(
    fresh_sqlite_url: str, harness: OpenHarness
) -> None:
    """K29."""
    on = await harness(fresh_sqlite_url, watchdog_seconds=8)
    command = await on.start("--app", "tests.worker.real_databases.hanging_claim_app:app")
    [deaf] = command.workers
    job = await jobs.on_the_loop.enqueue()
    await eventually(lambda: deaf not in command.workers)
    assert f"killing unresponsive worker process {deaf}: it has not claimed for" in command.log
    assert (await on.final(job)).state is State.SUCCEEDED
    [started] = on.handler_log.notes("started", job.id)
    assert started["pid"] in command.workers, "by the one that took its place"
