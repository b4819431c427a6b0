"""The observer of a store: a callback after each query, and after each failed connect, BEGIN or COMMIT."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.store.queries import Query

# Called after every query with its duration in seconds and its error. On SQLite it is called from the reader and writer
# threads, possibly concurrently: it must be thread-safe.
OnQuery = Callable[[Query, float, BaseException | None], None]

# Steps other than queries. Only failures are reported: an unreachable database fails at nothing else.
CONNECT, BEGIN, COMMIT = (Query(word, word.upper()) for word in ("connect", "begin", "commit"))


class ObservedQuery:
    """A context manager around a query that reports it to the observer, if there is one."""

    __slots__ = ("_began", "_clock", "_on_query", "_query")

    def __init__(self, on_query: OnQuery | None, query: Query, clock: Clock) -> None:
        self._on_query, self._query, self._clock = on_query, query, clock

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._on_query is not None:
            self._on_query(self._query, self._clock.monotonic() - self._began, error)


class ObservedStep(ObservedQuery):
    """The same around another step, of which only a failure is reported."""

    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            super().__exit__(kind, error.__cause__ or error, trace)
