"""What a worker counts of each job: two observations, so fine that all its families can be made of them later."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from holdfast.lifecycle import Lifecycles
from holdfast.observe.instruments import OTHER, Counter, Histogram, Labels
from holdfast.observe.state_names import word
from holdfast.observe.worker_metrics import MILLISECONDS, OUR_SECONDS, SECONDS, WorkerMetrics

LATENCY_SECONDS = tuple(bound / 1000 for bound in MILLISECONDS)
KINDS_MAX = 2000  # of queue and type; clients choose queues
RELEASED, LOST = "released", "lost"  # attempts that came to nothing, and are not among those processed

Pick = Callable[..., Labels | None]  # of a family's labels from ours; None: not among those it tells of


class WorkerHistograms:
    """Feeding is for every job, and one observation instead of four is worth some work when somebody reads."""

    def __init__(self, registry: WorkerMetrics, lifecycles: Lifecycles) -> None:
        self.waits = _Waits("", "", ("queue", "type"), tuple(sorted({*OUR_SECONDS, *LATENCY_SECONDS})))
        self.runs = Histogram("", "", ("type", "outcome", "lifecycle"), tuple(sorted({*OUR_SECONDS, *SECONDS})))
        self.waits.most = self.runs.most = KINDS_MAX
        self._registry, self._lifecycles = registry, lifecycles
        registry.before.append(self._tell)

    def _tell(self) -> None:
        told = self._registry
        _fold(self.waits, told.waited, lambda queue, _: (queue,))
        _fold(self.waits, told.latency, lambda _, kind: (kind,), bounds=LATENCY_SECONDS, scale=1000)
        _fold(self.runs, told.ran, lambda kind, *_: (kind,))
        _fold(self.runs, told.processing, self._processed)
        _fold(self.runs, told.duration, lambda *labels: self._processed(*labels) and ())
        _count(self.runs, told.attempts, lambda kind, outcome, _: (kind, outcome))
        _count(self.runs, told.processed, self._processed)

    def _processed(self, kind: str, outcome: str, lifecycle: str) -> Labels | None:
        """By type, and by the lifecycle's own word for the state that the job went to."""
        if outcome in (RELEASED, LOST):
            return None
        return kind, outcome if outcome == OTHER else word(self._lifecycles, lifecycle, outcome)


class _Waits(Histogram):
    def _beyond(self, labels: Labels) -> Labels:
        """Whoever makes up queues makes up no types: those are still told."""
        return OTHER, labels[1]


def _fold(fine: Histogram, coarse: Histogram, pick: Pick, *, bounds: tuple[float, ...] = (), scale: float = 1) -> None:
    """Each bound of the coarse one is one of the fine one, too; `bounds` are they where the unit is another."""
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
