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
from holdfast.store.queries import q
from tests.store.by_hand import ByHand, Refusal, insert, job_id, move

Shape = dict[tuple[str, str], tuple[str, bool]]  # (table, column): kind, may be NULL
Index = tuple[str, tuple[str, ...], bool, str | None]  # table, columns, unique, condition

# PostgreSQL keeps the claimable and the running jobs in tables of their own; SQLite has views of jobs instead.
LISTS_ON_POSTGRES = {"holdfast_ready", "holdfast_claim_batches"}
# On PostgreSQL what claim and complete change is together in the row, for the write-ahead log.
ORDERED_BY_DATABASE = {"holdfast_jobs", "holdfast_events"}

KIND = {
    "uuid": "text",
    "timestamp with time zone": "integer",
    "boolean": "integer",
    "smallint": "integer",
    "bigint": "integer",
    "double precision": "real",
}


READ_FROM_OTHERS = {"last_worker"}  # the lease_worker of a job that is not running: see `render`


async def postgres_columns(connection: asyncpg.Connection) -> Shape:
    rows = await connection.fetch(
        "SELECT table_name, column_name, data_type, is_nullable"
        "  FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)"
        " WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY table_name, ordinal_position"
    )
    return {(t, c): (KIND.get(kind, kind), nullable == "YES") for t, c, kind, nullable in rows}


def sqlite_columns(connection: sqlite3.Connection) -> Shape:
    rows = connection.execute(
        'SELECT m.name, c.name, lower(c.type), c."notnull" OR c.pk'
        "  FROM sqlite_master m, pragma_table_xinfo(m.name) c"
        " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid"
    )
    return {(table, column): (kind, not required) for table, column, kind, required in rows}


async def postgres_views(connection: asyncpg.Connection) -> dict[str, list[str]]:
    """The columns of the views, and of the table that is a view on SQLite."""
    rows = await connection.fetch(
        "SELECT relname, array_agg(attname::text ORDER BY attnum)"
        "  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0"
        " WHERE relnamespace = 'public'::regnamespace AND (relkind = 'v' OR relname = 'holdfast_ready')"
        " GROUP BY relname"
    )
    return {name: list(columns) for name, columns in rows}


def sqlite_views(connection: sqlite3.Connection) -> dict[str, list[str]]:
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    return {name: [c[0] for c in connection.execute(f"SELECT * FROM {name}").description] for name in names}


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
        columns = connection.execute(
            "SELECT coalesce(name, 'coalesce(key_lane, lane)'), desc FROM pragma_index_xinfo(?) WHERE key", (index,)
        )
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
    tables = {table for table, _ in on_postgres}
    assert {table for table, _ in on_sqlite} == tables - LISTS_ON_POSTGRES
    on_postgres = {place: kind for place, kind in on_postgres.items() if place[0] not in LISTS_ON_POSTGRES}
    assert on_postgres == on_sqlite
    assert ordered(on_postgres) == ordered(on_sqlite), "in another order"
    assert len(tables - LISTS_ON_POSTGRES) == 34


def ordered(shape: Shape) -> list[tuple[str, str]]:
    return [place for place in shape if place[0] not in ORDERED_BY_DATABASE]


async def test_both_databases_have_the_same_views(postgres: asyncpg.Connection, sqlite: sqlite3.Connection) -> None:
    """A job's columns are in another order on PostgreSQL, so those of the running ones are too."""
    on_postgres, on_sqlite = await postgres_views(postgres), sqlite_views(sqlite)
    for views in (on_postgres, on_sqlite):
        views["holdfast_running"].sort()
    assert on_postgres == on_sqlite
    assert on_sqlite.keys() == {"holdfast_ready", "holdfast_running", "holdfast_open_jobs", "holdfast_attempts"}


