"""Diagnostics for `holdfast doctor` that are specific to PostgreSQL or SQLite: settings, indexes, vacuum, integrity."""

from __future__ import annotations

import re

import msgspec

from holdfast.store.base import Tx
from holdfast.store.migrate import migrations
from holdfast.store.queries import Query


class TableBloat(msgspec.Struct, frozen=True):
    """The live and dead rows of a table, and whether autovacuum is disabled for it."""

    table: str
    live: int
    dead: int
    vacuum_off: bool


class OpenTransaction(msgspec.Struct, frozen=True):
    seconds: float
    who: str


class PostgresState(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    replica: bool
    settings: dict[str, str]
    indexes: dict[str, bool]  # name -> valid
    bloat: list[TableBloat]
    oldest: OpenTransaction | None


class SqliteState(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    journal_mode: str
    faults: list[str]
    indexes: dict[str, bool]


# The tables that grow, and their partitions.
_TABLES = """
    SELECT to_regclass(name)::oid FROM unnest(ARRAY[
        'holdfast_jobs', 'holdfast_ready', 'holdfast_events', 'holdfast_kept_attempts', 'holdfast_parts'
    ]) AS name
    UNION
    SELECT inhrelid FROM pg_inherits WHERE inhparent IN (
        to_regclass('holdfast_events'), to_regclass('holdfast_kept_attempts')
    )
"""
_SERVER = Query(
    "diagnostics_server",
    "SELECT current_setting('server_version_num')::integer AS version, pg_is_in_recovery() AS replica",
)
_SETTINGS = Query(
    "diagnostics_settings",
    "SELECT name, setting FROM pg_settings "
    "WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum')",
)
_POSTGRES_INDEXES = Query(
    "diagnostics_indexes",
    """SELECT c.relname, i.indisvalid
          FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('holdfast_jobs'))""",
)
_BLOAT = Query(
    "diagnostics_growth",
    f"""SELECT s.relname, s.n_live_tup, s.n_dead_tup,
               coalesce('autovacuum_enabled=false' = ANY(c.reloptions), FALSE) AS vacuum_off
          FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
         WHERE s.relid IN ({_TABLES})
         ORDER BY s.relname""",
)
_OLDEST = Query(
    "diagnostics_oldest",
    """SELECT extract(epoch FROM clock_timestamp() - since)::float8 AS seconds, who
         FROM (SELECT xact_start AS since, format('process %s (%s)', pid, state) AS who
                 FROM pg_stat_activity
                WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
               UNION ALL
               SELECT prepared, format('the prepared transaction %s', gid)
                 FROM pg_prepared_xacts
                WHERE database = current_database()) AS begun
        WHERE since IS NOT NULL
        ORDER BY since
        LIMIT 1""",
)
_VERSION = Query("diagnostics_version", "SELECT sqlite_version() AS version")
_JOURNAL = Query("diagnostics_journal", "PRAGMA journal_mode")
_QUICK_CHECK = Query("diagnostics_quick_check", "PRAGMA quick_check(10)")
_SQLITE_INDEXES = Query(
    "diagnostics_indexes", "SELECT name, TRUE AS valid FROM sqlite_master WHERE type = 'index' ORDER BY name"
)


# The risk of each setting when it is off.
DURABILITY = {
    "fsync": "a power cut can lose or damage everything",
    "full_page_writes": "a power cut can damage pages",
    "synchronous_commit": "a crash can lose jobs that were acknowledged",
}


def is_off(setting: str) -> bool:
    return setting in ("off", "false")


SAFE_SQLITE = (3, 51, 3)
SQLITE_REMEDY = "in production use a Python with SQLite 3.51.3 or newer, or PostgreSQL"


def sqlite_defect(version: str) -> str | None:
    """The defect of this SQLite version, if any."""
    if tuple(map(int, version.split("."))) >= SAFE_SQLITE:
        return None
    return (
        f"SQLite {version} can damage its log if two processes write at the same moment; "
        "this is rare, and acceptable for development"
    )


async def weak_settings(tx: Tx, dialect: str) -> list[str]:
    """Settings of the PostgreSQL server, or the version of the SQLite library, that put acknowledged jobs at risk."""
    if dialect == "sqlite":
        [version] = await tx.all(_VERSION)
        defect = sqlite_defect(version[0])
        return [f"{defect}; {SQLITE_REMEDY}"] if defect else []
    found = {row[0]: row[1] for row in await tx.all(_SETTINGS)}
    return [f"{name} is off: {cost}" for name, cost in DURABILITY.items() if is_off(found.get(name, ""))]


async def postgres_state(tx: Tx) -> PostgresState:
    [server] = await tx.all(_SERVER)
    return PostgresState(
        version=server["version"],
        replica=server["replica"],
        settings={row[0]: row[1] for row in await tx.all(_SETTINGS)},
        indexes={row[0]: row[1] for row in await tx.all(_POSTGRES_INDEXES)},
        bloat=[TableBloat(*row) for row in await tx.all(_BLOAT)],
        oldest=next((OpenTransaction(*row) for row in await tx.all(_OLDEST)), None),
    )


async def sqlite_state(tx: Tx) -> SqliteState:
    [version], [journal] = await tx.all(_VERSION), await tx.all(_JOURNAL)
    return SqliteState(
        version=version[0],
        journal_mode=journal[0],
        faults=[row[0] for row in await tx.all(_QUICK_CHECK) if row[0] != "ok"],
        indexes={row[0]: bool(row[1]) for row in await tx.all(_SQLITE_INDEXES)},
    )


def indexes_of(dialect: str) -> set[str]:
    """The named indexes of the schema."""
    return {
        name
        for migration in migrations(dialect)
        for name in re.findall(r"(?m)^CREATE (?:UNIQUE )?INDEX (\w+)", migration.sql)
    }
