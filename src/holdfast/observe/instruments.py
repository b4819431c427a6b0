"""Counters, gauges and histograms with cheap updates; prometheus_client writes the exposition format.

Updates happen for every job, scrapes a few times a minute: a value is a plain number in a dictionary, and all other
work happens at scrape time. Values of several processes are added up with `snapshot` and `MetricsRegistry.add_up`.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

LABELS_MAX = 200  # label sets in one family; later ones are counted as `other`
OTHER = "other"
WARNINGS_MAX = 1000

log = logging.getLogger("holdfast.metrics")

Labels = tuple[str, ...]
Snapshot = dict[str, list[tuple[Labels, Any]]]  # by family


class Instrument:
    """One metric family. `values` has an entry for each label set that was seen. A histogram has `buckets`."""

    _family_type: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily

    def __init__(self, name: str, about: str, labels: Labels = (), buckets: tuple[float, ...] = ()) -> None:
        self.name, self.about, self.labels, self.buckets = name, about, labels, buckets
        self.most = LABELS_MAX
        self.values: dict[Labels, Any] = {}
        if not labels:
            self._slot(())

    def _new(self) -> Any:
        return 0.0

    def _slot(self, labels: Labels) -> Labels:
        """The key that counts these label values. Keys are limited in number: clients choose some label values."""
        if labels not in self.values:
            if len(self.values) >= self.most:
                labels = self._overflow(labels)
            self.values.setdefault(labels, self._new())
        return labels

    def _overflow(self, labels: Labels) -> Labels:
        return (OTHER,) * len(labels)

    def show(self, *labels: str) -> None:
        """Export this label set from the start, at zero."""
        self._slot(labels)

    def fits(self, labels: Labels, value: Any) -> bool:
        """Whether a value from another process has the labels and the shape of this family."""
        return len(labels) == len(self.labels) and _is_number(value)

    def add_up(self, labels: Labels, value: Any) -> None:
        """Add a value from another process."""
        self.values[self._slot(labels)] += value

    def family(self) -> Metric:
        family = self._family_type(self.name, self.about, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class Counter(Instrument):
    _family_type = CounterMetricFamily

    def add(self, number: float, *labels: str) -> None:
        try:
            self.values[labels] += number
        except KeyError:
            self.values[self._slot(labels)] += number


class Gauge(Instrument):
    def set(self, number: float, *labels: str) -> None:
        self.values[self._slot(labels)] = number


class SharedGauge(Gauge):
    """A gauge that every process reports for the same shared fact: values are combined with `combine`, not summed."""

    def __init__(self, name: str, about: str, labels: Labels = (), *, combine: Callable[..., float] = max) -> None:
        super().__init__(name, about, labels)
        self._combine = combine

    def add_up(self, labels: Labels, value: float) -> None:
        known = self.values.get(labels, value)
        self.values[self._slot(labels)] = self._combine(known, value)


class Histogram(Instrument):
    """A value is a list: one count per bucket, the count above the last bucket, and the sum."""

    def _new(self) -> list[float]:
        return [0.0] * (len(self.buckets) + 2)

    def observe(self, number: float, *labels: str) -> None:
        try:
            value = self.values[labels]
        except KeyError:
            value = self.values[self._slot(labels)]
        value[bisect_left(self.buckets, number)] += 1
        value[-1] += number

    def fits(self, labels: Labels, value: Any) -> bool:
        same_buckets = isinstance(value, list) and len(value) == len(self._new())
        return len(labels) == len(self.labels) and same_buckets and all(map(_is_number, value))

    def add_up(self, labels: Labels, value: Any) -> None:
        slot = self._slot(labels)
        self.values[slot] = [mine + theirs for mine, theirs in zip(self.values[slot], value, strict=True)]

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        bounds = [*(floatToGoString(bound) for bound in self.buckets), "+Inf"]  # type: ignore[no-untyped-call]
        for labels, value in self.values.items():
            counts = accumulate(value[:-1])
            family.add_metric(labels, buckets=list(zip(bounds, counts, strict=True)), sum_value=value[-1])
        return family


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


_warned: set[tuple[str, str]] = set()


def once(name: str, message: str, *arguments: object) -> None:
    """Log a warning once per metric and message in this process."""
    if (name, message) not in _warned and len(_warned) < WARNINGS_MAX:
        _warned.add((name, message))
        log.warning(message, *arguments)


_Kind = TypeVar("_Kind", bound=Instrument)


class MetricsRegistry:
    """All metric families of a process. Each is exported with HELP and TYPE, also before its first update."""

    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}
        self.before: list[Callable[[], None]] = []  # called before each scrape, to refresh gauges

    def counter(self, name: str, about: str, labels: Labels = ()) -> Counter:
        return self._add(Counter(name, about, labels))

    def gauge(self, name: str, about: str, labels: Labels = ()) -> Gauge:
        return self._add(Gauge(name, about, labels))

    def same(self, name: str, about: str, labels: Labels = (), *, combine: Callable[..., float] = max) -> SharedGauge:
        return self._add(SharedGauge(name, about, labels, combine=combine))

    def histogram(self, name: str, about: str, labels: Labels = (), *, buckets: tuple[float, ...]) -> Histogram:
        return self._add(Histogram(name, about, labels, buckets))

    def _add(self, instrument: _Kind) -> _Kind:
        if instrument.name in self.instruments:
            raise ValueError(f"two metrics are called {instrument.name}")
        self.instruments[instrument.name] = instrument
        return instrument

    def adopt(self, instruments: Iterable[Instrument]) -> None:
        """Add instruments that are created and updated elsewhere; they replace those of the same name."""
        self.instruments.update({each.name: each for each in instruments})

    def _refresh(self) -> None:
        for refresh in self.before:
            refresh()

    def snapshot(self) -> Snapshot:
        self._refresh()
        return {name: list(each.values.items()) for name, each in self.instruments.items()}

    def add_up(self, snapshots: Iterable[Snapshot]) -> None:
        for snapshot in snapshots:
            for instrument, values in self.known(snapshot):
                for labels, value in values:
                    instrument.add_up(labels, value)

    def known(self, snapshot: Snapshot) -> Iterator[tuple[Instrument, list[tuple[Labels, Any]]]]:
        """Drop what is not in the registry or has other labels or buckets there: during a rolling upgrade the
        processes of one worker may run different versions."""
        for name, values in snapshot.items():
            if (instrument := self.instruments.get(name)) is None:
                once(name, "metric %s of another process is unknown here and is dropped", name)
                continue
            fitting = [(tuple(labels), value) for labels, value in values if instrument.fits(labels, value)]
            if len(fitting) < len(values):
                once(name, "metric %s of another process has different labels or values here and is dropped", name)
            yield instrument, fitting

    def collect(self) -> Iterator[Metric]:
        return (instrument.family() for instrument in self.instruments.values())

    def text(self) -> bytes:
        """The Prometheus exposition format."""
        self._refresh()
        return generate_latest(self)
