"""Migrations: each applied once, in order, by any number of migrators, even if one is killed. F35."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from holdfast.errors import Invalid, SchemaStale, StoreUnavailable
from holdfast.store import migrate as migrating
from holdfast.store import open_store, q
from holdfast.store.error_mapping import unreachable
from holdfast.store.migrate import (
    Migration,
    as_sql,
    dialect_of,
    migrate,
    migrations,
    missing,
    require_current,
    sqlite_path,
)

NAMES = [migration.name for migration in migrations("postgres")]
ROOT = Path(__file__).parents[2]

# A migrator that dies by kill -9: on SQLite after a few statements, on PostgreSQL with all but the note written.
DIES_HALF_WAY = """
import asyncio, os, signal, sys
import asyncpg
from holdfast.store import migrate

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def a_few(script, all_of=migrate.statements):
    for number, statement in enumerate(all_of(script)):
        yield statement if number < 8 else die()

class Connection(asyncpg.Connection):
    async def execute(self, query, *args, **options):
        if query.startswith("INSERT INTO holdfast_migrations"):
            die()
        return await super().execute(query, *args, **options)

async def connect(url):
    return await asyncpg.connect(url, connection_class=Connection)

migrate.statements, migrate._connect_postgres = a_few, connect
asyncio.run(migrate.migrate(sys.argv[1]))
"""


@pytest.fixture(
    params=[pytest.param("sqlite", marks=pytest.mark.sqlite), pytest.param("postgres", marks=pytest.mark.postgres)]
)
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without any schema, on each store in turn."""
    fixture = "fresh_sqlite_url" if request.param == "sqlite" else "empty_postgres_url"
    return str(request.getfixturevalue(fixture))


async def schema_of(url: str) -> set[str]:
    """Every definition in a database, as the database spells it."""
    if dialect_of(url) == "sqlite":
        connection = sqlite3.connect(sqlite_path(url))
        rows = connection.execute(
            "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master"
        ).fetchall()
        connection.close()
        return {row[0] for row in rows}
    session = await asyncpg.connect(url)
    try:
        rows = await session.fetch(
            "SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' '"
            "       || coalesce(column_default, '')"
            "  FROM information_schema.columns WHERE table_schema = 'public'"
            " UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'"
            " UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint"
            "            WHERE connamespace = 'public'::regnamespace"
            " UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
            " UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            " UNION ALL SELECT relname || ' ' || reloptions::text FROM pg_class WHERE reloptions IS NOT NULL"
            "            AND relnamespace = 'public'::regnamespace"
        )
        return {row[0] for row in rows}
    finally:
        await session.close()


async def test_an_empty_database_is_brought_up_to_date_once(empty_url: str) -> None:
    assert [migration.name for migration in await missing(empty_url)] == NAMES
    assert await migrate(empty_url) == NAMES
    assert await missing(empty_url) == []
    assert await migrate(empty_url) == []
    await require_current(empty_url)


async def test_a_stale_schema_is_an_error_that_says_what_to_run(empty_url: str) -> None:
    with pytest.raises(SchemaStale, match=rf"lacks {NAMES[0]}.*; run `holdfast migrate`") as caught:
        await require_current(empty_url)
    assert caught.value.code == "schema_stale"


async def test_a_store_does_not_open_on_a_stale_postgres(empty_postgres_url: str) -> None:
    with pytest.raises(SchemaStale):
        await open_store(empty_postgres_url)


async def test_a_table_that_vanished_is_reported_as_a_stale_schema(store_url: str) -> None:
    store = await open_store(store_url)
    if dialect_of(store_url) == "sqlite":
        connection = sqlite3.connect(sqlite_path(store_url))
        connection.execute("DROP TABLE holdfast_parts")
        connection.close()
    else:
        session = await asyncpg.connect(store_url)
        await session.execute("DROP TABLE holdfast_parts")
        await session.close()
    try:
        with pytest.raises(SchemaStale, match="run `holdfast migrate`"):
            await store.read(lambda tx: tx.all(q.parts, ids=[]))
    finally:
        await store.close()


async def test_concurrent_migrators_apply_each_migration_once(empty_url: str) -> None:
    """The lock is held for one migration: another migrator may apply the next one."""
    answers = await asyncio.gather(*(migrate(empty_url) for _ in range(5)))
    assert sorted(name for applied in answers for name in applied) == NAMES
    assert await missing(empty_url) == []