async def test_both_databases_have_the_same_keys_and_indexes(
    postgres: asyncpg.Connection, sqlite: sqlite3.Connection
) -> None:
    """R001-58: uniqueness is the database's own."""
    on_postgres, on_sqlite = await postgres_indexes(postgres), sqlite_indexes(sqlite)
    in_order = ("priority DESC", "id")
    assert on_postgres - on_sqlite == {
        ("holdfast_events", ("pos",), False, None),
        ("holdfast_ready", ("lane", *in_order), False, None),
    }
    assert on_sqlite - on_postgres == {
        ("holdfast_events", ("pos",), True, None),  # the order of the inserts
        ("holdfast_jobs", ("coalesce(key_lane, lane)", *in_order), False, "due"),
        ("holdfast_jobs", ("id",), False, "state = 'running'"),
    }
    assert {
        ("holdfast_jobs", ("id",), True, None),
        ("holdfast_jobs", ("tenant", "idempotency_key"), True, "key_live"),
        ("holdfast_events", ("job_id", "seq"), True, None),
        ("holdfast_kept_attempts", ("job_id", "epoch"), True, None),
    } <= on_postgres


async def test_no_index_of_jobs_names_a_column_that_claim_or_complete_changes(postgres: asyncpg.Connection) -> None:
    """Otherwise PostgreSQL would write every index of the row at each of them, instead of none."""
    indexes = [index for index in await postgres_indexes(postgres) if index[0] == "holdfast_jobs"]
    named = {word for _, columns, _, where in indexes for word in re.findall(r"\w+", f"{columns} {where or ''}")}
    for name in ("claim_jobs", "claim_found", "complete_jobs"):
        changed = set(re.findall(r"(?:SET|,)\s+(\w+)\s+=", getattr(q, name).text))
        assert {"came_from", "state", "updated_at"} <= changed
        assert named & (changed | {"version", "moved_by", "pos", "lease_expires_at"}) == set()


async def test_every_tenant_table_has_a_tenant_column(postgres: asyncpg.Connection) -> None:
    having = {table for table, column in await postgres_columns(postgres) if column == "tenant"}
    assert having == {
        "holdfast_jobs",
        "holdfast_lanes",
        "holdfast_queues",
        "holdfast_events",
        "holdfast_kept_attempts",
        "holdfast_parts",
        "holdfast_keys",
        "holdfast_webhooks",
        "holdfast_deliveries",
        "holdfast_kept_keys",
    }


def test_the_state_constraint_lists_the_states_of_the_lifecycle() -> None:
    """C-31. On PostgreSQL a trigger does this: `test_no_state_is_accepted_that_the_lifecycle_does_not_have`."""
    shape = as_sql("sqlite").partition("CONSTRAINT holdfast_jobs_shape")[2].partition("END)")[0]
    arms = re.findall(r"WHEN (state .*?)\s+THEN ([^W]*)", shape)
    rules = {State(word): rule for states, rule in arms for word in re.findall(r"'(\w+)'", states)}
    assert rules.keys() == set(State)
    assert {state for state, rule in rules.items() if "finished_at IS NOT NULL" in rule} == FINAL
    assert {state for state, rule in rules.items() if "lease_token IS NOT NULL" in rule} == {State.RUNNING}


def lookalikes() -> list[str]:
    return ["cancelled", "success", "deadlettered", "rejecting", "run", "retry", "queue", "bogus", "", "Canceled"]


async def test_no_state_is_accepted_that_the_lifecycle_does_not_have(db: ByHand) -> None:
    """C-31: also not one that begins like another."""
    for number, state in enumerate(lookalikes()):
        queued, running = job_id(2 * number), job_id(2 * number + 1)
        for job in (queued, running):
            await db.run(insert(job, moves=32767))
        await db.run(move(running, State.RUNNING))
        for job in (queued, running):
            for shape in State:
                moved = move(job, shape, state=f"'{state}'", epoch=f"epoch + {int(state == 'run')}")
                with pytest.raises(Refusal) as caught:
                    await db.run(moved)
                assert caught.value.code in ("HF001", "HF003", "constraint"), (state, shape)
        assert await db.run(f"SELECT state FROM holdfast_jobs WHERE id = '{queued}'") == [("queued",)]


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
    stored |= set((await postgres_views(postgres)).get(table, ()))
    assert set(columns) - READ_FROM_OTHERS <= stored


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
