"""Metrics that extensions declare: checked on every update, thread-safe, and collected from child processes.

The instruments hold the values of the process. They are created when the extension is imported; servers and workers
adopt them into their registries.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec
from prometheus_client.core import Metric

from holdfast.errors import Invalid
from holdfast.model.names import quoted
from holdfast.observe.instruments import OTHER, Counter, Gauge, Histogram, Instrument, Labels, Snapshot, log, once

COMBINATIONS_MAX = 1_000  # label sets in one family
LABEL_NAMES_MAX, LABEL_CHARS_MAX, BUCKETS_MAX = 10, 200, 100
NUMBER_MAX = 1e100  # so that no sum is ever infinite
CHUNK = 50  # label sets in one message of a child process, to keep messages short
# From a fast request to a job that runs all night.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28_800)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("holdfast_", "process_", "python_")


class MetricDeclaration(msgspec.Struct, frozen=True):
    """A metric without its values, for processes that add up values and cannot import the extension."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def instrument(self) -> AnyDeclared:
        return _CLASSES[self.kind](self.name, self.about, self.labels, self.buckets)


class _DeclaredInstrument(Instrument):
    kind: Literal["counter", "gauge", "histogram"]

    def __init__(self, name: str, about: str, labels: Labels = (), buckets: tuple[float, ...] = ()) -> None:
        super().__init__(name, about, labels, buckets)
        self.most = COMBINATIONS_MAX
        self._lock = threading.Lock()  # handlers may run in threads
        self._warned_full = False

    @property
    def declared(self) -> MetricDeclaration:
        return MetricDeclaration(self.kind, self.name, self.about, self.labels, self.buckets)

    def _checked(self, labels: tuple[Any, ...]) -> Labels:
        if len(labels) != len(self.labels):
            wanted = ", ".join(self.labels) or "none"
            raise self._wrong(f"takes {len(self.labels)} label values ({wanted}), got {len(labels)}")
        for value in labels:
            if not isinstance(value, str):
                raise self._wrong(f"takes text as label values, got {quoted(value)}")
        return tuple(map(_text, labels))

    def _number(self, number: Any) -> float:
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= NUMBER_MAX:
            raise self._wrong(f"takes finite numbers, got {quoted(number)}")
        return float(number)

    def _wrong(self, fault: str) -> Invalid:
        return Invalid(f"metric {self.name} {fault}", code="invalid_metric_value")

    def _overflow(self, labels: Labels) -> Labels:
        if not self._warned_full:
            self._warned_full = True
            log.warning(
                "metric %s has %d label sets, the maximum; further ones are counted as %r", self.name, self.most, OTHER
            )
        return super()._overflow(labels)

    def family(self) -> Metric:
        with self._lock:
            return super().family()

    def take(self) -> list[tuple[Labels, Any]]:
        """The values since the last call, which resets them."""
        with self._lock:
            taken = [(labels, value) for labels, value in self.values.items() if value != self._new()]
            self.values = {}
            if not self.labels:
                self._slot(())
        return taken

    def merge(self, source: object, labels: Labels, value: Any) -> None:
        """Add a value that a child process sent."""
        with self._lock:
            self.add_up(labels, value)

    def forget(self, source: object) -> None:
        """The child process has exited."""


class DeclaredCounter(_DeclaredInstrument, Counter):
    kind = "counter"

    def add(self, number: float = 1, *labels: str) -> None:
        checked, number = self._checked(labels), self._number(number)
        if number < 0:
            raise self._wrong(f"only rises, got {number}")
        with self._lock:
            super().add(number, *checked)

    def value(self, *labels: str) -> float:
        """In this process; for tests."""
        return float(self.values.get(labels, 0.0))


