"""Creates jobs in a transaction of the caller: they commit or roll back together with the caller's own rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from holdfast.clock import Clock
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.model.names import kind_of
from holdfast.store.base import Row, Tx
from holdfast.store.deferred_hints import DeferredHints
from holdfast.store.error_mapping import map_postgres_error, map_sqlite_error
from holdfast.store.postgres import WAIT_FOR_STANDBY, PostgresTx, bind, require_commit, unconfirmed_commit
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, SQLITE, render
from holdfast.store.sqlite import SqliteTx, register_functions, run_to_completion

IDLE = 0  # libpq's status of a connection without a transaction
_NUMBERED = re.compile(r"\$(\d+)")
# Takes the write lock first: a transaction that has read a stale snapshot cannot be upgraded to a write.
_BEGIN = "BEGIN IMMEDIATE"


@asynccontextmanager
async def borrow(
    connection: Any, dialect: str, clock: Clock, ids: Ids, later: DeferredHints | None = None
) -> AsyncIterator[Tx]:
    """A transaction on an open connection of asyncpg, psycopg (sync or async), psycopg2, sqlite3 or aiosqlite.

    It uses a savepoint: a caller that catches an error of Holdfast and commits keeps all or nothing.
    `later` sends the hints: the caller may be in a thread without an event loop, or in another loop.
    """
    _check(connection, dialect)
    try:
        tx = await _over(connection, clock, ids)
        async with _behind_savepoint(connection, open_already=await _is_open(connection)):
            yield tx
        if isinstance(tx, _BorrowedAsyncpg) and tx.callbacks and later is not None:
            later.add(tx.callbacks)
    except sqlite3.Error as error:
        raise map_sqlite_error(error) from error
    except Exception as error:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg2 calls it pgcode
        if state is None:
            raise
        raise map_postgres_error(state, str(error)) from error


_DRIVERS = {"asyncpg": POSTGRES, "psycopg": POSTGRES, "psycopg2": POSTGRES, "sqlite3": SQLITE, "aiosqlite": SQLITE}
_NAMES = {POSTGRES: "PostgreSQL", SQLITE: "SQLite"}


def _library(connection: Any) -> str:
    if isinstance(connection, sqlite3.Connection):
        return "sqlite3"  # also for a subclass
    return type(connection).__module__.partition(".")[0]


def _check(connection: Any, dialect: str) -> None:
    spoken = _DRIVERS.get(_library(connection))
    if spoken is None:
        fitting = " or ".join(driver for driver, known in _DRIVERS.items() if known == dialect)
        raise Invalid(
            f"cannot create jobs through {kind_of(connection)}; pass a connection of {fitting}",
            code="invalid_connection",
        )
    if spoken != dialect:
        raise Invalid(
            f"the jobs are in {_NAMES[dialect]}, but the connection is to {_NAMES[spoken]}",
            code="invalid_connection",
        )


async def _over(connection: Any, clock: Clock, ids: Ids) -> Tx:
    match _library(connection):
        case "asyncpg":
            return _BorrowedAsyncpg(connection, clock)
        case "psycopg" | "psycopg2":
            return _BorrowedPsycopg(connection, clock)
        case "aiosqlite":
            await connection._execute(register_functions, connection._conn, ids)
            return _BorrowedAiosqlite(connection, clock)
        case _:
            register_functions(connection, ids)
            return SqliteTx(connection, clock)


@asynccontextmanager
async def _behind_savepoint(connection: Any, *, open_already: bool) -> AsyncIterator[None]:
    """A savepoint in the caller's transaction; a new transaction if there is none."""
    begin, end, undo = (
        ("SAVEPOINT holdfast", "RELEASE SAVEPOINT holdfast", "ROLLBACK TO SAVEPOINT holdfast")
        if open_already
        else (_BEGIN if _is_sqlite(connection) else "BEGIN", "COMMIT", "ROLLBACK")
    )
    await _execute(connection, begin)
    try:
        yield
    except BaseException:
        await _execute(connection, undo)
        raise
    with _warnings(connection) as warned_by:
        answer = await _execute(connection, end)
    require_commit(getattr(answer, "statusmessage", answer))
    if WAIT_FOR_STANDBY in warned_by:
        raise unconfirmed_commit()


