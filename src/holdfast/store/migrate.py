"""Schema migrations: numbered files, applied in order, one transaction each, under a lock."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Protocol

import asyncpg

from holdfast.errors import Invalid, SchemaStale, StoreUnavailable
from holdfast.ids import Ids
from holdfast.redaction import without_password
from holdfast.store.advisory_locks import MIGRATION
from holdfast.store.connect import DATABASE_ERRORS, open_connection, transaction_settings
from holdfast.store.error_mapping import DatabaseLabel, unreachable
from holdfast.store.sqlite import BUSY_SECONDS, connect

CORE = "holdfast"  # instead of the name of an extension, for the core schema
_TABLE = (
    f"CREATE TABLE IF NOT EXISTS holdfast_migrations (extension text NOT NULL DEFAULT '{CORE}', "
    "number integer NOT NULL, name text NOT NULL, PRIMARY KEY (extension, number))"
)
_APPLIED = "SELECT 1 FROM holdfast_migrations WHERE extension = {} AND number = {}"


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str
    extension: str = CORE

    @property
    def key(self) -> tuple[str, int]:
        return self.extension, self.number

    @property
    def shown(self) -> str:
        return self.name if self.extension == CORE else f"{self.extension} {self.name}"


class Migratable(Protocol):
    """An extension with migrations."""

    @property
    def name(self) -> str: ...

    def migrations(self, dialect: str) -> list[Migration]: ...


def migrations(dialect: str, extensions: Iterable[Migratable] = ()) -> list[Migration]:
    """The core migrations, then those of each extension, in the order in which they are applied."""
    core = migrations_in(files("holdfast.store").joinpath("schema", dialect), CORE)
    return core + [migration for extension in extensions for migration in extension.migrations(dialect)]


def migrations_in(folder: Traversable, extension: str) -> list[Migration]:
    """The files `0001_name.sql`, `0002_name.sql` and so on in a folder."""
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    read = [
        Migration(_number(file.name, extension), file.name.removesuffix(".sql"), file.read_text("utf-8"), extension)
        for file in found
    ]
    if [migration.number for migration in read] != list(range(1, len(read) + 1)):
        names = ", ".join(migration.name for migration in read)
        raise Invalid(
            f"extension {extension!r}: its migrations are numbered from 0001 without a gap, found {names}",
            code="invalid_migration",
        )
    return read


def _number(name: str, extension: str) -> int:
    if not re.fullmatch(r"\d{4}_\w+\.sql", name):
        raise Invalid(
            f"extension {extension!r}: a migration is called like 0001_notes.sql, found {name!r}",
            code="invalid_migration",
        )
    return int(name[:4])


def dialect_of(url: str) -> str:
    scheme = str(url).partition(":")[0]
    if scheme in ("postgresql", "postgres"):
        _check_ports(url)
        return "postgres"
    if scheme == "sqlite":
        return "sqlite"
    raise Invalid(
        f"a database URL starts with postgresql:// or sqlite:///, got {scheme!r}", code="invalid_database_url"
    )


def _check_ports(url: str) -> None:
    """The message does not quote the URL, whose password may contain unescaped characters."""
    host, _, _ = url.partition("://")[2].rpartition("@")[2].partition("/")
    if any(not 0 < int(port) < 65_536 for port in re.findall(r":(\d+)(?=,|$)", host)):
        raise Invalid("invalid port in the database URL; give one from 1 to 65535", code="invalid_database_url")


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


async def migrate(url: str, extensions: Iterable[Migratable] = ()) -> list[str]:
    """Apply the missing migrations and return their names. Safe to run concurrently, and to kill and run again."""
    wanted = migrations(dialect_of(url), extensions)
    if dialect_of(url) == "sqlite":
        return await asyncio.to_thread(_migrate_sqlite, sqlite_path(url), wanted)
    return await _migrate_postgres(url, wanted)


async def missing(url: str, extensions: Iterable[Migratable] = ()) -> list[Migration]:
    """The migrations that `migrate` would apply."""
    wanted = migrations(dialect_of(url), extensions)
    if dialect_of(url) == "sqlite":
        return await asyncio.to_thread(_missing_sqlite, sqlite_path(url), wanted)
    return await _missing_postgres(url, wanted)


async def _missing_postgres(url: str, wanted: list[Migration]) -> list[Migration]:
    async with _postgres(url) as connection, connection.transaction():  # a pooler keeps a transaction on one connection
        if await connection.fetchval("SELECT to_regclass('holdfast_migrations')") is None:
            return wanted
        done = {tuple(row) for row in await connection.fetch("SELECT extension, number FROM holdfast_migrations")}
        return [migration for migration in wanted if migration.key not in done]


async def require_current(url: str, label: DatabaseLabel | None = None, extensions: Iterable[Migratable] = ()) -> None:
    if left := await missing(url, extensions):
        label = label or DatabaseLabel(without_password(url))
        lacks = ", ".join(migration.shown for migration in left)
        raise SchemaStale(f"{label.database} lacks {lacks}; run `{label.migrate}`")


def as_sql(dialect: str, extensions: Iterable[Migratable] = ()) -> str:
    """The SQL that `migrate` runs on an empty database, for operators who apply schema changes by hand."""
    parts = [_TABLE + ";"]
    for migration in migrations(dialect, extensions):
        parts.append(f"BEGIN;\n{migration.sql.strip()}\n{record_applied(migration)};\nCOMMIT;")  # noqa: PERF401
    return "\n\n".join(parts) + "\n"


def record_applied(migration: Migration) -> str:
    """The statement that records a migration as applied. Names are identifiers."""
    values = f"'{migration.extension}', {migration.number}, '{migration.name}'"
    return f"INSERT INTO holdfast_migrations (extension, number, name) VALUES ({values})"


def _failed(migration: Migration, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{migration.shown} failed and was rolled back: {error}", code="store_refused")


# -- PostgreSQL ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _postgres(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection whose errors are mapped."""
    connection = await _connect_postgres(url)
    try:
        yield connection
    except DATABASE_ERRORS as error:
        raise StoreUnavailable(f"PostgreSQL failed: {error}", code="store_refused") from error
    finally:
        await connection.close()


