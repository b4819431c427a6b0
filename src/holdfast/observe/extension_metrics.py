"""Metrics that extensions declare: checked when they are fed, in any thread, and carried from child processes.

The values of a process are in the instruments themselves, which are made when the extension is imported. Servers and
workers adopt them into their registries.
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

COMBINATIONS_MAX = 1_000  # of label values in one family
LABEL_NAMES_MAX, LABEL_CHARS_MAX, BUCKETS_MAX = 10, 200, 100
NUMBER_MAX = 1e100  # so that no sum is ever infinite
CHUNK = 50  # sets of label values in one message of a child process, which must not be long
# From a request that does next to nothing to a job that takes the night.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28_800)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("holdfast_", "process_", "python_")


class MetricDeclaration(msgspec.Struct, frozen=True):
    """What a metric is, without its values: for processes that add up others' and cannot import the extension."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def instrument(self) -> DeclaredCounter | DeclaredGauge | DeclaredHistogram:
        match self.kind:
            case "counter":
                return DeclaredCounter(self.name, self.about, self.labels)
            case "gauge":
                return DeclaredGauge(self.name, self.about, self.labels)
            case _:
                return DeclaredHistogram(self.name, self.about, self.labels, self.buckets)


class _DeclaredInstrument(Instrument):
    kind: Literal["counter", "gauge", "histogram"]
    buckets: tuple[float, ...] = ()

    def _prepare(self) -> None:
        self.most = COMBINATIONS_MAX
        self._lock = threading.Lock()  # handlers may be threads
        self._told_full = False

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

    def _beyond(self, labels: Labels) -> Labels:
        if not self._told_full:
            self._told_full = True
            log.warning(
                "metric %s has %d sets of label values; further ones are counted as %r", self.name, self.most, OTHER
            )
        return super()._beyond(labels)

    def family(self) -> Metric:
        with self._lock:
            return super().family()

    def take(self) -> list[tuple[Labels, Any]]:
        """What was counted since the last time."""
        with self._lock:
            taken = [(labels, value) for labels, value in self.values.items() if value != self._new()]
            self.values = {}
            if not self.labels:
                self._slot(())
        return taken

    def merge(self, source: object, labels: Labels, value: Any) -> None:
        """What a child process has taken."""
        with self._lock:
            self.add_up(labels, value)

    def forget(self, source: object) -> None:
        """That child process has ended."""


class DeclaredCounter(_DeclaredInstrument, Counter):
    kind = "counter"

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        super().__init__(name, about, labels)
        self._prepare()

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
    """What child processes say of it is added to what this process says, while they live."""

    kind = "gauge"

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        super().__init__(name, about, labels)
        self._prepare()
        self._own: dict[Labels, float] = {}
        self._children: dict[object, dict[Labels, float]] = {}
        self._changed: set[Labels] = set()

    def set(self, number: float, *labels: str) -> None:
        checked, number = self._checked(labels), self._number(number)
        with self._lock:
            self._keep(checked, number)

    def add(self, number: float, *labels: str) -> None:
        """A negative number takes away."""
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

    def __init__(self, name: str, about: str, labels: Labels = (), buckets: tuple[float, ...] = SECONDS) -> None:
        super().__init__(name, about, labels, buckets)
        self._prepare()

    def observe(self, number: float, *labels: str) -> None:
        checked, number = self._checked(labels), self._number(number)
        with self._lock:
            super().observe(number, *checked)

    def value(self, *labels: str) -> tuple[int, float]:
        """How many in this process, and their sum; for tests."""
        value = self.values.get(labels, self._new())
        return int(sum(value[:-1])), value[-1]


AnyDeclared = DeclaredCounter | DeclaredGauge | DeclaredHistogram


def _text(label: str) -> str:
    """Short, and text in any encoding."""
    label = label[:LABEL_CHARS_MAX]
    return label if label.isascii() else label.encode("utf-8", "replace").decode()


