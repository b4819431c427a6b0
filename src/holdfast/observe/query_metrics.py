"""Metrics of database queries: durations and errors."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from holdfast.observe.instruments import Counter, Histogram, Labels, MetricsRegistry
from holdfast.store.queries import Query


class QueryTimes:
    """For `store.on_query`. SQLite calls it from several threads: it counts under a lock and copies the values before
    each scrape. `labels` must come from a closed set."""

    def __init__(
        self, registry: MetricsRegistry, took: Histogram, errors: Counter, labels: Callable[[Query], Labels]
    ) -> None:
        self._exported, self._labels, self._lock = (took, errors), labels, Lock()
        self._took = Histogram(took.name, took.about, took.labels, took.buckets)
        self._errors = Counter(errors.name, errors.about, errors.labels)
        self._labels_by_query: dict[str, Labels] = {}  # by the name of the query
        registry.before.append(self._copy)

    def __call__(self, query: Query, seconds: float, error: BaseException | None) -> None:
        labels = self._labels_by_query.get(query.name)
        if labels is None:
            labels = self._labels_by_query[query.name] = self._labels(query)
        with self._lock:
            self._took.observe(seconds, *labels)
            if error is not None:
                self._errors.add(1, *labels, error_code(error))

    def _copy(self) -> None:
        took, errors = self._exported
        with self._lock:
            took.values = {labels: list(value) for labels, value in self._took.values.items()}
            errors.values = dict(self._errors.values)


def error_code(error: BaseException) -> str:
    """The database's own code, such as `40P01` or `SQLITE_BUSY`; else the name of the exception."""
    named: str | None = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    return named or type(error).__name__
