"""How long another tenant's jobs wait beside a flood."""

from __future__ import annotations

import asyncio
from itertools import count

from benchmarks.budget.workers import worker_process
from benchmarks.databases import Host
from benchmarks.growth.figures import Figure, Sizes, percentile
from benchmarks.implementations import PAYLOAD, TYPE, EngineCalls
from benchmarks.measurement import say
from benchmarks.operations import CREATE_MAX
from holdfast.model import NewJob
from holdfast.store.notify import hint_sender, queue_waker

WAIT_MAX = 2.0  # times the wait alone
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 60.0  # for one job; a wait that is longer counts as this long


async def beside_a_flood(store: str, machine: Host, sizes: Sizes) -> list[Figure]:
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        wake = hint_sender(calls.engine.store, calls.engine.clock)
        calls.engine.ctx.wakers.append(queue_waker(wake))
        try:
            async with worker_process(database, processes=1):
                say("  another tenant alone")
                await _waits(calls, 3)
                alone = await _waits(calls, sizes.waits)
                say("  the flood")
                await _flood(calls, sizes.flood)
                say("  another tenant beside the flood")
                beside = await _waits(calls, sizes.waits)
                left = await calls.engine.bench.unfinished(TYPE)
        finally:
            await wake.close()
            await calls.close()
    figures = {"alone_p99_ms": percentile(alone, 0.99), "beside_p99_ms": percentile(beside, 0.99)}
    details = {
        **{key: round(value, 3) for key, value in figures.items()},
        "alone_p50_ms": round(percentile(alone, 0.5), 3),
        "beside_p50_ms": round(percentile(beside, 0.5), 3),
        "flood": sizes.flood,
        "flood_left_at_the_end": left,  # 0: the flood was over too early
    }
    return [
        Figure(
            "flood: wait of another tenant, p99 times alone",
            figures["beside_p99_ms"] / figures["alone_p99_ms"],
            WAIT_MAX,
            details=details,
        )
    ]


async def _flood(calls: EngineCalls, jobs: int) -> None:
    for _ in range(0, jobs, CREATE_MAX):
        await calls.engine.create_many([NewJob(type=TYPE, tenant="flood", payload=PAYLOAD) for _ in range(CREATE_MAX)])


async def _waits(calls: EngineCalls, samples: int) -> list[float]:
    """Milliseconds from the create of a job until it had run, as the database recorded them."""
    taken = []
    for _ in range(samples):
        job = await calls.engine.create(NewJob(type=TYPE, tenant="other", payload=PAYLOAD))
        taken.append(await _wait_of(calls, job.id))
        await asyncio.sleep(PAUSE_SECONDS)
    return taken


async def _wait_of(calls: EngineCalls, job_id: str) -> float:
    for number in count(1):
        job = await calls.engine.reads.get(job_id)
        if job.finished_at:
            return max(0.001, (job.finished_at - job.created_at).total_seconds() * 1000)
        if number * 0.01 > PATIENCE_SECONDS:
            break
        await asyncio.sleep(0.01)
    return PATIENCE_SECONDS * 1000
