"""The monitor of a worker, five times a second: enforces timeouts and leases, and releases jobs that wait too long."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.model import Liveness
from holdfast.worker.config import BUFFERED_SECONDS_MAX, TICK_SECONDS
from holdfast.worker.connectivity import Connectivity
from holdfast.worker.execution import Execution, StopReason
from holdfast.worker.executor import Executor
from holdfast.worker.progress_reporter import ProgressReporter
from holdfast.worker.slots import Slots

LATE_SECONDS = 0.5  # a tick that comes so late: the event loop was blocked
INTERRUPT_SECONDS = 1.0  # for an interrupt to take effect
SUSPENDED_SECONDS = 5 * TICK_SECONDS  # between two ticks: the process was stopped, or starved of CPU

log = logging.getLogger("holdfast.worker")


class Monitor:
    def __init__(
        self,
        slots: Slots,
        executor: Executor,
        connectivity: Connectivity,
        progress: ProgressReporter,
        clock: Clock,
        *,
        stop: Callable[[], None],
    ) -> None:
        self._slots, self._executor, self._connectivity = slots, executor, connectivity
        self._progress, self._clock, self._stop = progress, clock, stop
        self.other_workers = True  # there may be others that could start what waits here
        self.heartbeat_failed = False  # the last one
        self._ticked_at = self._undisturbed_since = clock.monotonic()

    async def run(self) -> None:
        table, config = self._slots.lease_table, self._slots.config
        while True:
            now = self._clock.monotonic()
            table.tick()
            table.show(Liveness.BUSY if self._slots.busy else Liveness.IDLE, config.concurrency)
            if self._slots.free() <= 0:
                table.polled()  # no free slot, no need to claim
            for run in list(self._slots.executions.values()):
                if run.started and not run.finished:
                    self.check(run, now)
            self._release_stale(now)
            self._restart_if_stuck(now)
            await self._clock.sleep(TICK_SECONDS)
            if self._clock.monotonic() - now > LATE_SECONDS:
                table.tick()
                await self._clock.sleep(TICK_SECONDS)  # first let handlers finish that ended while the loop was blocked

    def check(self, run: Execution, now: float) -> None:
        """Stop it if its lease or its time is over; give up on it if it was told to stop and does not."""
        if self._slots.lease_overdue(run, now) and run.stop_reason is not StopReason.LOST:
            log.error("job %s: its lease was not renewed in time; stopping it before the lease expires", run.lease.id)
            self._executor.lose(run)
        elif run in self._progress.waiting:
            pass  # for the database: its clocks stand still
        elif run.begun_at is not None and run.stop_reason is None and (failure := run.timeout(now)) is not None:
            run.stop(StopReason.TIMED_OUT, now, failure)
        if (
            run.stop_reason is not None
            and not run.finished
            and now - run.stop_requested_at >= self._seconds_to_stop(run)
        ):
            self._executor.give_up(run)

    def _seconds_to_stop(self, run: Execution) -> float:
        return self._executor.grace_seconds(run) + (INTERRUPT_SECONDS if run.interrupt is not None else 0)

    def _release_stale(self, now: float) -> None:
        """Release buffered jobs that waited too long and will not start soon: another worker may start them sooner.
        Those that wait for a child process are released even if there is no other worker: the database counts their
        time.

        The wait starts again after an outage of the database, or after this process was suspended: no other worker
        could have started them.
        """
        slots = self._slots
        passed, self._ticked_at = now - self._ticked_at, now
        if self._connectivity.away or self.heartbeat_failed or self._progress.waiting or passed > SUSPENDED_SECONDS:
            self._undisturbed_since = now
        if now - self._undisturbed_since <= BUFFERED_SECONDS_MAX:
            return
        moving = now - slots.started_at <= BUFFERED_SECONDS_MAX
        stale = {
            run
            for place, run in enumerate(slots.buffer)
            if now - run.claimed_at > BUFFERED_SECONDS_MAX
            and (not slots.can_start(run) or (self.other_workers and not (moving and place < slots.prefetch.ahead())))
        }
        if stale:
            slots.buffer.discard(stale)
            if behind := sum(map(slots.can_start, stale)) if slots.inline_types else len(stale):
                slots.prefetch.claimed(behind, back=behind)
            self._executor.release(list(stale))

    def _restart_if_stuck(self, now: float) -> None:
        """When most slots have been occupied for long by handlers that do not stop, a new process is better."""
        slots, config = self._slots, self._slots.config
        ordinary = (run for run in slots.stuck if run is not slots.reserve)
        stuck = sum(now - run.stop_requested_at > config.kill_grace_seconds for run in ordinary)
        if config.replaceable and stuck * 2 > config.concurrency and not slots.stopping.is_set():
            log.error(
                "%d of %d slots are occupied by handlers that do not stop; restarting this worker process",
                *(stuck, config.concurrency),
            )
            self._stop()
