"""Runs jobs in the slots of a worker: starts their handlers, stops them, and hands their outcomes to the reporter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock
from holdfast.model.reports import RAISED
from holdfast.worker.context import Context
from holdfast.worker.direct_backend import DirectBackend
from holdfast.worker.execution import Execution, StopReason
from holdfast.worker.first_steps import FirstSteps
from holdfast.worker.handler import NO_MIDDLEWARE, Isolation, MiddlewareStack, invoke
from holdfast.worker.loop_watch import current
from holdfast.worker.outcomes import Abandoned, Failed, Outcome, Released, how
from holdfast.worker.processes.signal_mask import unblock_signals
from holdfast.worker.progress_reporter import ProgressReporter
from holdfast.worker.reporter import Reporter
from holdfast.worker.slots import Slots
from holdfast.worker.transactions import Database

if TYPE_CHECKING:
    from holdfast.observe.traces import Traces
    from holdfast.worker.metrics import WorkerCounters
    from holdfast.worker.processes.process_pool import ChildExecution, ProcessPool

log = logging.getLogger("holdfast.worker")


@dataclass(frozen=True, kw_only=True)
class HandlerResources:
    """What handlers run with: the app's middleware and lifespan state, child processes, and the database."""

    middleware: MiddlewareStack = NO_MIDDLEWARE
    state: Any = None
    pool: ProcessPool | None = None
    database: Database | None = None
    metrics: WorkerCounters | None = None
    traces: Traces | None = None


