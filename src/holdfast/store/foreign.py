"""A transaction that belongs to the caller: jobs created in it commit or vanish with the caller's own rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from holdfast.clock import Clock
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.store.base import Row, Tx
from holdfast.store.postgres import PostgresTx, bind, require_commit
from holdfast.store.postgres import in_our_words as postgres_words
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, SQLITE, render
from holdfast.store.sqlite import SqliteTx, prepare
from holdfast.store.sqlite import in_our_words as sqlite_words

_NUMBERED = re.compile(r"\$(\d+)")
# We read before we write, and a read that has gone stale cannot become a write: take the write lock first.
_BEGIN = "BEGIN IMMEDIATE"


@asynccontextmanager
async def borrow(connection: Any, dialect: str, clock: Clock, ids: Ids) -> AsyncIterator[Tx]:
    """A transaction over an open connection of asyncpg, psycopg (either kind) or sqlite3.

    What is done in it stands behind a savepoint: a caller who catches our error and commits keeps all or nothing.
    """
    tx = _over(connection, dialect, clock, ids)
    try:
        async with _behind_savepoint(connection, open_already=_is_open(connection)):
            yield tx
    except asyncpg.PostgresError as error:
        raise postgres_words(str(error.sqlstate), str(error)) from error
    except sqlite3.Error as error:
        raise sqlite_words(error) from error
    except Exception as error:
        if (state := getattr(error, "sqlstate", None)) is not None:  # psycopg's, which may not be installed
            raise postgres_words(state, str(error)) from error
        raise


def _over(connection: Any, dialect: str, clock: Clock, ids: Ids) -> Tx:
    library = type(connection).__module__.partition(".")[0]
    if isinstance(connection, sqlite3.Connection):
        if dialect != SQLITE:
            raise Invalid(
                "the jobs live in PostgreSQL, but the connection given is SQLite's", code="invalid_connection"
            )
        prepare(connection, ids)
        return SqliteTx(connection, clock)
    if dialect != POSTGRES:
        raise Invalid(f"the jobs live in SQLite, but the connection given is {library}'s", code="invalid_connection")
    if library == "asyncpg":
        return _BorrowedAsyncpg(connection, clock)
    if library == "psycopg":
        return _BorrowedPsycopg(connection, clock)
    raise Invalid(
        f"cannot create jobs through a {type(connection).__qualname__}; give one of asyncpg, psycopg or sqlite3",
        code="invalid_connection",
    )


@asynccontextmanager
async def _behind_savepoint(connection: Any, *, open_already: bool) -> AsyncIterator[None]:
    """A savepoint in the caller's transaction; a transaction of our own where the caller has none."""
    begin, end, undo = (
        ("SAVEPOINT holdfast", "RELEASE SAVEPOINT holdfast", "ROLLBACK TO SAVEPOINT holdfast")
        if open_already
        else (_BEGIN if isinstance(connection, sqlite3.Connection) else "BEGIN", "COMMIT", "ROLLBACK")
    )
    await _awaited(connection.execute(begin))
    try:
        yield
    except BaseException:
        await _awaited(connection.execute(undo))
        raise
    answer = await _awaited(connection.execute(end))
    require_commit(getattr(answer, "statusmessage", answer))


def _is_open(connection: Any) -> bool:
    """Is the caller inside a transaction, or about to be by the rules of its library?"""
    if isinstance(connection, sqlite3.Connection):
        if connection.isolation_level is not None and not connection.in_transaction:
            connection.execute(_BEGIN)  # what the library does before the first change
        return connection.in_transaction
    if isinstance(connection, asyncpg.Connection):
        return bool(connection.is_in_transaction())
    return not connection.autocommit or connection.info.transaction_status.name != "IDLE"


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


class _BorrowedAsyncpg(PostgresTx):
    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        return [_plain(dict(row)) for row in await super().all(query, limit=limit, filters=filters, **params)]

    def after_commit(self, callback: Callable[[], None]) -> None:
        """We never learn when the caller commits; polling finds the job."""


class _BorrowedPsycopg(_BorrowedAsyncpg):
    async def all(
        self, query: Query, *, limit: int | None = None, filters: tuple[str, ...] = (), **params: Any
    ) -> list[Row]:
        statement = render(query, POSTGRES, limit, filters)
        values = bind(query, statement, params, self._clock)
        text = _NUMBERED.sub(r"%(p\1)s", statement.text.replace("%", "%%"))
        cursor = self._connection.execute(text, {f"p{n}": value for n, value in enumerate(values, start=1)})
        cursor = await _awaited(cursor)
        fetched = await _awaited(cursor.fetchall())
        names = [column.name for column in cursor.description]
        return [_plain(row if isinstance(row, dict) else dict(zip(names, row, strict=True))) for row in fetched]


def _plain(row: dict[str, Any]) -> Any:
    """Our own connections give uuids as text; other people's give objects."""
    return {name: str(value) if type(value).__name__ == "UUID" else value for name, value in row.items()}
