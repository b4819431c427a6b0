"""One execution of a job in a worker: its lease, its context, its timeouts, and why it was told to stop, if it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.lifecycle import Policy
from holdfast.model import Lease
from holdfast.worker.context import Context
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Recorded, Released

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from holdfast.worker.processes.process_pool import ChildExecution


class StopReason(Enum):
    """Why the worker stops a handler; a later one in this list overrides an earlier one."""

    CANCELED = "canceled"
    SHUTDOWN = "shutdown"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Execution(msgspec.Struct, eq=False):
    lease: Lease
    policy: Policy
    handler: Handler
    claimed_at: float
    slot: int  # in the lease table
    needs_child: bool = False  # it runs in a child process, where this worker has them
    started: bool = False  # it occupies a slot of the worker
    begun_at: float | None = None  # since when its handler can run
    progress_at: float = 0.0  # set when it begins
    returned_at: float | None = None  # when its handler ended; the event loop may learn of it later
    seconds: float | None = None  # how long the handler ran, once it has ended; None if it never began
    finished: bool = False  # the handler has ended; only the report may still be under way
    context: Context | None = None
    task: asyncio.Task[Any] | None = None
    interrupt: Callable[[], None] | None = None  # makes the handler stop; None: it cannot be interrupted
    child: ChildExecution | None = None  # where it runs in a child process
    stop_reason: StopReason | None = None
    failure: Failed | None = None  # to report after a timeout
    stop_requested_at: float = 0.0
    recorded: Recorded | None = None  # the handler has completed the job in its own transaction
    span: Span | None = None  # where attempts are traced

    __repr__ = object.__repr__  # without the payload

    @property
    def fragile(self) -> bool:
        """It must not be buffered: another job that crashes the process would cost its last attempt."""
        return self.lease.lost > 0 or self.lease.attempt >= self.lease.max_attempts

    @property
    def quarantined(self) -> bool:
        """Lost so often that it may be what crashes workers: it runs in a process of its own."""
        return self.lease.lost >= 2 or (self.lease.lost > 0 and self.lease.lost + 1 >= self.policy.max_lost)

    def timeout(self, now: float) -> Failed | None:
        """The failure to report if one of its timeouts is over."""
        assert self.begun_at is not None  # noqa: S101
        policy, ran = self.policy, now - self.begun_at
        if policy.timeout_seconds is not None and ran >= policy.timeout_seconds:
            return Failed("timeout", f"the attempt ran longer than its timeout of {policy.timeout_seconds:g} s")
        if policy.max_runtime_seconds is not None and ran >= policy.max_runtime_seconds:
            return Failed("max_runtime", f"the job ran longer than {policy.max_runtime_seconds:g} s")
        if policy.no_progress_seconds is not None and now - self.progress_at >= policy.no_progress_seconds:
            return Failed("no_progress", f"no progress was reported for {policy.no_progress_seconds:g} s")
        return None

    def extend_timeouts(self, seconds: float) -> None:
        """It waited that long for the database: the time does not count against the handler."""
        if self.begun_at is not None:
            self.begun_at += seconds
        self.progress_at += seconds

    @property
    def seconds_allowed(self) -> float | None:
        timeout, longest = self.policy.timeout_seconds, self.policy.max_runtime_seconds
        if timeout is None or longest is None:
            return longest if timeout is None else timeout
        return min(timeout, longest)

    def cancel_task(self) -> None:
        if self.task is not None and not self.finished:  # then the task may be another job's
            self.task.cancel()

    def warn_of_shutdown(self) -> None:
        """Set `ctx.stopping`: a handler that checks it can save its work and return."""
        if self.context is not None:
            self.context.stopping = True
        if self.child is not None:
            self.child.stopping()

    def stop(self, reason: StopReason, now: float, failure: Failed | None = None) -> bool:
        """Tell the handler to stop. False if it was told already."""
        order = list(StopReason)
        if self.stop_reason is not None and order.index(reason) <= order.index(self.stop_reason):
            return False
        first, self.stop_reason, self.failure = self.stop_reason is None, reason, failure or self.failure
        if self.context is not None:
            self.context.lost = self.context.lost or reason is StopReason.LOST
            self.context.stopping = self.context.stopping or reason is StopReason.SHUTDOWN
            self.context.cancel_requested = self.context.cancel_requested or reason is not StopReason.SHUTDOWN
        if first:
            self.stop_requested_at = now
            if self.interrupt is not None:
                self.interrupt()
        return True

    def forget(self) -> None:
        """Its report is stored: without references in a circle it needs no garbage collector."""
        self.context = self.interrupt = None

    def handler_returned(self, now: float) -> None:
        """Called in the handler's thread."""
        self.returned_at = now

    def end(self, now: float) -> None:
        """Called on the event loop, which may learn of the handler's end later than its thread."""
        if self.begun_at is not None:
            self.returned_at = now if self.returned_at is None else min(now, self.returned_at)
            self.seconds = self.returned_at - self.begun_at

    def outcome(self, outcome: Outcome | None) -> Outcome:
        """What to report. After a timeout nothing that the handler returns counts, success included.

        `outcome` is the handler's own; None when it was interrupted, or did not stop.
        """
        if self.recorded is not None:
            return self.recorded
        reason = self.stop_reason
        if (reason is None or type(outcome) is Completed) and self.returned_at is not None:
            late = self.timeout(self.returned_at)  # over before the handler ended; the monitor had not noticed yet
        else:
            late = None
        match reason:
            case StopReason.LOST:
                return Abandoned()
            case StopReason.TIMED_OUT:
                return self.failure or Failed("timeout")
            case StopReason.SHUTDOWN if outcome is None or (isinstance(outcome, Failed) and not outcome.deliberate):
                return Released()  # the interrupt caused whatever it raised
            case StopReason.CANCELED if outcome is None or _crashed(outcome):
                return Released()
        if late is not None:
            return late
        return outcome if outcome is not None else Failed("E_CANCELLED", "the handler was cancelled from inside")


def _crashed(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.code == "E_CRASHED"
