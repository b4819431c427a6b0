"""The interface of a store: it runs work in transactions, and a transaction runs queries by name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from holdfast.store.observer import OnQuery
from holdfast.store.queries import Query
from holdfast.store.render import Statement

T = TypeVar("T")
OnBlocked = Callable[[float], None]
log = logging.getLogger(__name__)


class Row(Protocol):
    def __getitem__(self, key: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Tx(Protocol):
    """One transaction. A query that moves jobs writes their history in the same transaction.

    `alone`: autocommit, there is no transaction around the statements.
    `lock_errors`: what the driver raises on a lock timeout. `deadlock_errors`: after them the store runs the whole
    transaction again.
    `lock_seconds`: the lock timeout of statements with `{lock_timeout}`; None: no limit.
    `one_writer`: at a time, of all processes; what it deletes is gone at once.
    """

    alone: bool = False
    one_writer: bool = False
    lock_seconds: float | None = None
    lock_errors: tuple[type[Exception], ...] = ()
    deadlock_errors: tuple[type[Exception], ...] = ()

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]: ...

    async def one(self, query: Query, **params: Any) -> Row | None:
        rows = await self.all(query, **params)
        return rows[0] if rows else None

    async def run(self, query: Query, **params: Any) -> None:
        """A write whose result is not needed. It may be buffered and sent with others, in order: before the next query
        or the commit at the latest."""
        await self.all(query, **params)

    async def flush(self) -> None:
        """Send the writes that `run` has buffered."""
        return

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Roll back what is done inside if it raises; the rest of the transaction goes on. `alone`: a transaction of
        its own."""
        ...

    async def call(self, hook: Coroutine[Any, Any, T], seconds: float, blocked: OnBlocked) -> T:
        """Run an extension's hook with a timeout. It may await this transaction and nothing else.

        `blocked` is called with the seconds for which the hook blocked the event loop or the writer, if it did."""
        async with asyncio.timeout(seconds):
            return await hook

    async def wait_for_locks(self) -> None:
        """Lift the limit of `{lock_timeout}` from here on: hooks may wait for locks until their own timeout."""
        return

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        """Run the callback after the commit, and not after a rollback. A `hint` is harmless without a commit: in a
        caller's own transaction it may be sent anyway."""
        ...


Work = Callable[[Tx], Awaitable[T]]


class Store(Protocol):
    """A store retries deadlocks, serialization failures, busy files and lost connections, with jitter.

    So work may run more than once, but takes effect at most once. If the connection was lost during a commit,
    `OutcomeUnknown` is raised: neither success nor failure is reported.
    """

    on_query: OnQuery | None

    async def write(self, work: Work[T], *, alone: bool = False, small: bool = False, retry_locked: bool = True) -> T:
        """Run work in a transaction. `alone`: it is a single statement and needs no BEGIN around it. `small`: it takes
        microseconds, without hooks; on SQLite the event loop may wait for it.

        Without `retry_locked`, a lock timeout raises `Locked` at once.
        """
        ...

    async def read(self, work: Work[T]) -> T: ...

    async def close(self) -> None: ...


def run_callbacks(callbacks: Iterable[Callable[[], None]]) -> None:
    """Run callbacks after a commit. One that fails is logged and does not make the commit look failed."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a callback after a commit failed")


def check_params(query: Query, statement: Statement, params: dict[str, Any]) -> None:
    """Raise for missing or unknown arguments, with the name of the query."""
    wanted = {name.partition(".")[0] for name in statement.params} - {"now"}
    if missing := wanted - params.keys():
        raise TypeError(f"query {query.name} needs {sorted(missing)}")
    if extra := params.keys() - wanted - {"actor"}:
        raise TypeError(f"query {query.name} has no parameter {sorted(extra)}")


def has_single_rows(tables: tuple[str, ...], params: dict[str, Any]) -> bool:
    for table in tables:  # noqa: SIM110  all() over a generator takes twice as long
        if len(params.get(table, ())) != 1:
            return False
    return True
