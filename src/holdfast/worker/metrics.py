"""What a worker counts for its metrics: as attempts begin, as their reports arrive, and the rest when somebody asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model.reports import Settled
from holdfast.observe.extension_metrics import Declarations
from holdfast.observe.worker_histograms import LOST, RELEASED, WorkerHistograms
from holdfast.observe.worker_metrics import WorkerMetrics
from holdfast.worker.outcomes import Failed, Outcome
from holdfast.worker.processes.supervisor_protocol import ProcessStatus

if TYPE_CHECKING:
    from holdfast.worker.execution import Execution
    from holdfast.worker.runtime import Worker
    from holdfast.worker.source import Answers

DEPTH_SECONDS = 2.0  # between two questions after the depth of the queues; they are counted more seldom than that
PATIENCE_SECONDS = 0.5  # with a database that is asked for it; whoever reads gets the last one then

Depths = Callable[[], Awaitable[Mapping[str, int]]]  # by type: how many jobs could run now


class WorkerCounters:
    def __init__(
        self,
        types: Sequence[str],
        clock: Clock | None = None,
        lifecycles: Lifecycles | None = None,
        declarations: Declarations | None = None,
    ) -> None:
        """`declarations`: of extensions, where this process tells them here."""
        self.registry = WorkerMetrics(types)
        declared = [] if declarations is None else [*declarations.by_name.values()]
        self.registry.adopt(declared)
        self._families = [each.declared for each in declared]
        fine = WorkerHistograms(self.registry, lifecycles or Lifecycles())
        self._waits, self._runs = fine.waits.observe, fine.runs.observe
        self.registry.before.append(self._look)
        self._types = types
        self._clock = clock or Clock()
        self._worker: Worker | None = None
        self._loops: Loops | None = None
        self._depths: Depths | None = None
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    # -- what the worker tells: for every job, so each of these does very little ---------------------------------

    def begins(self, run: Execution) -> None:
        """By the database's clock, and then by ours: the two are not compared."""
        lease = run.lease
        assert run.begun_at is not None  # noqa: S101
        waited = (lease.claimed_at - lease.run_at).total_seconds() + run.begun_at - run.claimed_at
        self._waits(max(waited, 0.0), lease.queue, lease.type)
        if lease.attempt > 1:
            self.registry.retries.add(1)

    def ended(self, group: Sequence[tuple[Execution, Outcome]], answers: Answers) -> None:
        """The reports of these attempts were answered."""
        runs = self._runs
        for (run, outcome), answer in zip(group, answers, strict=True):
            if isinstance(answer, HoldfastError):
                self.refused()
                self._lost(run)
            elif run.seconds is not None:  # else it was given back before it began
                runs(run.seconds, run.lease.type, _went(answer, outcome), run.lease.lifecycle)
                if isinstance(outcome, Failed):
                    self.registry.failures.add(1, outcome.code)

    def abandoned(self, group: Sequence[tuple[Execution, Outcome]]) -> None:
        """Somebody else has these jobs."""
        for run, _ in group:
            self._lost(run)

    def refused(self) -> None:
        self.registry.refused.add(1)

    def _lost(self, run: Execution) -> None:
        self.registry.lost.add(1)
        if run.seconds is not None:
            self._runs(run.seconds, run.lease.type, LOST, run.lease.lifecycle)

    # -- what is known without being told ------------------------------------------------------------------------

    def of(self, worker: Worker, loops: Loops | None = None) -> None:
        self._worker, self._loops = worker, loops

    def deep(self, depths: Depths) -> None:
        """There is a database that can be asked how much waits."""
        self._depths = depths
        for name in self._types:
            self.registry.depth.show(name)

    async def told(self) -> ProcessStatus:
        """To whoever adds up several processes."""
        await self._ask()
        assert self._worker is not None  # noqa: S101
        standing = self._worker.table_header
        figures = msgspec.Raw(msgspec.json.encode(self.registry.snapshot()))
        complaint = None if self._loops is None else self._loops.complaint()
        return ProcessStatus(standing.polled, bool(standing.stopping), figures, self._families, complaint)

    async def text(self) -> bytes:
        await self._ask()
        return self.registry.text()

    def _look(self) -> None:
        if (worker := self._worker) is None:
            return
        running, registry = Counter(run.lease.type for run in worker.running()), self.registry
        for name in self._types:
            registry.active.set(running[name], name)
            registry.inflight.set(running[name], name)
        registry.slots.set(worker.config.concurrency)
        registry.busy.set(worker.slots_used)
        registry.processes.set(1)

    async def _ask(self) -> None:
        """For a moment. A database that hangs must not make this worker invisible."""
        now = self._clock.monotonic()
        if self._depths is None:
            return
        if self._asking is None and now - self._asked >= DEPTH_SECONDS:
            self._asked = now
            self._asking = asyncio.create_task(self._count(self._depths))
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=PATIENCE_SECONDS)

    async def _count(self, depths: Depths) -> None:
        try:
            found = await depths()
            for name in self._types:
                self.registry.depth.set(found.get(name, 0), name)
        except HoldfastError:
            pass  # it stays as it was
        finally:
            self._asking = None


def _went(answer: Settled, outcome: Outcome) -> str:
    """The state of the job. A server does not tell those apart in which it is not finished."""
    if answer.state in FINAL:
        return answer.state
    return State.RETRYING if isinstance(outcome, Failed) else RELEASED
