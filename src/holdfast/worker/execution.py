"""One execution in a worker: its lease, its context, the clocks it runs under, and why it is being ended, if it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.lifecycle import Policy
from holdfast.model import Lease
from holdfast.worker.context import Context
from holdfast.worker.handler import Handler
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Recorded, Released

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from holdfast.worker.processes.process_pool import ChildExecution


class Ending(Enum):
    """Why the runtime, not the handler, ends an execution; the later in this list wins."""

    CANCELED = "canceled"
    STOPPED = "stopped"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Execution:
    __slots__ = (
        *("begun_at", "claimed_at", "context", "ending", "execution", "finished", "handler", "interrupt", "lease"),
        *("place", "policy", "progress_at", "ran", "recorded", "returned_at", "span", "started", "task", "told", "why"),
    )

    def __init__(self, lease: Lease, policy: Policy, handler: Handler, *, now: float, place: int) -> None:
        self.lease, self.policy, self.handler = lease, policy, handler
        self.place = place  # on the board
        self.claimed_at = now
        self.started = False  # it has a slot
        self.begun_at: float | None = None  # since when its handler can run
        self.progress_at = now
        self.returned_at: float | None = None  # when its handler ended; the event loop may hear of it later
        self.ran: float | None = None  # for how many seconds, when it has ended; None if it never began
        self.finished = False  # the handler has ended; only the report may still be under way
        self.context: Context | None = None
        self.task: asyncio.Task[Any] | None = None
        self.interrupt: Callable[[], None] | None = None  # makes the executor stop, whatever it is
        self.execution: ChildExecution | None = None  # in a child process
        self.ending: Ending | None = None
        self.why: Failed | None = None
        self.told = 0.0  # when the handler was told to end
        self.recorded: Recorded | None = None  # its handler has completed the job itself
        self.span: Span | None = None  # where attempts are traced

    @property
    def fragile(self) -> bool:
        """It must not wait beside others: a neighbour that kills the process would cost it what it cannot spare."""
        return self.lease.lost > 0 or self.lease.attempt >= self.lease.max_attempts

    @property
    def alone(self) -> bool:
        """Lost so often that it may be the killer itself: it runs in a process of its own."""
        return self.lease.lost >= 2 or (self.lease.lost > 0 and self.lease.lost + 1 >= self.policy.max_lost)

    def overrun(self, now: float) -> Failed | None:
        """The clock of its policy that has run out, if one has."""
        assert self.begun_at is not None  # noqa: S101
        policy, ran = self.policy, now - self.begun_at
        if policy.timeout_seconds is not None and ran >= policy.timeout_seconds:
            return Failed("timeout", f"the attempt ran longer than its timeout of {policy.timeout_seconds:g} s")
        if policy.max_runtime_seconds is not None and ran >= policy.max_runtime_seconds:
            return Failed("max_runtime", f"the job ran longer than {policy.max_runtime_seconds:g} s")
        if policy.no_progress_seconds is not None and now - self.progress_at >= policy.no_progress_seconds:
            return Failed("no_progress", f"no progress was reported for {policy.no_progress_seconds:g} s")
        return None

    def excuse(self, seconds: float) -> None:
        """It waited that long for the database, through no fault of its own: its clocks stood still."""
        if self.begun_at is not None:
            self.begun_at += seconds
        self.progress_at += seconds

    @property
    def seconds_allowed(self) -> float | None:
        clocks = (self.policy.timeout_seconds, self.policy.max_runtime_seconds)
        return min((clock for clock in clocks if clock is not None), default=None)

    def cancel_task(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def warn(self) -> None:
        """The worker stops soon: a handler that looks can save its work and return."""
        if self.context is not None:
            self.context.stopping = True
        if self.execution is not None:
            self.execution.stopping()

    def end(self, ending: Ending, now: float, why: Failed | None = None) -> bool:
        """Tell the handler to stop. False if it was told already."""
        order = list(Ending)
        if self.ending is not None and order.index(ending) <= order.index(self.ending):
            return False
        first, self.ending, self.why = self.ending is None, ending, why or self.why
        if self.context is not None:
            self.context.lost = self.context.lost or ending is Ending.LOST
            self.context.stopping = self.context.stopping or ending is Ending.STOPPED
            self.context.cancel_requested = self.context.cancel_requested or ending is not Ending.STOPPED
        if first:
            self.told = now
            if self.interrupt is not None:
                self.interrupt()
        return True

    def outcome(self, said: Outcome | None) -> Outcome:
        """What to report. Nothing that the handler says after its time is up counts, success included.

        `said` is None when the handler was interrupted, or would not stop.
        """
        if self.recorded is not None:
            return self.recorded
        match self.ending:
            case Ending.LOST:
                return Abandoned()
            case Ending.TIMED_OUT:
                return self.why or Failed("timeout")
            case None if (late := self._late) is not None:
                return late
            case Ending.STOPPED if said is None or (isinstance(said, Failed) and not said.deliberate):
                return Released()  # it was interrupted, and whatever it said came of that
            case Ending.CANCELED if said is None or _killed(said):
                return Released()
        if isinstance(said, Completed) and (late := self._late) is not None:
            return late
        return said if said is not None else Failed("E_CANCELLED", "the handler was cancelled from inside")

    def returns(self, now: float) -> None:
        """Its handler has ended, in whatever thread."""
        self.returned_at = now

    def ends(self, now: float) -> None:
        """The event loop hears that its handler has ended."""
        if self.begun_at is not None:
            self.returned_at = now if self.returned_at is None else min(now, self.returned_at)
            self.ran = self.returned_at - self.begun_at

    @property
    def _late(self) -> Failed | None:
        """The clock that ran out before the handler ended, although the runtime had not noticed yet."""
        if self.begun_at is None or self.returned_at is None:
            return None
        return self.overrun(self.returned_at)


def _killed(said: Outcome) -> bool:
    return isinstance(said, Failed) and said.code == "E_CRASHED"
