"""Database access: all SQL of Holdfast. The engine calls queries by name; a store runs them on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.redaction import without_password
from holdfast.store.base import Row, Store, Tx, Work
from holdfast.store.caller_transaction import borrow
from holdfast.store.error_mapping import DEFAULT_LABEL, DatabaseLabel
from holdfast.store.migrate import Migratable, dialect_of, require_current, sqlite_path
from holdfast.store.migrate import migrate as bring_up_to_date
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import q
from holdfast.store.sqlite import SqliteStore

__all__ = ["PostgresStore", "Row", "SqliteStore", "Store", "Tx", "Work", "borrow", "open_store", "q"]


async def open_store(
    url: str,
    clock: Clock | None = None,
    ids: Ids | None = None,
    *,
    migrate: str = DEFAULT_LABEL.migrate,
    extensions: Iterable[Migratable] = (),
) -> PostgresStore | SqliteStore:
    """Open the store of a database URL. SQLite is created and migrated; an outdated PostgreSQL schema is an error.

    `migrate` is the command that this error suggests. `extensions` may have migrations of their own.
    """
    clock, ids = clock or Clock(), ids or Ids()
    if dialect_of(url) == "sqlite":
        await bring_up_to_date(url, extensions)
        return SqliteStore(sqlite_path(url), clock, ids)
    label = DatabaseLabel(without_password(url), migrate)
    await require_current(url, label, extensions)
    store = await PostgresStore.open(url, clock, ids)
    store.label = label
    return store
