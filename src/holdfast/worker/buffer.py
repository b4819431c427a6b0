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

    def append(self, run: Execution) -> None:
        self._runs.append(run)
        self.for_children += run.needs_child

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
