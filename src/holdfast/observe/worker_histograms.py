"""Fine-grained histograms of a worker: two observations per job, from which a scrape computes all its metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from holdfast.lifecycle import Lifecycles
from holdfast.observe.instruments import OTHER, Counter, Histogram, Labels
from holdfast.observe.state_names import state_name
from holdfast.observe.worker_metrics import MILLISECONDS, OUR_SECONDS, SECONDS, WorkerMetrics

LATENCY_SECONDS = tuple(bound / 1000 for bound in MILLISECONDS)
KINDS_MAX = 2000  # pairs of queue and type; clients choose queues
RELEASED, LOST = "released", "lost"  # not counted as processed

Pick = Callable[..., Labels | None]  # a family's labels from ours; None: not counted in it


class WorkerHistograms:
    """One observation per job instead of four, at the price of more work at a scrape."""

    def __init__(self, registry: WorkerMetrics, lifecycles: Lifecycles) -> None:
        self.waits = _Waits("", "", ("queue", "type"), tuple(sorted({*OUR_SECONDS, *LATENCY_SECONDS})))
        self.runs = Histogram("", "", ("type", "outcome", "lifecycle"), tuple(sorted({*OUR_SECONDS, *SECONDS})))
        self.waits.most = self.runs.most = KINDS_MAX
        self._registry, self._lifecycles = registry, lifecycles
        registry.before.append(self._refresh)

    def _refresh(self) -> None:
        target = self._registry
        _fold(self.waits, target.waited, lambda queue, _: (queue,))
        _fold(self.waits, target.latency, lambda _, kind: (kind,), bounds=LATENCY_SECONDS, scale=1000)
        _fold(self.runs, target.ran, lambda kind, *_: (kind,))
        _fold(self.runs, target.processing, self._processed)
        _fold(self.runs, target.duration, lambda *labels: self._processed(*labels) and ())
        _count(self.runs, target.attempts, lambda kind, outcome, _: (kind, outcome))
        _count(self.runs, target.processed, self._processed)

    def _processed(self, kind: str, outcome: str, lifecycle: str) -> Labels | None:
        """By type, and by the lifecycle's name of the state that the job went to."""
        if outcome in (RELEASED, LOST):
            return None
        return kind, outcome if outcome == OTHER else state_name(self._lifecycles, lifecycle, outcome)


class _Waits(Histogram):
    def _overflow(self, labels: Labels) -> Labels:
        """Count further queues as `other`, but keep the type."""
        return OTHER, labels[1]


def _fold(fine: Histogram, coarse: Histogram, pick: Pick, *, bounds: tuple[float, ...] = (), scale: float = 1) -> None:
    """Every bound of `coarse` is one of `fine`, too. `bounds`: those of `coarse` in the unit of `fine`."""
    bounds = bounds or coarse.buckets
    places = [bisect_left(bounds, bound) for bound in fine.buckets] + [len(bounds), len(bounds) + 1]
    coarse.values.clear()
    if not coarse.labels:
        coarse.show()
    for labels, value in fine.values.items():
        if (wanted := pick(*labels)) is not None:
            total = coarse.values[coarse._slot(wanted)]
            for place, number in zip(places, [*value[:-1], value[-1] * scale], strict=True):
                total[place] += number


def _count(fine: Histogram, counter: Counter, pick: Pick) -> None:
    counter.values.clear()
    for labels, value in fine.values.items():
        if (wanted := pick(*labels)) is not None:
            counter.add(sum(value[:-1]), *wanted)
