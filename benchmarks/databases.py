"""Where to measure: PostgreSQL that syncs every commit, or SQLite files at synchronous=FULL, both on disk."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from holdfast.ids import Ids
from holdfast.store.migrate import migrate
from holdfast.store.sqlite import connect
from tests.servers.postgres import PostgresServer, running

STORES = ("postgres", "sqlite")
CLEAR_TRIES = 5

# A checkpoint or a vacuum at its own time would hit one candidate and spare the other: `settle` vacuums before
# each round instead, and the settings leave room for a whole run between two checkpoints.
QUIET = ("autovacuum = off", "checkpoint_timeout = '1h'", "max_wal_size = '16GB'")


class Spent(NamedTuple):
    """What a database has used so far: differences count. None where that cannot be known."""

    cpu_seconds: float | None
    wal_bytes: int | None

    def since(self, before: Spent) -> Spent:
        return Spent(
            None if self.cpu_seconds is None or before.cpu_seconds is None else self.cpu_seconds - before.cpu_seconds,
            None if self.wal_bytes is None or before.wal_bytes is None else self.wal_bytes - before.wal_bytes,
        )


def cpu_seconds(processes: list[int]) -> float | None:
    """Of all threads that these processes have now."""
    try:
        threads = [thread for pid in processes for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except OSError:
        return None


class PostgresDatabase:
    dialect = "postgres"

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def rows(self, sql: str) -> list[Any]:
        return await self.connection.fetch(sql)  # type: ignore[no-any-return]

    async def columns(self, table: str) -> list[str]:
        found = await self.rows(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum"
        )
        return [row["attname"] for row in found]

    async def tables(self) -> list[str]:
        found = await self.rows(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
        )
        return [row["relname"] for row in found]

    async def clear(self, *tables: str) -> None:
        for _ in range(CLEAR_TRIES):
            with suppress(asyncpg.DeadlockDetectedError):  # with a worker that has not stopped reading yet
                return await self.run(f"TRUNCATE {', '.join(tables)}")
        raise RuntimeError(f"could not clear {', '.join(tables)}: other sessions use them")

    async def settle(self, *tables: str) -> None:
        """What autovacuum would have done by now."""
        for table in tables:
            await self.run(f"VACUUM (ANALYZE) {table}")

    async def flush(self) -> None:
        await self.run("CHECKPOINT")

    async def spent(self) -> Spent:
        """By all sessions of this database together."""
        row = await self.connection.fetchrow("""
            SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS written,
                   (SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()) AS processes""")
        return Spent(cpu_seconds(row["processes"]), row["written"])

    @asynccontextmanager
    async def without_triggers(self) -> AsyncIterator[None]:
        """The database refuses to be given finished jobs. Only as a backdrop, a million at once, it must take them."""
        tables = await job_tables(self)
        for table in tables:
            await self.run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        for table in tables:
            await self.run(f"ALTER TABLE {table} ENABLE TRIGGER USER")

    async def close(self) -> None:
        await self.connection.close()


class SqliteDatabase:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.connection = connect(path, Ids())  # the raw loop gets the same settings as the store

    async def run(self, sql: str) -> None:
        self.connection.execute(sql)

    async def rows(self, sql: str) -> list[Any]:
        return self.connection.execute(sql).fetchall()

    async def columns(self, table: str) -> list[str]:
        return [row[0] for row in await self.rows(f"SELECT name FROM pragma_table_info('{table}')")]

    async def tables(self) -> list[str]:
        found = await self.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        return [row[0] for row in found]

    async def clear(self, *tables: str) -> None:
        async with self.without_triggers():
            for table in tables:
                await self.run(f"DELETE FROM {table}")

    async def settle(self, *tables: str) -> None:
        """Nothing vacuums or analyses a SQLite file by itself; but no round pays for the log of the one before."""
        await self.flush()

    async def flush(self) -> None:
        await self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    async def spent(self) -> Spent:
        """The database is this process."""
        return Spent(time.process_time(), None)

    @asynccontextmanager
    async def without_triggers(self) -> AsyncIterator[None]:
        triggers = await self.rows(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'holdfast_%'"
        )
        for name, _ in triggers:
            await self.run(f"DROP TRIGGER {name}")
        yield
        for _, sql in triggers:
            await self.run(sql)

    async def close(self) -> None:
        self.connection.close()


Database = PostgresDatabase | SqliteDatabase


async def job_tables(database: Database) -> dict[str, str]:
    """The tables with rows of jobs, found in the catalog, with the column that names the job; jobs themselves first."""
    found = {"holdfast_jobs": "id"}
    for table in await database.tables():
        columns = await database.columns(table)
        if table.startswith("holdfast_") and table not in found:
            found |= {table: "job_id"} if "job_id" in columns else {}
            found |= {table: "id"} if {"id", "lane", "priority"} <= {*columns} else {}
    return found


async def cleared_tables(database: Database) -> tuple[str, ...]:
    """What a round empties before it begins: rows of jobs, lists of their ids, and when the last sweep was."""
    jobs = await job_tables(database)
    lists = [table for table in await database.tables() if table not in jobs and "ids" in await database.columns(table)]
    return (*jobs, *lists, "holdfast_sweeps")


class PostgresHost:
    """A server of our own; every database on it starts as a copy of one that was migrated."""

    def __init__(self, server: PostgresServer, tuning: Sequence[str] = QUIET) -> None:
        self._server = server
        self._tuning = tuning
        self._numbers = count(1)
        self._migrated = False

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[PostgresDatabase]:
        await self._prepare()
        name = f"bench_{next(self._numbers)}"
        await self._administer(f"CREATE DATABASE {name} TEMPLATE bench_template")
        database = PostgresDatabase(self._server.dsn(name), await asyncpg.connect(self._server.dsn(name)))
        try:
            yield database
        finally:
            await database.close()
            await self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    async def version(self) -> str:
        connection = await asyncpg.connect(self._server.dsn())
        try:
            shown = await connection.fetchval("SHOW server_version")
            for setting in ("fsync", "synchronous_commit"):
                assert await connection.fetchval(f"SHOW {setting}") == "on"
        finally:
            await connection.close()
        return f"PostgreSQL {shown}, fsync and synchronous_commit on"

    async def configure(self, *settings: str) -> None:
        """Settings that need no restart, such as `autovacuum = on`."""
        for setting in settings:
            await self._administer(f"ALTER SYSTEM SET {setting}")
        await self._administer("SELECT pg_reload_conf()")

    async def preload(self, extension: str) -> bool:
        """Load it into the server, where there is such an extension; before the first database is made."""
        connection = await asyncpg.connect(self._server.dsn())
        try:
            found = await connection.fetchval("SELECT 1 FROM pg_available_extensions WHERE name = $1", extension)
        finally:
            await connection.close()
        if found:
            await self._administer(f"ALTER SYSTEM SET shared_preload_libraries = {extension}")
            self._server.restart()
        return found is not None

    async def _prepare(self) -> None:
        if not self._migrated:
            self._migrated = True
            await self.configure(*self._tuning)
            await self._administer("CREATE DATABASE bench_template")
            await migrate(self._server.dsn("bench_template"))

    async def _administer(self, sql: str) -> None:
        connection = await asyncpg.connect(self._server.dsn())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


class SqliteHost:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count(1)

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[SqliteDatabase]:
        path = self._directory / f"bench_{next(self._numbers)}.db"
        await migrate(f"sqlite:///{path}")
        database = SqliteDatabase(path)
        try:
            yield database
        finally:
            await database.close()
            for file in self._directory.glob(f"{path.name}*"):
                file.unlink()

    async def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}, synchronous=FULL"


Host = PostgresHost | SqliteHost


@contextmanager
def host(store: str, *, settings: Sequence[str] = (), tuning: Sequence[str] = QUIET) -> Iterator[Host]:
    """`settings` are those of the command line of PostgreSQL, `tuning` those that can be changed later."""
    if store == "postgres":
        with running(durable=True, settings=settings) as server:
            yield PostgresHost(server, tuning)
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
            yield SqliteHost(Path(directory))