class Executor:
    def __init__(
        self, slots: Slots, reporter: Reporter, progress: ProgressReporter, clock: Clock, resources: HandlerResources
    ) -> None:
        self._slots, self._reporter, self._progress, self._clock = slots, reporter, progress, clock
        self._resources, self._config = resources, slots.config
        self.unfinished: list[Execution] = []  # still running when the worker had stopped; their leases are held
        self._threads = ThreadPoolExecutor(
            self._config.concurrency + bool(slots.reserved_types),
            thread_name_prefix="holdfast-job",
            initializer=unblock_signals,
        )
        self._first_steps = FirstSteps(self._execute, self._slots_changed, clock)

    async def close(self) -> None:
        if self._resources.pool is not None:
            await self._resources.pool.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- starting ---------------------------------------------------------------------------------------------

    def start_buffered(self) -> None:
        """Start buffered jobs in the free slots. Not those whose lease may be lost: the next heartbeat tells. Nor those
        that need a child process while none is free: the database counts their time from the claim."""
        slots, buffer, now = self._slots, self._slots.buffer, self._clock.monotonic()
        passed_over: list[Execution] = []
        free = slots.free() if buffer else 0
        while buffer and free > 0:
            run = buffer.pop_first()
            if slots.lease_overdue(run, now) or not slots.can_start(run):
                passed_over.append(run)
            else:
                self._start(run, now)
                free -= 1
        if passed_over:
            buffer.put_back(passed_over)
        if free <= 0 and buffer.for_reserve and slots.reserve_is_free():
            self._start_reserved(now)
        if slots.unclaimed_children() > 0:
            slots.child_free.set()
        slots.update_idle()

    def _start_reserved(self, now: float) -> None:
        """Start the first buffered job that may use the reserved slot."""
        for run in self._slots.buffer:
            if run.handler.reserved_slot and not self._slots.lease_overdue(run, now) and self._slots.can_start(run):
                self._slots.buffer.remove(run)
                self._start(run, now)
                return

    def start(self, run: Execution) -> None:
        self._start(run, self._clock.monotonic())
        self._slots.idle.clear()

    def _start(self, run: Execution, now: float) -> None:
        resources = self._resources
        self._slots.occupy(run, now)
        run.context = Context(run.lease, self._backend(run), resources.state, resources.database)
        self._first_steps.add(run)

    def _backend(self, run: Execution) -> DirectBackend:
        return DirectBackend(run, self, self._progress, self._clock, self._resources.metrics)

    async def _execute(self, run: Execution) -> None:
        run.task = run.task or asyncio.current_task()
        current.set(run)
        outcome: Outcome | None = None
        if self._resources.traces is not None:
            run.span = self._resources.traces.begun(run.lease)
        try:
            if run.needs_child or run.handler.isolation is Isolation.PROCESS:
                outcome = await self._execute_in_child(run)
            else:
                assert run.context is not None  # noqa: S101
                self._begin(run, run.cancel_task if run.handler.is_async else None)
                returned = None if run.handler.is_async else partial(self._handler_returned, run)
                resources = self._resources
                outcome = await invoke(
                    run.handler, run.context, run.lease.payload, resources.middleware, self._threads, returned
                )
        except asyncio.CancelledError:
            if run.stop_reason is None and self._slots.stopping.is_set():
                run.stop_reason = StopReason.SHUTDOWN
        except Exception as error:
            log.exception("job %s: internal error in the worker", run.lease.id)
            outcome = Failed("E_RUNTIME", str(error), {RAISED: type(error).__name__})
        if run.needs_child:
            self._slots.in_children.discard(run)
        self._finish(run, outcome)

    def _handler_returned(self, run: Execution) -> None:
        """Called in the handler's thread."""
        run.handler_returned(self._clock.monotonic())

    async def _execute_in_child(self, run: Execution) -> Outcome:
        pool, traces = self._resources.pool, self._resources.traces
        if pool is None:
            return Failed("E_NO_CHILDREN", "this worker cannot start child processes", permanent=True)

        def started(child: ChildExecution) -> None:
            if run.finished:  # given up on while the child was starting: another job may have its slot
                child.kill()
                return
            self._slots.lease_table.executor(run.slot, child.pid)
            run.child = child
            self._begin(run, lambda: self._stop_child(run, child))
            if self._slots.stopping.is_set():
                run.warn_of_shutdown()

        run.interrupt = run.cancel_task  # kills the child that is being started
        lease = run.lease if traces is None else traces.carrying(run.lease, run.span)
        outcome = await pool.run(lease, run.handler, self._backend(run), dedicated=run.quarantined, on_started=started)
        if run.child is not None and run.child.seconds is not None and run.begun_at is not None:
            run.handler_returned(run.begun_at + run.child.seconds)
        if run.quarantined and isinstance(outcome, Failed) and outcome.code == "E_CRASHED" and run.stop_reason is None:
            message = f"it crashed again in a process of its own: {outcome.message}"
            return Failed("poison", message, outcome.context, permanent=True)
        return outcome

    def _begin(self, run: Execution, interrupt: Callable[[], None] | None) -> None:
        """The handler starts and its timeouts begin. The time that a child process takes to start does not count."""
        run.begun_at = run.progress_at = self._clock.monotonic()
        run.interrupt = interrupt
        self.publish_deadline(run)
        if self._resources.metrics is not None:
            self._resources.metrics.begins(run)
        if run.stop_reason is not None and interrupt is not None:  # it was told to stop before it could be interrupted
            interrupt()

    def publish_deadline(self, run: Execution) -> None:
        """Tell the watchdog, as long as the slot in the lease table is this execution's."""
        if run.begun_at is not None and not run.finished and (allowed := run.seconds_allowed) is not None:
            self._slots.lease_table.deadline(run.slot, run.begun_at + allowed)

    # -- stopping ---------------------------------------------------------------------------------------------

    def cancel(self, run: Execution) -> None:
        if run.started:
            run.stop(StopReason.CANCELED, self._clock.monotonic())
        else:
            self._slots.buffer.remove(run)
            self.release([run])

    def lose(self, run: Execution) -> None:
        """Its lease is lost: another worker has the job, or may have it soon."""
        if run.finished or run.recorded is not None:
            return  # the response to its report tells, or there is no report to come
        self._slots.abandoned.append(run.lease.token)
        if run.started:
            run.stop(StopReason.LOST, self._clock.monotonic())
        else:
            self._slots.buffer.remove(run)
            run.finished = True
            self._reporter.put(run, Abandoned())
            self._slots.update_idle()

    def release_buffer(self) -> None:
        self.release(self._slots.buffer.clear())

    def release(self, runs: list[Execution], *, delay_seconds: float = 0) -> None:
        """Give back jobs that were not started."""
        for run in runs:
            run.finished = True
            self._reporter.put(run, Released(delay_seconds))
        self._slots.update_idle()

    def stop_all(self) -> None:
        """The grace period of the shutdown is over."""
        for run in self._slots.running():
            run.stop(StopReason.SHUTDOWN, self._clock.monotonic())
            if run.interrupt is None:
                self._leave(run)  # a thread cannot be interrupted, and the process is about to end

    def leave_running(self) -> None:
        for run in self._slots.running():
            self._leave(run)

    def _leave(self, run: Execution) -> None:
        """It runs on while the worker stops. Released now, it would run twice: see `release_unfinished`."""
        log.warning("job %s (%s) is still running at shutdown", run.lease.id, run.lease.type)
        self._slots.vacate(run, stuck=True)
        self.unfinished.append(run)
        self._slots.update_idle()

    def _stop_child(self, run: Execution, child: ChildExecution) -> None:
        grace = self.grace_seconds(run)
        if run.stop_reason is StopReason.SHUTDOWN or grace <= 0:  # it was warned when the shutdown began
            child.kill()
            return
        if run.stop_reason is StopReason.LOST:
            child.lose()
        else:
            child.cancel()
        asyncio.get_running_loop().call_later(grace, child.kill)

    def grace_seconds(self, run: Execution) -> float:
        """From the request to stop until it is killed or given up: less than the engine itself waits after a cancel."""
        if run.stop_reason is StopReason.CANCELED:
            return 0.8 * run.policy.cancel_grace_seconds
        if run.stop_reason is StopReason.TIMED_OUT:
            return self._config.timeout_grace_seconds
        return self._config.kill_grace_seconds

    def give_up(self, run: Execution) -> None:
        """It did not stop. Report in its place; its slot stays occupied until the handler really ends."""
        log.warning(
            "job %s (%s) did not stop when told to%s; its result will be discarded, and its slot stays occupied until "
            "it ends",
            *(run.lease.id, run.lease.type, "" if run.interrupt else " (a thread cannot be interrupted)"),
        )
        self._slots.vacate(run, stuck=True)
        run.end(self._clock.monotonic())
        if run.context is not None:
            run.context.lost = True  # its further reports are rejected
        self._report(run, run.outcome(None))
        self._slots.update_idle()

    # -- finishing --------------------------------------------------------------------------------------------

    def _finish(self, run: Execution, outcome: Outcome | None) -> None:
        slots = self._slots
        if run.finished:
            self._finish_late(run, outcome)
            return
        run.end(self._clock.monotonic())
        if run.seconds is not None and run is not slots.reserve:  # which is not for what is prefetched
            slots.prefetch.ended(run.seconds)
        slots.vacate(run)
        self._report(run, run.outcome(outcome))
        if not self._first_steps.under_way:
            self._slots_changed()

    def _slots_changed(self) -> None:
        """Jobs have ended."""
        slots = self._slots
        self.start_buffered()
        if not slots.capacity_changed.is_set() and slots.wanted():
            slots.capacity_changed.set()

    def _finish_late(self, run: Execution, outcome: Outcome | None) -> None:
        """It was given up on, and now it has ended."""
        self._slots.vacate_late(run)
        if run in self.unfinished and not self._reporter.closed:
            self.unfinished.remove(run)
            run.end(self._clock.monotonic())
            self._report(run, run.outcome(outcome))
        self._slots.capacity_changed.set()
        self.start_buffered()

    def _report(self, run: Execution, outcome: Outcome) -> None:
        if self._resources.traces is not None and run.span is not None:
            self._resources.traces.ended(run.span, *how(outcome))
        self._reporter.put(run, outcome)
