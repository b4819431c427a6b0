"""The jobs that a worker has claimed and not started, and how many of them wait for a child process.

Tenants take turns, so that the only job of one does not wait for all jobs of another; those of a tenant start in the
order of the claims. The number is asked for each time a job ends: counted each time, a buffer of 1,000 would cost more
than the job itself.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution


class Buffer:
    def __init__(self) -> None:
        self._turns: OrderedDict[str, deque[Execution]] = OrderedDict()  # by tenant, the next one first
        self._jobs = 0
        self.for_children = 0  # how many of them need a child process
        self.for_reserve = 0  # how many of them may use the reserved slot

    def __len__(self) -> int:
        return self._jobs

    def __iter__(self) -> Iterator[Execution]:
        """In the order in which they start."""
        turns = deque(map(iter, self._turns.values()))
        while turns:
            own = turns.popleft()
            if (run := next(own, None)) is not None:
                yield run
                turns.append(own)

    def extend(self, runs: list[Execution]) -> None:
        for run in runs:
            self._of(run).append(run)
            self._count(run, 1)

    def pop_first(self) -> Execution:
        tenant, own = next(iter(self._turns.items()))
        run = own.popleft()
        if not own:
            del self._turns[tenant]
        elif len(self._turns) > 1:
            self._turns.move_to_end(tenant)
        self._count(run, -1)
        return run

    def put_back(self, runs: list[Execution]) -> None:
        """In front of the others of their tenants, which have the next turns, in this order."""
        for run in reversed(runs):
            self._of(run).appendleft(run)
            self._turns.move_to_end(run.lease.tenant, last=False)
            self._count(run, 1)

    def remove(self, run: Execution) -> None:
        self._of(run).remove(run)
        if not self._turns[run.lease.tenant]:
            del self._turns[run.lease.tenant]
        self._count(run, -1)

    def discard(self, runs: set[Execution]) -> None:
        kept = [run for own in self._turns.values() for run in own if run not in runs]
        self.clear()
        self.extend(kept)

    def clear(self) -> list[Execution]:
        """Returns what was in it."""
        runs = list(self)
        self._turns.clear()
        self._jobs = self.for_children = self.for_reserve = 0
        return runs

    def _count(self, run: Execution, by: int) -> None:
        self._jobs += by
        if run.needs_child:
            self.for_children += by
        if run.handler.reserved_slot:
            self.for_reserve += by

    def _of(self, run: Execution) -> deque[Execution]:
        """The jobs of its tenant."""
        tenant = run.lease.tenant
        if (own := self._turns.get(tenant)) is None:
            own = self._turns[tenant] = deque()
        return own
