"""Brings a database to the newest schema: numbered files, applied in order, one transaction each, under a lock."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import asyncpg

from holdfast.errors import Invalid, SchemaStale, StoreUnavailable
from holdfast.ids import Ids
from holdfast.redaction import without_password
from holdfast.store.connecting import open_connection, transaction_settings
from holdfast.store.postgres import FAILED
from holdfast.store.refusals import Named, unreachable
from holdfast.store.sqlite import BUSY_SECONDS, connect

_LOCK = 0x686F6C64  # "hold": any two migrators of one database meet here
_TABLE = "CREATE TABLE IF NOT EXISTS holdfast_migrations (number integer NOT NULL PRIMARY KEY, name text NOT NULL)"


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations(dialect: str) -> list[Migration]:
    folder = files("holdfast.store").joinpath("schema", dialect)
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in found
    ]


def dialect_of(url: str) -> str:
    scheme = str(url).partition(":")[0]
    if scheme in ("postgresql", "postgres"):
        return "postgres"
    if scheme == "sqlite":
        return "sqlite"
    raise Invalid(
        f"a database URL starts with postgresql:// or sqlite:///, got {scheme!r}", code="invalid_database_url"
    )


def sqlite_path(url: str) -> Path:
    """`sqlite:///jobs.db` is relative to the current directory, `sqlite:////srv/jobs.db` is absolute."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path or "\x00" in path:
        raise Invalid("a SQLite URL is sqlite:///PATH", code="invalid_database_url")
    if path == ":memory:":
        raise Invalid(
            "sqlite:///:memory: would be another database for each connection; name a file, such as sqlite:///jobs.db",
            code="invalid_database_url",
        )
    return Path(path)


async def migrate(url: str) -> list[str]:
    """Apply what is missing and say what that was. Two migrators at once, or one killed half-way, do no harm."""
    if dialect_of(url) == "sqlite":
        return await asyncio.to_thread(_migrate_sqlite, sqlite_path(url))
    return await _migrate_postgres(url)


async def missing(url: str) -> list[Migration]:
    """What `migrate` would apply."""
    if dialect_of(url) == "sqlite":
        return await asyncio.to_thread(_missing_sqlite, sqlite_path(url))
    async with _postgres(url) as connection, connection.transaction():  # a pooler would give it away in between
        if await connection.fetchval("SELECT to_regclass('holdfast_migrations')") is None:
            return migrations("postgres")
        done = {row[0] for row in await connection.fetch("SELECT number FROM holdfast_migrations")}
        return [migration for migration in migrations("postgres") if migration.number not in done]


async def require_current(url: str, named: Named | None = None) -> None:
    if left := await missing(url):
        named = named or Named(without_password(url))
        lacks = ", ".join(migration.name for migration in left)
        raise SchemaStale(f"{named.database} lacks {lacks}; run `{named.migrate}`")


def as_sql(dialect: str) -> str:
    """Everything `migrate` would run on an empty database, for those who apply schema changes by hand."""
    parts = [_TABLE + ";"]
    for migration in migrations(dialect):
        note = f"INSERT INTO holdfast_migrations (number, name) VALUES ({migration.number}, '{migration.name}');"
        parts.append(f"BEGIN;\n{migration.sql.strip()}\n{note}\nCOMMIT;")
    return "\n\n".join(parts) + "\n"


def _failed(migration: Migration, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{migration.name} could not be applied and is undone: {error}", code="store_refused")


# -- PostgreSQL ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of our own; what goes wrong in it is said in our words."""
    connection = await _connect_postgres(url)
    try:
        yield connection
    except FAILED as error:
        raise StoreUnavailable(f"PostgreSQL refused: {error}", code="store_refused") from error
    finally:
        await connection.close()


async def _connect_postgres(url: str) -> asyncpg.Connection:
    try:
        return await open_connection(url, statement_cache_size=0)
    except (ValueError, OverflowError) as error:
        own = isinstance(error, asyncpg.InterfaceError)  # what others say may quote a part of the password
        why = error if own else "write postgresql://USER:PASSWORD@HOST:PORT/NAME, special characters as %XX"
        raise Invalid(f"cannot read the database URL: {why}", code="invalid_database_url") from None
    except FAILED as error:
        raise unreachable(url, error) from error


async def _migrate_postgres(url: str) -> list[str]:
    left = await missing(url)  # most often nothing, and then no other migrator is waited for
    if not left:
        return []
    async with _postgres(url) as connection:
        return [migration.name for migration in left if await _apply_postgres(connection, migration)]


async def _apply_postgres(connection: asyncpg.Connection, migration: Migration) -> bool:
    """False if it has been applied already. The lock goes with the transaction: a pooler keeps the session open for
    others, and a lock of the session with it."""
    try:
        async with connection.transaction():
            for setting in transaction_settings():  # a migrator that vanishes must not keep the tables locked
                await connection.execute(f"SET LOCAL {setting}")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(_TABLE)
            if await connection.fetchval("SELECT 1 FROM holdfast_migrations WHERE number = $1", migration.number):
                return False
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO holdfast_migrations VALUES ($1, $2)", migration.number, migration.name
            )
    except asyncpg.PostgresError as error:
        raise _failed(migration, error) from error
    return True


# -- SQLite -------------------------------------------------------------------------------------------------------


def _migrate_sqlite(path: Path) -> list[str]:
    with _opening(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_open_directory(path.parent)
        with closing(_connect_sqlite(path)) as connection:
            left = _missing_in(
                connection
            )  # most often nothing, and then whoever holds the write lock is not waited for
            return [migration.name for migration in left if _apply_sqlite(connection, migration)]


def _apply_sqlite(connection: sqlite3.Connection, migration: Migration) -> bool:
    """False if it has been applied already. Taking the write lock before looking keeps that true until the commit."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    if connection.execute("SELECT 1 FROM holdfast_migrations WHERE number = ?", (migration.number,)).fetchone():
        connection.execute("ROLLBACK")
        return False
    try:
        for statement in statements(migration.sql):
            connection.execute(statement)
        connection.execute("INSERT INTO holdfast_migrations VALUES (?, ?)", (migration.number, migration.name))
        connection.execute("COMMIT")
    except sqlite3.Error as error:  # closing the connection undoes it
        raise _failed(migration, error) from error
    return True


def _missing_sqlite(path: Path) -> list[Migration]:
    with _opening(path):
        if not path.exists():
            return migrations("sqlite")
        with closing(_connect_sqlite(path)) as connection:
            return _missing_in(connection)


def _missing_in(connection: sqlite3.Connection) -> list[Migration]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_migrations'").fetchone():
        return migrations("sqlite")
    done = {row[0] for row in connection.execute("SELECT number FROM holdfast_migrations")}
    return [migration for migration in migrations("sqlite") if migration.number not in done]


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Whatever stands between us and the file is said in our words."""
    try:
        yield
    except (OSError, UnicodeError, sqlite3.Error) as error:
        raise StoreUnavailable(f"cannot open {path}: {error}") from error


def _refuse_open_directory(directory: Path) -> None:
    """Whoever may rename files there may put another database in the place of ours (SEC-47)."""
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise Invalid(
            f"anybody may write to {directory}, and so replace the database in it; `chmod o-w {directory}`",
            code="open_directory",
        )


def _connect_sqlite(path: Path) -> sqlite3.Connection:
    connection = connect(path, Ids())
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    return connection


def statements(script: str) -> Iterator[str]:
    """The statements of a script, triggers whole."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if pending.strip() and sqlite3.complete_statement(pending):
            yield pending
            pending = ""