class DeclaredGauge(_DeclaredInstrument, Gauge):
    """The value is the sum over this process and its live child processes."""

    kind = "gauge"

    def __init__(self, name: str, about: str, labels: Labels = (), buckets: tuple[float, ...] = ()) -> None:
        super().__init__(name, about, labels, buckets)
        self._own: dict[Labels, float] = {}
        self._children: dict[object, dict[Labels, float]] = {}
        self._changed: set[Labels] = set()

    def set(self, number: float, *labels: str) -> None:
        checked, number = self._checked(labels), self._number(number)
        with self._lock:
            self._keep(checked, number)

    def add(self, number: float, *labels: str) -> None:
        """A negative number decreases the gauge."""
        checked, number = self._checked(labels), self._number(number)
        with self._lock:
            self._keep(checked, self._own.get(self._slot(checked), 0.0) + number)

    def value(self, *labels: str) -> float:
        """In this process; for tests."""
        return float(self.values.get(labels, 0.0))

    def _keep(self, labels: Labels, number: float) -> None:
        slot = self._slot(labels)
        self._own[slot] = number
        self._changed.add(slot)
        self._sum(slot)

    def _sum(self, slot: Labels) -> None:
        self.values[slot] = self._own.get(slot, 0.0) + sum(each.get(slot, 0.0) for each in self._children.values())

    def take(self) -> list[tuple[Labels, float]]:
        with self._lock:
            taken = [(labels, self._own[labels]) for labels in self._changed]
            self._changed = set()
        return taken

    def merge(self, source: object, labels: Labels, value: float) -> None:
        with self._lock:
            slot = self._slot(labels)
            self._children.setdefault(source, {})[slot] = value
            self._sum(slot)

    def forget(self, source: object) -> None:
        with self._lock:
            for slot in self._children.pop(source, {}):
                self._sum(slot)


class DeclaredHistogram(_DeclaredInstrument, Histogram):
    kind = "histogram"

    def observe(self, number: float, *labels: str) -> None:
        checked, number = self._checked(labels), self._number(number)
        with self._lock:
            super().observe(number, *checked)

    def value(self, *labels: str) -> tuple[int, float]:
        """Count and sum in this process; for tests."""
        value = self.values.get(labels, self._new())
        return int(sum(value[:-1])), value[-1]


AnyDeclared = DeclaredCounter | DeclaredGauge | DeclaredHistogram
_CLASSES: dict[str, type[AnyDeclared]] = {
    each.kind: each for each in (DeclaredCounter, DeclaredGauge, DeclaredHistogram)
}


def _text(label: str) -> str:
    """Truncated, and valid UTF-8."""
    label = label[:LABEL_CHARS_MAX]
    return label if label.isascii() else label.encode("utf-8", "replace").decode()


