"""Is a PromQL expression about what was really scraped? Names, labels, values, and functions that fit the type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

COUNTS_UP = {"rate", "irate", "increase"}
ONLY_THERE = {"absent", "absent_over_time", "present_over_time"}

Labels = frozenset[str]


class Wrong(AssertionError):
    """The expression asks for a metric that no process exposes, or has no meaning."""


@dataclass(frozen=True)
class Series:
    """One line of a scrape."""

    name: str
    type: str
    labels: dict[str, str]

    @property
    def counts_up(self) -> bool:
        return self.type in ("counter", "histogram")


@dataclass
class Scrape:
    """All that the targets have said, one after the other."""

    series: dict[str, list[Series]] = field(default_factory=dict)

    def add(self, text: str, target: str, declared: Mapping[str, Iterable[str]] | None = None) -> None:
        """`declared`: the labels of families that nothing has fed yet; their names and types are in the scrape."""
        own = {"job": target, "instance": ""}
        self._keep(Series("up", "gauge", own))
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._keep(Series(sample.name, family.type, {**sample.labels, **own}))
            if not family.samples:
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = dict.fromkeys((declared or {}).get(name, ()), "")
                for series, more in _lines_of(name, family.type):
                    self._keep(Series(series, family.type, {**labels, **more, **own}))

    def _keep(self, one: Series) -> None:
        self.series.setdefault(one.name, []).append(one)

    def selected(self, selector: Any) -> list[Series]:
        if selector.name not in self.series:
            raise Wrong(f"no process exposes {selector.name}")
        found = self.series[selector.name]
        for matcher in selector.matchers.matchers:
            found = [one for one in found if _fits(one, matcher)]
            if not found:
                raise Wrong(f"{selector.name} is never seen with {matcher.name}={matcher.value!r}")
        return found


def _lines_of(name: str, kind: str) -> list[tuple[str, dict[str, str]]]:
    if kind != "histogram":
        return [(name, {})]
    return [(f"{name}_bucket", {"le": "+Inf"}), (f"{name}_sum", {}), (f"{name}_count", {})]


def _fits(one: Series, matcher: Any) -> bool:
    """An exact value must have been seen. What a pattern or a variable of Grafana stands for may be still to come."""
    if matcher.name not in one.labels:
        return False
    exact = matcher.op == promql.MatchOp.Equal and not matcher.value.startswith("$")
    return not exact or one.labels[matcher.name] == matcher.value


def labels_of(expression: str, scrape: Scrape) -> Labels:
    """The labels of what comes out of it; raises Wrong where it does not fit what was scraped."""
    try:
        parsed = promql.parse(expression)
    except ValueError as error:
        raise Wrong(f"this is no PromQL: {error}: {expression}") from None
    return _Reader(scrape).read(parsed)


class _Reader:
    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def read(self, node: Any, within: str = "") -> Labels:
        """`within` is the function that it is the argument of."""
        match node:
            case promql.VectorSelector():
                return self._selector(node, within)
            case promql.MatrixSelector():
                return self._selector(node.vector_selector, within)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self.read(node.expr, within)
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.BinaryExpr():
                return self._both(node)
            case promql.Call():
                return self._call(node)
            case _:
                return frozenset()  # a number or a text

    def _selector(self, node: Any, within: str) -> Labels:
        found = self._scrape.selected(node)
        if within not in ONLY_THERE and found[0].counts_up is not (within in COUNTS_UP):
            raise Wrong(f"{node.name} is a {found[0].type}: {within or 'its bare value'} says nothing about it")
        return frozenset.intersection(*(frozenset(one.labels) for one in found))

    def _aggregate(self, node: Any) -> Labels:
        labels = self.read(node.expr)
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        if named - labels:
            raise Wrong(f"there is no label {', '.join(sorted(named - labels))} in {node.expr.prettify()}")
        return named if node.modifier.type == promql.AggModifierType.By else labels - named

    def _both(self, node: Any) -> Labels:
        left, right = self.read(node.lhs), self.read(node.rhs)
        matching = node.modifier.matching if node.modifier is not None else None
        if matching is not None:
            if missing := frozenset(matching.labels) - (left & right):
                raise Wrong(f"both sides must have {', '.join(sorted(missing))}: {node.prettify()}")
        elif not (_is_number(node.lhs) or _is_number(node.rhs)) and left != right:
            raise Wrong(f"the labels of both sides differ, so nothing matches: {node.prettify()}")
        return right if _is_number(node.lhs) else left

    def _call(self, node: Any) -> Labels:
        name = node.func.name
        labels = [self.read(argument, within=name) for argument in node.args]
        if name == "histogram_quantile":
            if "le" not in labels[1] or not all(one.endswith("_bucket") for one in names(node.args[1])):
                raise Wrong(f"a quantile is of buckets, by le: {node.prettify()}")
            return labels[1] - {"le"}
        return frozenset() if name in ONLY_THERE else frozenset().union(*labels)


def _is_number(node: Any) -> bool:
    match node:
        case promql.NumberLiteral():
            return True
        case promql.ParenExpr() | promql.UnaryExpr():
            return _is_number(node.expr)
        case promql.BinaryExpr():
            return _is_number(node.lhs) and _is_number(node.rhs)
        case promql.Call():
            return node.func.return_type == promql.ValueType.Scalar
        case _:
            return False


def names(node: Any) -> Iterator[str]:
    """The series that an expression is about."""
    found: list[str] = []

    def visit(one: Any) -> None:
        if isinstance(one, promql.VectorSelector):
            found.append(one.name)
        elif isinstance(one, promql.MatrixSelector):
            found.append(one.vector_selector.name)

    promql.walk(node, pre_visit=visit)
    return iter(found)