class Metrics(Mapping[str, AnyDeclared]):
    """Those of one extension, by the name that it gave them: `ctx.metrics.indexed` or `ctx.metrics["indexed"]`."""

    __hash__ = object.__hash__

    def __init__(self, extension: str = "") -> None:
        self._extension = extension
        self._by_name: dict[str, AnyDeclared] = {}

    def declare(self, family: MetricDeclaration, *, exact: bool) -> AnyDeclared:
        """With the extension's name before it, unless the name is exact."""
        self._check(family, exact)
        name = family.name if exact else f"{self._extension}_{family.name}"
        if family.kind == "counter" and not name.endswith("_total"):
            name += "_total"
        if any(each.name == name for each in self._by_name.values()) or family.name in self._by_name:
            raise self._wrong(f"two metrics are called {family.name}")
        made = self._by_name[family.name] = msgspec.structs.replace(family, name=name).instrument()
        return made

    def _check(self, family: MetricDeclaration, exact: bool) -> None:
        name, labels = family.name, family.labels
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong(f"the name of a metric is an identifier, got {quoted(name)}")
        if hasattr(Metrics, name):
            raise self._wrong(f"metric {name}: `metrics.{name}` is something else; choose another name")
        if exact and name.startswith(_RESERVED):
            raise self._wrong(f"metric {name}: names that begin with {', '.join(_RESERVED)} are Holdfast's own")
        if exact and family.kind == "counter" and not name.endswith("_total"):
            raise self._wrong(f"metric {name}: the exact name of a counter ends with _total")
        if not isinstance(family.about, str) or not family.about.strip():
            raise self._wrong(f"metric {name}: say in a sentence what it counts")
        if not all(isinstance(label, str) and _LABEL.fullmatch(label) and label != "le" for label in labels):
            raise self._wrong(f"metric {name}: a label is an identifier, not `le`, and does not begin with __")
        if len(set(labels)) < len(labels) or len(labels) > LABEL_NAMES_MAX:
            raise self._wrong(f"metric {name}: its labels are at most {LABEL_NAMES_MAX}, each another")
        if family.kind == "histogram" and not _rising(family.buckets):
            raise self._wrong(f"metric {name}: its buckets are 1 to {BUCKETS_MAX} rising finite numbers")

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


def _rising(buckets: Any) -> bool:
    return (
        0 < len(buckets) <= BUCKETS_MAX
        and all(isinstance(bound, int | float) and math.isfinite(bound) for bound in buckets)
        and list(buckets) == sorted(set(buckets))
    )


# -- collisions -------------------------------------------------------------------------------------------------


def check_names(of_each: Mapping[str, Iterable[Instrument]]) -> None:
    """By whose they are. Two families that would write samples of one name are an error that names both."""
    written: dict[str, tuple[str, str]] = {}
    for whose, instruments in of_each.items():
        for instrument in instruments:
            for name in _written(instrument):
                other, its_name = written.setdefault(name, (whose, instrument.name))
                if (other, its_name) != (whose, instrument.name):
                    raise Invalid(
                        f"metric {instrument.name} of {whose} collides with {its_name} of {other}",
                        code="duplicate_metric",
                    )


def same_form(one: Instrument, other: Instrument | None) -> bool:
    """Whether the second can stand in the place of the first: of the same kind, with the same labels and buckets."""
    if other is None or isinstance(one, Counter) is not isinstance(other, Counter):
        return False
    return (one.labels, getattr(one, "buckets", ())) == (other.labels, getattr(other, "buckets", ()))


def _written(instrument: Instrument) -> set[str]:
    if isinstance(instrument, Counter):
        base = instrument.name.removesuffix("_total")
        return {base, f"{base}_total", f"{base}_created"}
    if isinstance(instrument, Histogram):
        return {instrument.name} | {f"{instrument.name}_{end}" for end in ("bucket", "sum", "count", "created")}
    return {instrument.name}


# -- between processes ------------------------------------------------------------------------------------------


class Declarations:
    """All that one process feeds."""

    def __init__(self, instruments: Iterable[AnyDeclared]) -> None:
        self.by_name = {each.name: each for each in instruments}

    def take(self) -> Iterator[Snapshot]:
        """What a child process has counted since the last time, in short messages."""
        for name, each in self.by_name.items():
            taken = iter(each.take())
            while chunk := list(islice(taken, CHUNK)):
                yield {name: chunk}

    def merge(self, source: object, message: msgspec.Raw) -> None:
        """What a child process says. It may have another version of the extension, and handlers that do anything."""
        try:
            snapshot = msgspec.json.decode(message, type=Snapshot)
        except (msgspec.DecodeError, ValueError) as error:
            once("", "metrics of a child process were dropped: %s", error)
            return
        for name, values in snapshot.items():
            if (instrument := self.by_name.get(name)) is None:
                once(name, "metric %s of a child process is not known here and is dropped", name)
                continue
            for labels, value in values:
                if instrument.fits(labels, value):
                    instrument.merge(source, tuple(map(_text, labels)), value)
                else:
                    once(name, "metric %s of a child process has other labels or values than here; dropped", name)

    def forget(self, source: object) -> None:
        for each in self.by_name.values():
            each.forget(source)
