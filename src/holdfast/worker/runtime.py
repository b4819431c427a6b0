"""The life cycle of a worker: its claim loop, executor, monitor and reporter, from the start to the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model.reports import Release
from holdfast.outage_log import outage
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.claim_loop import ClaimLoop
from holdfast.worker.config import WorkerConfig
from holdfast.worker.connectivity import Connectivity
from holdfast.worker.execution import Execution
from holdfast.worker.executor import Executor, HandlerResources
from holdfast.worker.handler import Handler
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.monitor import Monitor
from holdfast.worker.progress_reporter import ProgressReporter
from holdfast.worker.reporter import Reporter
from holdfast.worker.slots import FENCE, Slots
from holdfast.worker.source import Source

if TYPE_CHECKING:
    from holdfast.worker.heartbeat.heartbeater import HeartbeatResult

LAST_REPORTS_SECONDS = 5.0  # for a claim in flight and for reports, when every handler has ended
RENEW = "renew leases"


class Worker:
    """Claims jobs from a source, runs their handlers in its slots, and reports outcomes in batches. A heartbeat process
    beside it renews the leases."""

    def __init__(
        self,
        source: Source,
        handlers: Mapping[str, Handler],
        *,
        config: WorkerConfig | None = None,
        resources: HandlerResources | None = None,
        lease_table: LeaseTable | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        attempt_log: AttemptLog | None = None,
    ) -> None:
        clock, ids, resources = clock or Clock(), ids or Ids(), resources or HandlerResources()
        self.config, self._clock = config or WorkerConfig(), clock
        self._source, connectivity = source, Connectivity(clock)
        self.slots = Slots(self.config, handlers, lease_table or LeaseTable.create(), resources.pool, clock.monotonic())
        self._reporter = Reporter(
            source,
            connectivity,
            clock,
            ids,
            busy=lambda: self.slots.busy > 0,
            settled=self.slots.remove,
            metrics=resources.metrics,
            attempt_log=attempt_log,
        )
        self.progress = ProgressReporter(source, connectivity, clock, ids, fence=self._fence)
        self.executor = Executor(self.slots, self._reporter, self.progress, clock, resources)
        self.claim_loop = ClaimLoop(source, connectivity, self.slots, self.executor, clock, ids)
        self.monitor = Monitor(self.slots, self.executor, connectivity, self.progress, clock, stop=self.stop)

    def _fence(self, run: Execution) -> float | None:
        """Without heartbeats the lease is over when its time is; with them, the lease table says when it may be."""
        return None if self.config.heartbeats else FENCE * run.policy.lease_seconds

    # -- life cycle -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop` is called, then finish the running jobs within the grace period and release the rest."""
        background = [asyncio.create_task(work) for work in (self._reporter.run(), self.monitor.run())]
        claiming = asyncio.create_task(self.claim_loop.run())
        try:
            await _first_failure([claiming, *background], until=self.slots.stopping)
            await self._shut_down(claiming)
        finally:
            for task in (claiming, *background):
                task.cancel()
            await asyncio.gather(claiming, *background, return_exceptions=True)
            await self.executor.close()

    def stop(self) -> None:
        """No new claim from now on."""
        self.slots.stopping.set()
        self.slots.capacity_changed.set()
        self.slots.lease_table.stop()
        for run in self.slots.running():
            run.warn_of_shutdown()

    async def _shut_down(self, claiming: asyncio.Task[None]) -> None:
        self.executor.release_buffer()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.stop_grace_seconds):
                await asyncio.shield(claiming)  # the claim loop releases what it has just claimed
                await self.slots.idle.wait()
                await self._reporter.empty()
        self.executor.stop_all()
        await self._clock.within(self.slots.idle, self.config.kill_grace_seconds)
        self.executor.leave_running()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORTS_SECONDS):
                await asyncio.shield(claiming)  # canceled, it would leave jobs claimed that no worker runs
                await self._reporter.empty()

    async def release_unfinished(self, delay_seconds: float) -> None:
        """Right before the process ends: release what still runs in it, to be claimed when the process is gone."""
        if leases := [run.lease for run in self.executor.unfinished]:
            await self._source.settle([Release(held.id, held.token, delay_seconds, snoozed=False) for held in leases])

    # -- heartbeats -------------------------------------------------------------------------------------------

    def on_heartbeat(self, result: HeartbeatResult) -> None:
        """The heartbeat process has renewed the leases, or could not."""
        if result.failed:
            outage.failed(RENEW, result.failed)
            self.monitor.heartbeat_failed = True
            return
        outage.succeeded(RENEW)
        self.claim_loop.enabled = result.enabled
        self.monitor.heartbeat_failed, self.monitor.other_workers = False, result.fleet.live > 1
        executions = self.slots.executions
        for held in result.lost:
            if (run := executions.get(held.token)) is not None:
                self.executor.lose(run)
        for held in result.cancel:
            if (run := executions.get(held.token)) is not None and not run.finished:
                self.executor.cancel(run)
        self.executor.start_buffered()  # those that waited for their lease to be renewed
        self.slots.capacity_changed.set()


async def _first_failure(tasks: list[asyncio.Task[None]], *, until: asyncio.Event) -> None:
    """Wait for the event. A task that ends before it has failed, and the worker cannot go on without it."""
    waiting = asyncio.create_task(until.wait())
    try:
        await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        waiting.cancel()
