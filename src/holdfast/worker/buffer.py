"""The jobs that a worker has claimed and not started, in the order of the claim, and how many of them wait for a child
process.

That number is asked for each time a job ends: counted each time, a buffer of 1,000 would cost more than the job itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution


class Buffer:
    def __init__(self) -> None:
        self._runs: deque[Execution] = deque()
        self.for_children = 0  # how many of them need a child process

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._runs)

    def extend(self, runs: list[Execution]) -> None:
        """Behind the others; but the jobs of tenants that have none of them come first, or they would wait for all."""
        if self._runs and {run.lease.tenant for run in runs} != {self._runs[0].lease.tenant}:
            tenants = {run.lease.tenant for run in self._runs}
            self.put_back([run for run in runs if run.lease.tenant not in tenants])
            runs = [run for run in runs if run.lease.tenant in tenants]
        self._runs.extend(runs)
        self.for_children += sum(run.needs_child for run in runs)

    def pop_first(self) -> Execution:
        run = self._runs.popleft()
        self.for_children -= run.needs_child
        return run

    def put_back(self, runs: list[Execution]) -> None:
        """In front of the others, in this order."""
        self._runs.extendleft(reversed(runs))
        self.for_children += sum(run.needs_child for run in runs)

    def remove(self, run: Execution) -> None:
        self._runs.remove(run)
        self.for_children -= run.needs_child

    def discard(self, runs: set[Execution]) -> None:
        self._runs = deque(run for run in self._runs if run not in runs)
        self.for_children = sum(run.needs_child for run in self._runs)

    def clear(self) -> list[Execution]:
        """Returns what was in it."""
        runs = list(self._runs)
        self._runs.clear()
        self.for_children = 0
        return runs