class Metrics(Mapping[str, AnyDeclared]):
    """The metrics of one extension, by declared name: `ctx.metrics.indexed` or `ctx.metrics["indexed"]`."""

    __hash__ = object.__hash__

    def __init__(self, extension: str = "") -> None:
        self._extension = extension
        self._by_name: dict[str, AnyDeclared] = {}

    def declare(self, family: MetricDeclaration, *, exact: bool) -> AnyDeclared:
        """Prefix the name with the extension's name, unless it is exact."""
        self._check(family, exact)
        name = family.name if exact else f"{self._extension}_{family.name}"
        if family.kind == "counter" and not name.endswith("_total"):
            name += "_total"
        if any(each.name == name for each in self._by_name.values()) or family.name in self._by_name:
            raise self._wrong(f"metric {family.name} is declared twice")
        made = self._by_name[family.name] = msgspec.structs.replace(family, name=name).instrument()
        return made

    def _check(self, family: MetricDeclaration, exact: bool) -> None:
        name, labels = family.name, family.labels
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong(f"a metric name must be an identifier, got {quoted(name)}")
        if hasattr(Metrics, name):
            raise self._wrong(f"metric {name}: `metrics.{name}` is already an attribute; choose another name")
        if exact and name.startswith(_RESERVED):
            raise self._wrong(f"metric {name}: the prefixes {', '.join(_RESERVED)} are reserved")
        if exact and family.kind == "counter" and not name.endswith("_total"):
            raise self._wrong(f"metric {name}: the exact name of a counter must end with _total")
        if not isinstance(family.about, str) or not family.about.strip():
            raise self._wrong(f"metric {name}: a description of what it counts is required")
        if not all(isinstance(label, str) and _LABEL.fullmatch(label) and label != "le" for label in labels):
            raise self._wrong(f"metric {name}: a label must be an identifier other than `le`, without a leading __")
        if len(set(labels)) < len(labels) or len(labels) > LABEL_NAMES_MAX:
            raise self._wrong(f"metric {name}: labels must be distinct, at most {LABEL_NAMES_MAX}")
        if family.kind == "histogram" and not _is_increasing(family.buckets):
            raise self._wrong(f"metric {name}: buckets must be 1 to {BUCKETS_MAX} increasing finite numbers")

    def _wrong(self, fault: str) -> Invalid:
        return Invalid(f"extension {self._extension!r}: {fault}", code="invalid_metric")

    def __getitem__(self, name: str) -> AnyDeclared:
        return self._by_name[name]

    def __getattr__(self, name: str) -> Any:
        by_name: dict[str, AnyDeclared] = self.__dict__.get("_by_name", {})
        if (found := by_name.get(name)) is None:
            raise AttributeError(
                f"extension {self._extension!r} declares no metric {name!r}; it has: {', '.join(self)}"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _is_increasing(buckets: Any) -> bool:
    return (
        0 < len(buckets) <= BUCKETS_MAX
        and all(isinstance(bound, int | float) and math.isfinite(bound) for bound in buckets)
        and list(buckets) == sorted(set(buckets))
    )


# -- collisions -------------------------------------------------------------------------------------------------


def check_names(by_owner: Mapping[str, Iterable[Instrument]]) -> None:
    """`by_owner`: instruments by owner. Two families that would export samples of the same name are an error."""
    written: dict[str, tuple[str, str]] = {}
    for owner, instruments in by_owner.items():
        for instrument in instruments:
            for name in _exported_names(instrument):
                other, its_name = written.setdefault(name, (owner, instrument.name))
                if (other, its_name) != (owner, instrument.name):
                    raise Invalid(
                        f"metric {instrument.name} of {owner} collides with {its_name} of {other}",
                        code="duplicate_metric",
                    )


def same_shape(one: Instrument, other: Instrument | None) -> bool:
    """Whether the second can replace the first: same kind, labels and buckets."""
    if other is None or isinstance(one, Counter) is not isinstance(other, Counter):
        return False
    return (one.labels, one.buckets) == (other.labels, other.buckets)


def _exported_names(instrument: Instrument) -> set[str]:
    if isinstance(instrument, Counter):
        base = instrument.name.removesuffix("_total")
        return {base, f"{base}_total", f"{base}_created"}
    if isinstance(instrument, Histogram):
        return {instrument.name} | {f"{instrument.name}_{end}" for end in ("bucket", "sum", "count", "created")}
    return {instrument.name}


# -- between processes ------------------------------------------------------------------------------------------


class Declarations:
    """All metrics that one process updates."""

    def __init__(self, instruments: Iterable[AnyDeclared]) -> None:
        self.by_name = {each.name: each for each in instruments}

    def take(self) -> Iterator[Snapshot]:
        """The values of a child process since the last call, in short messages."""
        for name, each in self.by_name.items():
            taken = iter(each.take())
            while chunk := list(islice(taken, CHUNK)):
                yield {name: chunk}

    def merge(self, source: object, message: msgspec.Raw) -> None:
        """Add values from a child process. They are not trusted: it may run another version of the extension."""
        try:
            snapshot = msgspec.json.decode(message, type=Snapshot)
        except (msgspec.DecodeError, ValueError) as error:
            once("", "metrics of a child process cannot be decoded and are dropped: %s", error)
            return
        for name, values in snapshot.items():
            if (instrument := self.by_name.get(name)) is None:
                once(name, "metric %s of a child process is unknown here and is dropped", name)
                continue
            for labels, value in values:
                if instrument.fits(labels, value):
                    instrument.merge(source, tuple(map(_text, labels)), value)
                else:
                    once(name, "metric %s of a child process has different labels or values here and is dropped", name)

    def forget(self, source: object) -> None:
        for each in self.by_name.values():
            each.forget(source)
