"""The counters of a worker: updated as attempts begin and as their reports are stored; the rest when they are read."""

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

DEPTH_SECONDS = 2.0  # between two queries for the queue depths
QUERY_SECONDS = 0.5  # for such a query; then the last depths are shown

Depths = Callable[[], Awaitable[Mapping[str, int]]]  # by type: how many jobs could run now


class WorkerCounters:
    def __init__(
        self,
        types: Sequence[str],
        clock: Clock | None = None,
        lifecycles: Lifecycles | None = None,
        declarations: Declarations | None = None,
    ) -> None:
        """`declarations`: the metrics of extensions, where this process exports them."""
        self.registry = WorkerMetrics(types)
        declared = [] if declarations is None else [*declarations.by_name.values()]
        self.registry.adopt(declared)
        self._families = [each.declared for each in declared]
        histograms = WorkerHistograms(self.registry, lifecycles or Lifecycles())
        self._waits, self._runs = histograms.waits.observe, histograms.runs.observe
        self.registry.before.append(self._refresh)
        self._types = types
        self._clock = clock or Clock()
        self._worker: Worker | None = None
        self._loops: Loops | None = None
        self._depths: Depths | None = None
        self._queried_at = float("-inf")
        self._query: asyncio.Task[None] | None = None

    # -- updated by the worker: for every job, so each of these does very little ------------------------------

    def begins(self, run: Execution) -> None:
        """Until the claim by the database's clock, then by ours: the two are not compared."""
        lease = run.lease
        assert run.begun_at is not None  # noqa: S101
        waited = (lease.claimed_at - lease.run_at).total_seconds() + run.begun_at - run.claimed_at
        self._waits(max(waited, 0.0), lease.queue, lease.type)
        if lease.attempt > 1:
            self.registry.retries.add(1)

    def ended(self, group: Sequence[tuple[Execution, Outcome]], answers: Answers) -> None:
        """The reports of these attempts were stored or rejected."""
        runs = self._runs
        for (run, outcome), answer in zip(group, answers, strict=True):
            if isinstance(answer, HoldfastError):
                self.refused()
                self._lost(run)
            elif run.seconds is not None:  # else it was released before it began
                runs(run.seconds, run.lease.type, _final_state(answer, outcome), run.lease.lifecycle)
                if isinstance(outcome, Failed):
                    self.registry.failures.add(1, outcome.code)

    def abandoned(self, group: Sequence[tuple[Execution, Outcome]]) -> None:
        """The leases of these are lost."""
        for run, _ in group:
            self._lost(run)

    def refused(self) -> None:
        self.registry.refused.add(1)

    def _lost(self, run: Execution) -> None:
        self.registry.lost.add(1)
        if run.seconds is not None:
            self._runs(run.seconds, run.lease.type, LOST, run.lease.lifecycle)

    # -- updated when they are read ---------------------------------------------------------------------------

    def of(self, worker: Worker, loops: Loops | None = None) -> None:
        self._worker, self._loops = worker, loops

    def show_depths(self, depths: Depths) -> None:
        """Export the queue depths, which the database can be asked for."""
        self._depths = depths
        for name in self._types:
            self.registry.depth.show(name)

    async def status(self) -> ProcessStatus:
        """For the supervisor, which adds up its processes."""
        await self._refresh_depths()
        assert self._worker is not None  # noqa: S101
        header = self._worker.slots.lease_table.header()
        metrics = msgspec.Raw(msgspec.json.encode(self.registry.snapshot()))
        complaint = None if self._loops is None else self._loops.complaint()
        return ProcessStatus(header.polled, bool(header.stopping), metrics, self._families, complaint)

    async def text(self) -> bytes:
        await self._refresh_depths()
        return self.registry.text()

    def _refresh(self) -> None:
        if (worker := self._worker) is None:
            return
        slots, registry = worker.slots, self.registry
        running = Counter(run.lease.type for run in slots.running())
        for name in self._types:
            registry.active.set(running[name], name)
            registry.inflight.set(running[name], name)
        registry.slots.set(worker.config.concurrency)
        registry.busy.set(slots.in_use())
        registry.processes.set(1)

    async def _refresh_depths(self) -> None:
        """Waits only briefly: metrics must be readable while the database hangs."""
        now = self._clock.monotonic()
        if self._depths is None:
            return
        if self._query is None and now - self._queried_at >= DEPTH_SECONDS:
            self._queried_at = now
            self._query = asyncio.create_task(self._count(self._depths))
        if self._query is not None:
            await asyncio.wait({self._query}, timeout=QUERY_SECONDS)

    async def _count(self, depths: Depths) -> None:
        try:
            found = await depths()
            for name in self._types:
                self.registry.depth.set(found.get(name, 0), name)
        except HoldfastError:
            pass  # keep the last depths
        finally:
            self._query = None


def _final_state(answer: Settled, outcome: Outcome) -> str:
    """A server does not tell the states of an unfinished job apart."""
    if answer.state in FINAL:
        return answer.state
    return State.RETRYING if isinstance(outcome, Failed) else RELEASED
