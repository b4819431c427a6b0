"""Which database this is, and whether it still is what it was.

A process keeps ids of lanes and policies. After a restore, or a failover that lost commits, the same ids may name
something else. So each new connection asks for the identity of the database, and a change empties what was kept.
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
from holdfast.store.base import tell
from holdfast.store.queries import Query

log = logging.getLogger(__name__)

Part = str | int | None


class Identity(NamedTuple):
    """`database` stays the same through restarts and failovers, `generation` changes with what may have lost commits.

    `database` has more than the row that `migrate` writes: copies of a database have that row in common.
    """

    database: tuple[Part, ...]
    generation: tuple[Part, ...]
    name: str  # for people: a server with several addresses has several names

    def is_same(self, other: Identity | None) -> bool:
        return other is not None and (self.database, self.generation) == (other.database, other.generation)


class Identities:
    """What the connections of one store have found.

    `prepare` gets the first connection to a database that has changed, before any connection to it is used, and says
    whether it is done; if not, it gets the next one.
    """

    def __init__(self) -> None:
        self.now: Identity | None = None
        self.changed: list[Callable[[], None]] = []
        self.prepare: Callable[[Any], Awaitable[bool]] | None = None
        self._unprepared = False
        self._preparing = asyncio.Lock()

    async def admit(self, found: Identity | None, connection: Any) -> None:
        """A new connection, which leads to this database."""
        async with self._preparing:
            self.see(found)
            if self._unprepared and self.prepare is not None:
                self._unprepared = not await self.prepare(connection)

    def see(self, found: Identity | None) -> None:
        if found is None or found.is_same(self.now):
            return
        before, self.now = self.now, found
        if before is not None:
            self._unprepared = True
            log.warning(
                "%s is not as it was: it was restored, replaced, or failed over; what this process had read from it is "
                "read again",
                found.name,
            )
            tell(self.changed)


def other_database(theirs: str, ours: str) -> OtherDatabase:
    return OtherDatabase(
        f"the connection given leads to {theirs}, but the jobs live in {ours}; give a connection to that database, or "
        "let the app use yours",
        code="invalid_connection",
    )


# -- PostgreSQL ---------------------------------------------------------------------------------------------------

# The timeline changes when a standby takes over and when a backup is restored to a point in time. The table changes
# when it is restored or emptied; also when it is rewritten, which does no harm.
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
# Where a service does not let its customers ask for these.
_POSTGRES_PLAIN = Query("identity", f"{_WHERE}, NULL::text AS cluster, NULL::text AS timeline")


async def of_connection(connection: asyncpg.Connection[Any], *, pooled: bool) -> Identity | None:
    """Of a connection of our own, outside of any transaction; None where the database was never migrated."""
    for query in (_POSTGRES, _POSTGRES_PLAIN):
        try:
            async with connection.transaction() if pooled else nullcontext():  # a pooler keeps that on one connection
                return of_row(await connection.fetchrow(query.text))
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError):
            return None
        except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
            continue
    return None


def question(known: Identity | None) -> Query:
    """For a connection on which an error would do harm: asked as the answer that is known already was got."""
    return _POSTGRES_PLAIN if known is not None and known.generation[0] is None else _POSTGRES


def of_row(row: Any) -> Identity | None:
    if row is None or row["id"] is None:
        return None
    return Identity(
        (row["id"], row["cluster"], row["database"]), (row["timeline"], row["lanes"], row["filenode"]), row["name"]
    )


# -- SQLite -------------------------------------------------------------------------------------------------------

FILE = Query("file", "SELECT file FROM pragma_database_list WHERE name = 'main'")
_SQLITE = "SELECT id, file FROM holdfast_database_identity, pragma_database_list AS listed WHERE listed.name = 'main'"


def of_file(connection: sqlite3.Connection) -> Identity | None:
    """Of the file that a connection has open; None where it was never migrated."""
    cursor = connection.cursor()
    cursor.row_factory = None  # a borrowed connection may make its rows into something else
    try:
        found = cursor.execute(_SQLITE).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return None
    if found is None:
        return None
    inode = file_of(Path(found[1])) if found[1] else None
    return Identity((found[0], *(inode or (None, None))), (), found[1] or "a database in memory")


def file_of(path: Path) -> tuple[int, int] | None:
    """The file that has this path now, whatever had it before."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
