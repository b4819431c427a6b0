"""The identity of a database, to detect a restore, a replacement or a failover.

A process caches ids of lanes and policies. After a restore, or a failover that lost commits, the same ids may belong to
other rows. So each new connection reads the identity of the database, and a change clears the caches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from holdfast.errors import OtherDatabase
from holdfast.store.base import run_callbacks
from holdfast.store.queries import Query

log = logging.getLogger(__name__)

Part = str | int | None


class Identity(NamedTuple):
    """`database` survives restarts and failovers; `generation` changes whenever commits may have been lost.

    `database` is more than the row that `migrate` writes, which copies of a database share.
    """

    database: tuple[Part, ...]
    generation: tuple[Part, ...]
    name: str  # for logs and errors; a server with several addresses has several names

    @classmethod
    def from_row(cls, row: Any) -> Identity | None:
        if row is None or row["id"] is None:
            return None
        generation = (row["timeline"], row["lanes"], row["filenode"])
        return cls((row["id"], row["cluster"], row["database"]), generation, row["name"])

    def is_same(self, other: Identity | None) -> bool:
        return other is not None and (self.database, self.generation) == (other.database, other.generation)


class IdentityTracker:
    """The identity that the connections of one store have read, and what to do when it changes.

    `prepare` is called with the first connection to a changed database, before any is used, and returns whether it
    succeeded; if not, it is called with the next connection.
    """

    def __init__(self) -> None:
        self.current: Identity | None = None
        self.on_change: list[Callable[[], None]] = []
        self.prepare: Callable[[Any], Awaitable[bool]] | None = None
        self._unprepared = False
        self._preparing = asyncio.Lock()

    async def verify(self, found: Identity | None, connection: Any) -> None:
        """Check a new connection to this database."""
        async with self._preparing:
            self.update(found)
            if self._unprepared and self.prepare is not None:
                self._unprepared = not await self.prepare(connection)

    def update(self, found: Identity | None) -> None:
        if found is None or found.is_same(self.current):
            return
        before, self.current = self.current, found
        if before is not None:
            self._unprepared = True
            log.warning(
                "database %s has changed (restored, replaced, or failed over); this process clears its caches",
                found.name,
            )
            run_callbacks(self.on_change)


def other_database(theirs: str, ours: str) -> OtherDatabase:
    return OtherDatabase(
        f"the connection is to {theirs}, but the jobs are in {ours}; pass a connection to that database, or configure "
        "the app with yours",
        code="invalid_connection",
    )


# -- PostgreSQL ---------------------------------------------------------------------------------------------------

# The timeline changes when a standby is promoted and after a point-in-time recovery. The table's filenode changes when
# it is restored or truncated; also when it is rewritten, which is harmless.
_WHERE = """
SELECT (SELECT id FROM holdfast_database_identity) AS id,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database,
       'holdfast_lanes'::regclass::oid::bigint AS lanes,
       pg_relation_filenode('holdfast_lanes')::bigint AS filenode,
       current_database()::text || ' on ' || coalesce(host(inet_server_addr()) || ':' || inet_server_port(),
                                                      'a local socket, port ' || current_setting('port')) AS name"""
_POSTGRES = Query(
    "identity",
    f"""{_WHERE},
       (SELECT system_identifier::text FROM pg_control_system()) AS cluster,
       CASE WHEN pg_is_in_recovery() THEN ''
            ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline""",
)
# For managed services that do not allow these functions.
_POSTGRES_PLAIN = Query("identity", f"{_WHERE}, NULL::text AS cluster, NULL::text AS timeline")


async def read_identity(connection: asyncpg.Connection[Any], *, pooled: bool) -> Identity | None:
    """The identity, read outside of a transaction; None if the database was never migrated."""
    for query in (_POSTGRES, _POSTGRES_PLAIN):
        try:
            # A pooler keeps a transaction on one connection.
            async with connection.transaction() if pooled else nullcontext():
                return Identity.from_row(await connection.fetchrow(query.text))
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError):
            return None
        except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
            continue
    return None


def identity_query(known: Identity | None) -> Query:
    """The query that worked before: an error would abort the caller's transaction."""
    return _POSTGRES_PLAIN if known is not None and known.generation[0] is None else _POSTGRES


# -- SQLite -------------------------------------------------------------------------------------------------------

FILE = Query("file", "SELECT file FROM pragma_database_list WHERE name = 'main'")
_SQLITE = "SELECT id, file FROM holdfast_database_identity, pragma_database_list AS listed WHERE listed.name = 'main'"


def read_file_identity(connection: sqlite3.Connection) -> Identity | None:
    """The identity of the open file; None if it was never migrated."""
    cursor = connection.cursor()
    cursor.row_factory = None  # a caller's connection may have another one
    try:
        found = cursor.execute(_SQLITE).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return None
    if found is None:
        return None
    inode = inode_of(Path(found[1])) if found[1] else None
    return Identity((found[0], *(inode or (None, None))), (), found[1] or "a database in memory")


def inode_of(path: Path) -> tuple[int, int] | None:
    """The device and inode that this path refers to now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
