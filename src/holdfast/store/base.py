"""The seam between meaning and storage: a store runs work in transactions, a transaction runs queries by name."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from holdfast.clock import Clock
from holdfast.store.queries import Query
from holdfast.store.render import Statement

T = TypeVar("T")
Blocked = Callable[[float], None]
log = logging.getLogger(__name__)


class Row(Protocol):
    def __getitem__(self, key: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Tx(Protocol):
    """One transaction. A query that moves jobs writes its history with them, in the same transaction.

    `alone`: there is no transaction around the statements, each commits by itself.
    `lock_errors`: raised when a lock was not to be had in that time.
    `lock_seconds`: how long a statement with `{lock_timeout}` waits for another transaction; None: without a limit.
    """

    alone: bool
    lock_seconds: float | None
    lock_errors: tuple[type[Exception], ...]

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]: ...

    async def one(self, query: Query, **params: Any) -> Row | None: ...

    async def run(self, query: Query, **params: Any) -> None:
        """A write whose answer is not needed. It may be sent together with others, in order: before the next query at
        the latest, and before the commit."""
        ...

    async def flush(self) -> None:
        """Send what `run` has kept back."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """What is done inside is undone when it raises, and the rest of the transaction goes on. `alone`: it is a
        transaction of its own."""
        ...

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: Blocked) -> T:
        """Run an extension's coroutine, which may await this transaction and nothing else, for so long at most.

        `blocked` is told how many seconds it has held up everything else, if these are many."""
        ...

    async def wait_for_locks(self) -> None:
        """From here on without the limit of `{lock_timeout}`: hooks wait for locks of their own as long as they may
        run."""
        ...

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        """Run once the work is on disk; not at all if it does not get there. A hint does no harm if it is given though
        the work never got there: that may happen in a transaction that is not ours."""
        ...


Work = Callable[[Tx], Awaitable[T]]
# Told of every query when it has ended: how many seconds it took, and what it failed with. On SQLite the threads that
# read and write call it, several at once: whoever listens there keeps to what is safe from any thread.
Watch = Callable[[Query, float, BaseException | None], None]

# What a store does besides queries. It is told of if it fails: a database that is away fails at nothing else.
CONNECT, BEGIN, COMMIT = (Query(word, word.upper()) for word in ("connect", "begin", "commit"))


class Watched:
    """Around one of these: whoever watches is told of what went wrong."""

    __slots__ = ("_began", "_clock", "_step", "_watch")

    def __init__(self, watch: Watch | None, step: Query, clock: Clock) -> None:
        self._watch, self._step, self._clock = watch, step, clock

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._watch is not None:
            self._watch(self._step, self._clock.monotonic() - self._began, error.__cause__ or error)


class Store(Protocol):
    """Deadlocks, serialization failures, busy files and dropped connections are retried in here, with jitter.

    Work may therefore run more than once, but takes effect at most once. When the answer to a commit was lost,
    `OutcomeUnknown` says so: it is never reported as success, and never as failure.
    """

    watch: Watch | None

    async def write(self, work: Work[T], *, alone: bool = False, retry_locked: bool = True) -> T:
        """Run work in a transaction. `alone` says that it is one statement and needs no BEGIN around it.

        Without `retry_locked`, `Locked` is raised as soon as a lock was not to be had in time.
        """
        ...

    async def read(self, work: Work[T]) -> T: ...

    async def close(self) -> None: ...


def tell(callbacks: Iterable[Callable[[], None]]) -> None:
    """The work is on disk: a listener that fails cannot undo it, and must not make it look undone (S14)."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a callback after a commit failed")


def check_params(query: Query, statement: Statement, params: dict[str, Any]) -> None:
    """A missing or extra argument is our own mistake; say which query and which name."""
    wanted = {name.partition(".")[0] for name in statement.params} - {"now"}
    if missing := wanted - params.keys():
        raise TypeError(f"query {query.name} needs {sorted(missing)}")
    if extra := params.keys() - wanted - {"actor"}:
        raise TypeError(f"query {query.name} knows no {sorted(extra)}")
