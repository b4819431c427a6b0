"""The slots of a worker: the jobs it holds, buffered or running, and how many more it can claim and start."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.lifecycle import Policy
from holdfast.model import Lease
from holdfast.worker.buffer import Buffer
from holdfast.worker.config import WorkerConfig
from holdfast.worker.execution import Execution
from holdfast.worker.handler import Handler, Isolation
from holdfast.worker.heartbeat.lease_table import LeaseTable
from holdfast.worker.prefetch import Prefetch

if TYPE_CHECKING:
    from holdfast.worker.processes.process_pool import ProcessPool

CLAIM_MAX = 1000
ABANDONED_MAX = 10_000
UNREPORTED_MAX = 2000  # no claim while more than this has finished and could not be reported yet
FENCE = 0.8  # of a lease that was not renewed: the worker itself stops the handler then


class Slots:
    """State that the claim loop, the executor and the monitor of a worker share. It starts and stops nothing."""

    def __init__(
        self,
        config: WorkerConfig,
        handlers: Mapping[str, Handler],
        lease_table: LeaseTable,
        pool: ProcessPool | None,
        now: float,
    ) -> None:
        self.config, self.lease_table = config, lease_table
        self._handlers, self._pool = handlers, pool
        self.types = sorted(handlers)
        self.inline_types = [  # those that need no child process
            name for name in self.types if pool is None or handlers[name].isolation is not Isolation.PROCESS
        ]
        self.reserved_types = [name for name in self.types if handlers[name].reserved_slot]
        self.executions: dict[str, Execution] = {}  # by token: buffered, running, or waiting for their report
        self.buffer = Buffer()  # claimed, not started
        self.busy = 0
        self.stuck: set[Execution] = set()  # given up on: their threads and tasks still occupy slots
        self.reserve: Execution | None = None  # what occupies the reserved slot
        self.in_children: set[Execution] = set()  # in a child process, or about to be
        self.abandoned: deque[str] = deque(maxlen=ABANDONED_MAX)  # tokens that were given up and may still be current
        self.started_at = now  # the last start of a job, except in the reserved slot
        self.capacity_changed = asyncio.Event()  # another claim may be worthwhile
        self.child_free = asyncio.Event()  # a child process became free since the last claim
        self.idle = asyncio.Event()
        self.idle.set()
        self.stopping = asyncio.Event()
        self.prefetch = Prefetch(self.free())

    def add(self, lease: Lease, policy: Policy, now: float) -> Execution:
        slot = self.lease_table.put(lease, policy.lease_seconds, heartbeat_seconds=policy.heartbeat_seconds)
        handler = self._handlers[lease.type]
        run = Execution(lease, policy, handler, now, slot)
        if self._pool is not None and (handler.isolation is Isolation.PROCESS or run.quarantined):
            run.needs_child = True
        self.executions[lease.token] = run
        return run

    def remove(self, runs: list[Execution]) -> None:
        """Their reports are stored, or there is none to store."""
        for run in runs:
            del self.executions[run.lease.token]
            self.lease_table.clear(run.slot)
            run.forget()
        self.capacity_changed.set()

    def running(self) -> list[Execution]:
        return [run for run in self.executions.values() if run.started and not run.finished]

    def occupy(self, run: Execution, now: float) -> None:
        """Its handler is about to start: in the reserved slot if no other is free."""
        if run.handler.reserved_slot and self.free() <= 0:
            self.reserve = run
        else:
            self.started_at = now
        run.started = True
        self.busy += 1
        if run.needs_child:
            self.in_children.add(run)

    def vacate(self, run: Execution, *, stuck: bool = False) -> None:
        """Its handler has ended, or, where it is `stuck`, it was given up on."""
        run.finished = True
        self.busy -= 1
        if stuck:
            self.stuck.add(run)
        else:
            self._leave_reserve(run)

    def vacate_late(self, run: Execution) -> None:
        """It was given up on, and now it has ended."""
        self.stuck.discard(run)
        self._leave_reserve(run)

    def _leave_reserve(self, run: Execution) -> None:
        if self.reserve is run:
            self.reserve = None

    def update_idle(self) -> None:
        if not self.busy and not self.buffer:
            self.idle.set()
        else:
            self.idle.clear()

    def lease_overdue(self, run: Execution, now: float) -> bool:
        """No heartbeat renewed the lease for so long that it may expire: another worker may have the job soon."""
        fence = FENCE * run.policy.lease_seconds
        if now - run.claimed_at <= fence or not self.config.heartbeats or run.recorded is not None:
            return False
        return now - self.lease_table.valid_since(run.slot) > fence

    # -- capacity ---------------------------------------------------------------------------------------------

    def wanted(self) -> int:
        """How many jobs to claim: for the free slots, and as many as will start in a moment, to claim in batches."""
        free, most = self.free(), self.prefetch.ahead()
        ahead = most - len(self.buffer) + self._waiting_for_child()
        if not self._may_claim():
            return 0
        if free <= 0 and ahead * 2 < most:  # not one claim for each job that starts
            return 0
        half = max(1, most // 2)  # the database claims one half while the worker runs the other
        return max(0, min(free + min(ahead, half), self.lease_table.free(), CLAIM_MAX))

    def wants_reserved(self) -> bool:
        """Whether to claim a job for the reserved slot: it is free, and no buffered job will take it."""
        free = self.reserve_is_free() and not self.buffer.for_reserve
        return free and self._may_claim() and self.lease_table.free() > 0

    def _may_claim(self) -> bool:
        unreported = len(self.executions) - self.busy - len(self.buffer)
        return not self.stopping.is_set() and unreported <= UNREPORTED_MAX

    def reserve_is_free(self) -> bool:
        """The reserved slot, which a worker has if it knows reserved types."""
        return bool(self.reserved_types) and self.reserve is None

    def room_for(self, run: Execution) -> bool:
        return self.free() > 0 or (run.handler.reserved_slot and self.reserve_is_free())

    def in_use(self) -> int:
        """Slots in use, without the reserved one."""
        return self.busy + len(self.stuck) - (self.reserve is not None)

    def free(self) -> int:
        """Free slots, without the reserved one. Where every job type needs a child process, no more than there are free
        children."""
        slots = self.config.concurrency - self.in_use()
        return slots if self.inline_types or self._pool is None else min(slots, self.free_children())

    def free_children(self) -> int:
        return 0 if self._pool is None else self._pool.most - len(self.in_children)

    def unclaimed_children(self) -> int:
        """Free children that no buffered job needs."""
        return max(0, self.free_children() - self.buffer.for_children)

    def can_start(self, run: Execution) -> bool:
        return not run.needs_child or self.free_children() > 0

    def startable_types(self) -> list[str]:
        """While no child process is free: the types that need none, if there are any."""
        return self.types if self.unclaimed_children() > 0 else self.inline_types or self.types

    def _waiting_for_child(self) -> int:
        """Buffered jobs that keep no other job from being claimed: their types are not claimed meanwhile."""
        if not self.inline_types or self.free_children() > 0:
            return 0
        return self.buffer.for_children
