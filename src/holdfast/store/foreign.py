"""A transaction that belongs to the caller: jobs created in it commit or vanish with the caller's own rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.store.base import Row, Tx
from holdfast.store.postgres import PostgresTx, bind
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES, render
from holdfast.store.sqlite import SqliteTx, prepare

_NUMBERED = re.compile(r"\$(\d+)")


def borrow(connection: Any, dialect: str, clock: Clock, ids: Ids) -> Tx:
    """A transaction over an open connection of asyncpg, psycopg (either kind) or sqlite3."""
    library = type(connection).__module__.partition(".")[0]
    if isinstance(connection, sqlite3.Connection):
        if dialect != "sqlite":
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
        if hasattr(cursor, "__await__"):
            cursor = await cursor
        fetched = cursor.fetchall()
        if hasattr(fetched, "__await__"):
            fetched = await fetched
        names = [column.name for column in cursor.description]
        return [_plain(row if isinstance(row, dict) else dict(zip(names, row, strict=True))) for row in fetched]


def _plain(row: dict[str, Any]) -> Any:
    """Our own connections give uuids as text; other people's give objects."""
    return {name: str(value) if type(value).__name__ == "UUID" else value for name, value in row.items()}
