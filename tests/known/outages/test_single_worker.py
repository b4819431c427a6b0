"""A single worker whose leases could not be renewed for long: no other worker could have taken its jobs."""

import asyncio

from holdfast import App
from holdfast.clock import Clock
from holdfast.model.reports import Fleet
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from tests.worker.in_process import until, working


class Later(Clock):
    """The clock of a worker that was suspended."""

    offset = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.offset


async def test_prefetched_jobs_of_a_single_worker_start_after_an_outage(app: App) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    @app.job()
    async def quick() -> str:
        return "done"

    @app.job()
    async def slow() -> None:
        began.set()
        await gate.wait()

    await asyncio.gather(*[quick.enqueue() for _ in range(20)])
    await slow.enqueue()
    waiting = [await quick.enqueue() for _ in range(5)]
    clock = Later()
    async with working(app, clock=clock, heartbeats=True, concurrency=1) as at_work:
        worker = at_work.worker
        alone = HeartbeatResult(renewed=True, fleet=Fleet(live=1))
        worker.on_heartbeat(alone)
        await began.wait()
        await until(lambda: len(worker.slots.buffer) == len(waiting))
        clock.offset = 600  # nothing was renewed meanwhile: the worker ends what runs, and starts nothing
        await until(lambda: not worker.slots.running())
        assert len(worker.slots.buffer) == len(waiting)
        for entry in worker.slots.lease_table.entries():
            worker.slots.lease_table.renewed(entry.slot, clock.monotonic())
        worker.on_heartbeat(alone)
        assert [await job.result(60) for job in waiting] == ["done"] * 5
        clock.offset = 0  # that of the table, where new leases are put
        assert await (await quick.enqueue()).result(60) == "done", "and it claims again"