@contextmanager
def _warnings(connection: Any) -> Iterator[list[str | None]]:
    """Collects the server functions that send warnings. psycopg2 does not expose them."""
    heard: list[str | None] = []
    match _library(connection):
        case "asyncpg":
            add, remove, field = connection.add_log_listener, connection.remove_log_listener, "server_source_function"
        case "psycopg":
            add, remove, field = connection.add_notice_handler, connection.remove_notice_handler, "source_function"
        case _:
            yield heard
            return

    def hear(*message: Any) -> None:  # asyncpg passes the connection first
        heard.append(getattr(message[-1], field))

    add(hear)
    try:
        yield heard
    finally:
        remove(hear)


def _is_sqlite(connection: Any) -> bool:
    return _DRIVERS[_library(connection)] == SQLITE


async def _is_open(connection: Any) -> bool:
    """Is the connection in a transaction, or does its library begin one implicitly?"""
    if _is_sqlite(connection):
        by_itself = connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
        if by_itself and not connection.in_transaction:
            await _execute(connection, _BEGIN)  # as the library does before the first write
        return bool(connection.in_transaction)
    if isinstance(connection, asyncpg.Connection):
        return bool(connection.is_in_transaction())
    return not connection.autocommit or connection.info.transaction_status != IDLE


async def _execute(connection: Any, sql: str, *params: dict[str, Any]) -> Any:
    if _library(connection) != "psycopg2":
        return await _awaited(connection.execute(sql, *params))
    from psycopg2.extensions import cursor as plain  # type: ignore[import-untyped]

    cursor = connection.cursor(cursor_factory=plain)  # the caller's cursor class may return other row types
    cursor.execute(sql, *params)
    return cursor


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


class _BorrowedAsyncpg(PostgresTx):
    lock_seconds: float | None = None  # the caller sets the lock timeout

    call = Tx.call  # the hook may await anything

    async def all(self, query: Query, **params: Any) -> list[Row]:
        return [_plain(dict(row)) for row in await super().all(query, **params)]

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        """The caller's commit is not seen: only hints are kept."""
        if hint:
            self.callbacks.append(callback)


class _BorrowedPsycopg(_BorrowedAsyncpg):
    run = Tx.run  # not buffered: these connections have no `executemany`

    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        statement = render(query, POSTGRES, limit, filters)
        values = bind(query, statement, params, self._clock)
        text = _NUMBERED.sub(r"%(p\1)s", statement.text.replace("%", "%%"))
        cursor = await _execute(self._connection, text, {f"p{n}": value for n, value in enumerate(values, start=1)})
        if cursor.description is None:  # a write without RETURNING
            return []
        fetched = await _awaited(cursor.fetchall())
        names = [column.name for column in cursor.description]
        return [_plain(row if isinstance(row, dict) else dict(zip(names, row, strict=True))) for row in fetched]

    async def _execute(self, sql: str) -> None:
        await _execute(self._connection, sql)


class _BorrowedAiosqlite(SqliteTx):
    """aiosqlite runs its sqlite3 connection in a thread of its own: each query runs there."""

    call = Tx.call

    def __init__(self, connection: Any, clock: Clock) -> None:
        super().__init__(connection._conn, clock)
        self._there = connection._execute

    async def all(self, query: Query, **params: Any) -> list[Row]:
        return await self._there(run_to_completion, super().all(query, **params))  # type: ignore[no-any-return]

    async def _execute(self, sql: str) -> None:
        await self._there(self._connection.execute, sql)


def _plain(row: dict[str, Any]) -> Any:
    """The store's own connections return UUIDs as text; the caller's return objects."""
    return {name: str(value) if type(value).__name__ == "UUID" else value for name, value in row.items()}