async def test_a_migrator_killed_half_way_leaves_nothing_and_the_next_one_finishes(empty_url: str) -> None:
    child = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES_HALF_WAY, empty_url], cwd=ROOT, capture_output=True, check=False
    )
    assert child.returncode == -9, child.stderr.decode()
    assert not [line for line in await schema_of(empty_url) if "jobs" in line]
    assert await migrate(empty_url) == NAMES
    await require_current(empty_url)


async def test_a_failed_migration_is_rolled_back_and_can_be_retried(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = migrations(dialect_of(empty_url))
    broken = Migration(9001, "9001_broken", "CREATE TABLE half (a integer);\nCREATE TABLE holdfast_jobs (a integer);")
    mended = Migration(9001, "9001_mended", "CREATE TABLE half (a integer);")
    monkeypatch.setattr(migrating, "migrations", lambda _dialect, _=(): [*real, broken])
    with pytest.raises(StoreUnavailable, match="9001_broken"):
        await migrate(empty_url)
    assert [migration.name for migration in await missing(empty_url)] == ["9001_broken"]
    assert not [line for line in await schema_of(empty_url) if "half" in line]

    monkeypatch.setattr(migrating, "migrations", lambda _dialect, _=(): [*real, mended])
    assert await migrate(empty_url) == ["9001_mended"]


@pytest.mark.sqlite
async def test_the_printed_sql_makes_the_same_sqlite_database(tmp_path: Path) -> None:
    """`migrate --sql`."""
    migrated, by_hand = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    await migrate(migrated)
    connection = sqlite3.connect(sqlite_path(by_hand))
    connection.executescript(as_sql("sqlite"))
    connection.close()
    assert await schema_of(by_hand) == await schema_of(migrated)
    await require_current(by_hand)


async def test_the_printed_sql_makes_the_same_postgres_database(
    empty_postgres_url: str, fresh_postgres_url: str
) -> None:
    """`migrate --sql`."""
    session = await asyncpg.connect(empty_postgres_url)
    await session.execute(as_sql("postgres"))
    await session.close()
    assert await schema_of(empty_postgres_url) == await schema_of(fresh_postgres_url)
    await require_current(empty_postgres_url)


def test_both_dialects_have_the_same_migrations() -> None:
    assert [(m.number, m.name) for m in migrations("sqlite")] == [(m.number, m.name) for m in migrations("postgres")]
    assert [migration.number for migration in migrations("postgres")] == list(range(1, len(NAMES) + 1))


@pytest.mark.parametrize("url", ["mysql://localhost/jobs", "jobs.db", "", "sqlite://jobs.db", "sqlite:///"])
async def test_a_database_url_of_an_unsupported_kind_is_a_typed_error(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        await open_store(url)
    assert caught.value.code == "invalid_database_url"


async def test_an_unreachable_server_is_a_typed_error() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect to PostgreSQL"):
        await open_store("postgresql://postgres@127.0.0.1:1/jobs")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://app:s3cret@db.example:6432/jobs", " at db.example:6432"),
        ("postgresql://app:s3cret@one,two:5433/jobs", " at one,two:5433"),
        ("postgresql:///jobs?host=db.example&port=6432&password=s3cret@x", ""),
        ("postgresql:///jobs?host=db.example&port=6432&password=s3cret", " at db.example:6432"),
        ("postgresql:///jobs", ""),
        ("postgresql://app:s3cret?x@db.example/jobs", ""),
    ],
)
def test_the_error_for_an_unreachable_server_contains_no_password(url: str, place: str) -> None:
    said = unreachable(url, TimeoutError()).full
    assert said.startswith(f"cannot connect to PostgreSQL{place}: it did not answer in time; ")
    assert "s3cret" not in said


@pytest.mark.sqlite
async def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear database, " * 100)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        await open_store(f"sqlite:///{tmp_path}/letter.txt")


def test_a_world_writable_directory_is_refused(tmp_path: Path) -> None:
    """SEC-47; with the sticky bit, as in /tmp, users cannot replace each other's files."""
    tmp_path.chmod(0o777)
    with pytest.raises(Invalid, match="is world-writable") as refused:
        asyncio.run(migrate(f"sqlite:///{tmp_path}/jobs.db"))
    assert refused.value.code == "insecure_directory"
    tmp_path.chmod(0o1777)
    assert asyncio.run(migrate(f"sqlite:///{tmp_path}/jobs.db"))
