"""What a store's queries take and fail with, as two families of metrics."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from holdfast.observe.instruments import Counter, Histogram, Labels, MetricsRegistry
from holdfast.store.queries import Query


class QueryTimes:
    """For `store.watch`. Several threads of SQLite call it at once, while somebody else may read: so it counts under a
    lock, for itself, and hands a copy over before each reading. `labels` must come from a closed set."""

    def __init__(
        self, registry: MetricsRegistry, took: Histogram, errors: Counter, labels: Callable[[Query], Labels]
    ) -> None:
        self._shown, self._labels, self._lock = (took, errors), labels, Lock()
        self._took = Histogram(took.name, took.about, took.labels, took.buckets)
        self._errors = Counter(errors.name, errors.about, errors.labels)
        self._known: dict[str, Labels] = {}  # by the name of the query
        registry.before.append(self._hand_over)

    def __call__(self, query: Query, seconds: float, error: BaseException | None) -> None:
        labels = self._known.get(query.name)
        if labels is None:
            labels = self._known[query.name] = self._labels(query)
        with self._lock:
            self._took.observe(seconds, *labels)
            if error is not None:
                self._errors.add(1, *labels, error_code(error))

    def _hand_over(self) -> None:
        took, errors = self._shown
        with self._lock:
            took.values = {labels: list(value) for labels, value in self._took.values.items()}
            errors.values = dict(self._errors.values)


def error_code(error: BaseException) -> str:
    """As the database calls it: `40P01`, `SQLITE_BUSY`; where it said nothing, what happened to the connection."""
    named: str | None = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    return named or type(error).__name__