async def _connect_postgres(url: str) -> asyncpg.Connection:
    try:
        return await open_connection(url, statement_cache_size=0)
    except (ValueError, OverflowError) as error:
        own = isinstance(error, asyncpg.InterfaceError)  # other errors may quote a part of the password
        why = error if own else "write postgresql://USER:PASSWORD@HOST:PORT/NAME, special characters as %XX"
        raise Invalid(f"cannot read the database URL: {why}", code="invalid_database_url") from None
    except DATABASE_ERRORS as error:
        raise unreachable(url, error) from error


async def _migrate_postgres(url: str, wanted: list[Migration]) -> list[str]:
    left = await _missing_postgres(url, wanted)  # usually empty: then the lock is not needed
    if not left:
        return []
    async with _postgres(url) as connection:
        return [migration.shown for migration in left if await _apply_postgres(connection, migration)]


async def _apply_postgres(connection: asyncpg.Connection, migration: Migration) -> bool:
    """False if it has been applied already. The advisory lock is that of the transaction: behind a pooler a session
    lock would outlive the client."""
    try:
        async with connection.transaction():
            for setting in transaction_settings():  # a client that vanishes must not keep the tables locked
                await connection.execute(f"SET LOCAL {setting}")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION)
            await connection.execute(_TABLE)
            if await connection.fetchval(_APPLIED.format("$1", "$2"), *migration.key):
                return False
            await connection.execute(migration.sql)
            await connection.execute(record_applied(migration))
    except asyncpg.PostgresError as error:
        raise _failed(migration, error) from error
    return True


# -- SQLite -------------------------------------------------------------------------------------------------------


def _migrate_sqlite(path: Path, wanted: list[Migration]) -> list[str]:
    with _opening(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _reject_insecure_directory(path.parent)
        with closing(_connect_sqlite(path)) as connection:
            left = _missing_in(connection, wanted)  # usually empty: then the write lock is not needed
            return [migration.shown for migration in left if _apply_sqlite(connection, migration)]


def _apply_sqlite(connection: sqlite3.Connection, migration: Migration) -> bool:
    """False if it has been applied already. The write lock is taken before the check."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    if connection.execute(_APPLIED.format("?", "?"), migration.key).fetchone():
        connection.execute("ROLLBACK")
        return False
    try:
        for statement in statements(migration.sql):
            connection.execute(statement)
        connection.execute(record_applied(migration))
        connection.execute("COMMIT")
    except sqlite3.Error as error:  # closing the connection rolls back
        raise _failed(migration, error) from error
    return True


def _missing_sqlite(path: Path, wanted: list[Migration]) -> list[Migration]:
    with _opening(path):
        if not path.exists():
            return wanted
        with closing(_connect_sqlite(path)) as connection:
            return _missing_in(connection, wanted)


def _missing_in(connection: sqlite3.Connection, wanted: list[Migration]) -> list[Migration]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_migrations'").fetchone():
        return wanted
    done = {tuple(row) for row in connection.execute("SELECT extension, number FROM holdfast_migrations")}
    return [migration for migration in wanted if migration.key not in done]


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Maps errors of opening the file."""
    try:
        yield
    except (OSError, UnicodeError, sqlite3.Error) as error:
        raise StoreUnavailable(f"cannot open {path}: {error}") from error


def _reject_insecure_directory(directory: Path) -> None:
    """Reject a world-writable directory: other users could replace the database file."""
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise Invalid(
            f"{directory} is world-writable, so other users could replace the database; run `chmod o-w {directory}`",
            code="insecure_directory",
        )


def _connect_sqlite(path: Path) -> sqlite3.Connection:
    connection = connect(path, Ids())
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    return connection


def statements(script: str) -> Iterator[str]:
    """Split a script into statements; triggers stay whole."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if pending.strip() and sqlite3.complete_statement(pending):
            yield pending
            pending = ""
