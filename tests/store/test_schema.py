"""Two schema files, one schema: tables, columns, keys and indexes agree, and the states are the lifecycle's."""

import re
import sqlite3

import asyncpg
import pytest

from holdfast.lifecycle import FINAL, State
from holdfast.model.history import ATTEMPT_COLUMNS, EVENT_COLUMNS
from holdfast.model.job import COLUMNS, LEASE_COLUMNS
from holdfast.model.worker import WORKER_COLUMNS
from holdfast.store.migrate import as_sql

Shape = dict[tuple[str, str], tuple[str, bool]]  # (table, column): kind, may be NULL
Index = tuple[str, tuple[str, ...], bool, str | None]  # table, columns, unique, condition

KIND = {
    "uuid": "text",
    "timestamp with time zone": "integer",
    "boolean": "integer",
    "smallint": "integer",
    "bigint": "integer",
    "double precision": "real",
}


async def postgres_columns(connection: asyncpg.Connection) -> Shape:
    rows = await connection.fetch(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
    )
    return {(t, c): (KIND.get(kind, kind), nullable == "YES") for t, c, kind, nullable in rows}


def sqlite_columns(connection: sqlite3.Connection) -> Shape:
    rows = connection.execute(
        'SELECT m.name, c.name, lower(c.type), c."notnull" OR c.pk'
        "  FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid"
    )
    return {(table, column): (kind, not required) for table, column, kind, required in rows}


async def postgres_indexes(connection: asyncpg.Connection) -> set[Index]:
    rows = await connection.fetch(
        "SELECT i.indrelid::regclass::text AS name, i.indisunique, pg_get_expr(i.indpred, i.indrelid) AS predicate,"
        "       ARRAY(SELECT pg_get_indexdef(i.indexrelid, n, TRUE)"
        "                    || CASE WHEN i.indoption[n - 1] & 1 = 1 THEN ' DESC' ELSE '' END"
        "               FROM generate_series(1, i.indnatts) AS n) AS columns"
        "  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'public'::regnamespace"
    )
    return {(row["name"], tuple(row["columns"]), row["indisunique"], condition(row["predicate"])) for row in rows}


def sqlite_indexes(connection: sqlite3.Connection) -> set[Index]:
    found = set()
    for table, index, unique, sql in connection.execute(
        'SELECT m.name, l.name, l."unique", i.sql FROM sqlite_master m, pragma_index_list(m.name) l'
        "  LEFT JOIN sqlite_master i ON i.name = l.name WHERE m.type = 'table'"
    ).fetchall():
        columns = connection.execute("SELECT name, desc FROM pragma_index_xinfo(?) WHERE key", (index,))
        where = re.search(r"WHERE (.*)", sql or "")
        names = tuple(name + (" DESC" if descending else "") for name, descending in columns)
        found.add((table, names, bool(unique), condition(where[1] if where else None)))
    # A single whole number as the key is the place of the row itself, without an index.
    numbered = connection.execute(
        "SELECT m.name, max(c.name), lower(max(c.type)) FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.pk GROUP BY m.name HAVING count(*) = 1"
    )
    return found | {(table, (column,), True, None) for table, column, kind in numbered if kind == "integer"}


def condition(text: str | None) -> str | None:
    return re.sub(r"::\w+|[()]", "", text).strip() if text else None


async def test_both_databases_have_the_same_tables_and_column_types(
    postgres: asyncpg.Connection, sqlite: sqlite3.Connection
) -> None:
    on_postgres, on_sqlite = await postgres_columns(postgres), sqlite_columns(sqlite)
    assert on_postgres == on_sqlite
    assert list(on_postgres) == list(on_sqlite), "in another order"
    assert len({table for table, _ in on_postgres}) == 29


async def test_both_databases_have_the_same_keys_and_indexes(
    postgres: asyncpg.Connection, sqlite: sqlite3.Connection
) -> None:
    """R001-58: uniqueness is the database's own."""
    on_postgres, on_sqlite = await postgres_indexes(postgres), sqlite_indexes(sqlite)
    assert on_postgres - on_sqlite == {("holdfast_events", ("pos", "job_id", "seq"), False, None)}
    assert on_sqlite - on_postgres == {("holdfast_events", ("pos",), True, None)}, "on SQLite `pos` alone is the order"
    assert {
        ("holdfast_jobs", ("id",), True, None),
        ("holdfast_jobs", ("tenant", "idempotency_key"), True, "key_live"),
        ("holdfast_events", ("job_id", "seq"), True, None),
        ("holdfast_attempts", ("job_id", "epoch"), True, None),
    } <= on_postgres


async def test_every_tenant_table_has_a_tenant_column(postgres: asyncpg.Connection) -> None:
    having = {table for table, column in await postgres_columns(postgres) if column == "tenant"}
    assert having == {
        "holdfast_jobs",
        "holdfast_lanes",
        "holdfast_queues",
        "holdfast_events",
        "holdfast_attempts",
        "holdfast_parts",
        "holdfast_keys",
        "holdfast_webhooks",
        "holdfast_deliveries",
        "holdfast_kept_keys",
    }


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_the_state_constraint_lists_the_states_of_the_lifecycle(dialect: str) -> None:
    """C-31."""
    shape = as_sql(dialect).partition("CONSTRAINT holdfast_jobs_shape")[2].partition("END)")[0]
    arms = re.findall(r"WHEN state (?:= '(\w+)'|IN \(([^)]*)\))\s+THEN ([^W]*)", shape)
    rules = {State(word.strip(" '")): rule for one, many, rule in arms for word in (one or many).split(",")}
    assert rules.keys() == set(State)
    assert {state for state, rule in rules.items() if "finished_at IS NOT NULL" in rule} == FINAL
    assert {state for state, rule in rules.items() if "lease_token IS NOT NULL" in rule} == {State.RUNNING}


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("holdfast_jobs", COLUMNS),
        ("holdfast_jobs", LEASE_COLUMNS),
        ("holdfast_events", EVENT_COLUMNS),
        ("holdfast_attempts", ATTEMPT_COLUMNS),
        ("holdfast_workers", WORKER_COLUMNS),
    ],
    ids=["job", "lease", "event", "attempt", "worker"],
)
async def test_every_field_of_a_model_struct_is_a_column(
    postgres: asyncpg.Connection, table: str, columns: tuple[str, ...]
) -> None:
    """R001-26..31, R001-57, R003-5..17."""
    stored = {column for name, column in await postgres_columns(postgres) if name == table}
    assert set(columns) <= stored


async def test_sqlite_tables_are_strict(sqlite: sqlite3.Connection) -> None:
    """A column that is not strict would convert text to numbers silently."""
    rows = sqlite.execute(
        "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    assert {name for name, strict in rows if not strict} == {"holdfast_migrations"}


async def test_every_name_in_the_schema_begins_with_the_prefix(
    postgres: asyncpg.Connection, sqlite: sqlite3.Connection
) -> None:
    """The tables stand beside those of the application."""
    rows = await postgres.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " UNION SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " UNION SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typelem = 0"
        " UNION SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
        " UNION SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    )
    names = {name for (name,) in rows} | {
        name for (name,) in sqlite.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
    }
    assert len(names) > 100
    assert {name for name in names if not name.startswith("holdfast_")} == set()
