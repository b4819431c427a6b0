"""The recipes of the operations pages run and have the documented effect."""

import ast
import inspect
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.assembly.engine import open_engine
from holdfast.clock import MovableClock
from holdfast.engine import Engine, Progress, Retention
from holdfast.engine.reads import why
from holdfast.errors import LeaseLost
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob
from holdfast.settings import Settings
from holdfast.store.migrate import as_sql, missing
from tests.docs.pages import PAGES, blocks, first_cells

PAGE = "docs/operate/maintenance.md"
WHY = "docs/operate/troubleshooting.md"
MONTH = 31 * 86_400
TABLES = ["holdfast_events", "holdfast_kept_attempts"]
PARTITION, EACH_MONTH, HOT_UPDATES = blocks(PAGE, "sql")


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def january(fresh_postgres_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    """An engine on PostgreSQL on the first of January 2026."""
    engine = await open_engine(Settings(database_url=fresh_postgres_url), clock=clock)
    yield engine
    await engine.close()


async def start(engine: Engine, worker: str) -> Lease:
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim(worker)
    return lease


async def finish(engine: Engine, worker: str) -> Lease:
    lease = await start(engine, worker)
    await engine.complete(worker, lease.id, lease.token)
    return lease


async def partitions(connection: Any, table: str, job_id: str) -> list[str]:
    """The partitions that hold the history of a job."""
    rows = await connection.fetch(f"SELECT DISTINCT tableoid::regclass::text FROM {table} WHERE job_id = $1", job_id)
    return sorted(row[0] for row in rows)


async def test_every_verb_works_on_partitioned_history(january: Engine, connection: Any, clock: MovableClock) -> None:
    """Issue 2: events and attempts can be partitioned by time, beside a running engine and without copying them."""
    worker = (await january.workers.register()).id
    lease = await start(january, worker)
    await connection.execute(PARTITION.text)
    clock.advance(MONTH)

    await january.progress(worker, Progress(id=lease.id, token=lease.token, percent=50))
    await january.fail(worker, lease.id, lease.token, "E_TEMPORARY", retry_after_seconds=0)
    await january.claim(worker)
    clock.advance(31)
    assert [row["id"] for row in await january.maintenance.reap()] == [lease.id]
    clock.advance(2)  # the backoff
    [again] = await january.claim(worker)
    await january.release(worker, again.id, again.token)
    [last] = await january.claim(worker)
    await january.complete(worker, last.id, last.token)
    assert (await january.complete(worker, last.id, last.token)).state is State.SUCCEEDED, "a repeat finds its attempt"

    history = await january.reads.history(lease.id)
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    assert [attempt.outcome for attempt in await january.reads.attempts(lease.id)] == [
        *("failed", "lost", "released", "succeeded")
    ]
    assert await partitions(connection, "holdfast_events", lease.id) == [
        "holdfast_events_2026_02",
        "holdfast_events_before_2026_02",
    ]
    clock.advance(60)
    assert await january.maintenance.prune(Retention(succeeded=1)) == 1
    assert [attempt.outcome for attempt in await january.reads.attempts(lease.id)] == [
        *("failed", "lost", "released", "succeeded")
    ]
    assert await partitions(connection, "holdfast_events", lease.id) == []
    assert await partitions(connection, "holdfast_kept_attempts", lease.id) == ["holdfast_kept_attempts_2026_02"]


DEFINITIONS = """
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::text::regclass AND NOT indisprimary
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::text::regclass AND NOT tgisinternal
UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = $1::text::regclass AND contype = 'c'
"""


async def definitions(connection: Any, table: str) -> list[str]:
    """The indexes, triggers and checks of a table, without its primary key."""
    return sorted(row[0].replace(" ON ONLY ", " ON ") for row in await connection.fetch(DEFINITIONS, table))


@pytest.mark.parametrize("table", TABLES)
async def test_a_partitioned_table_keeps_its_indexes_triggers_and_checks(
    january: Engine, connection: Any, table: str
) -> None:
    before = await definitions(connection, table)
    await connection.execute(PARTITION.text)
    assert before
    assert await definitions(connection, table) == before


OPTIONS = """
SELECT relname, reloptions FROM pg_class WHERE oid = $1::text::regclass AND relkind = 'r'
UNION ALL SELECT relname, reloptions FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = $1::text::regclass
"""


@pytest.mark.parametrize("table", TABLES)
async def test_every_partition_keeps_the_storage_parameters(january: Engine, connection: Any, table: str) -> None:
    [(_, wanted)] = await connection.fetch(OPTIONS, table)
    await connection.execute(PARTITION.text)
    await connection.execute(EACH_MONTH.text)
    assert wanted
    parts = await connection.fetch(OPTIONS, table)
    assert [(name, options) for name, options in parts if options != wanted] == []
    assert len(parts) == 4


VIEWED = "SELECT count(*) FROM pg_depend JOIN pg_rewrite ON objid = pg_rewrite.oid WHERE refobjid = $1::text::regclass"


async def test_the_view_reads_the_partitioned_tables(january: Engine, connection: Any) -> None:
    before = await connection.fetchval("SELECT pg_get_viewdef('holdfast_attempts')")
    await connection.execute(PARTITION.text)
    assert await connection.fetchval("SELECT pg_get_viewdef('holdfast_attempts')") == before
    for table in TABLES:
        assert await connection.fetchval(VIEWED, table) > 0
        assert await connection.fetchval(VIEWED, f"{table}_before_2026_02") == 0


async def test_partitioned_history_is_still_append_only(january: Engine, connection: Any, clock: MovableClock) -> None:
    worker = (await january.workers.register()).id
    before = await finish(january, worker)
    await connection.execute(PARTITION.text)
    clock.advance(MONTH)
    after = await finish(january, worker)
    await assert_append_only(connection, "holdfast_events", [before.id, after.id])
    clock.advance(60)
    assert await january.maintenance.prune(Retention(succeeded=1)) == 2
    await assert_append_only(connection, "holdfast_kept_attempts", [before.id, after.id])


async def assert_append_only(connection: Any, table: str, jobs: list[str]) -> None:
    for job_id in jobs:
        with pytest.raises(asyncpg.PostgresError, match="append-only") as refused:
            await connection.execute(f"UPDATE {table} SET tenant = 'other' WHERE job_id = $1", job_id)
        assert refused.value.sqlstate == "HF002"


async def test_the_oldest_partition_can_be_dropped(january: Engine, connection: Any, clock: MovableClock) -> None:
    worker = (await january.workers.register()).id
    old = await finish(january, worker)
    await connection.execute(PARTITION.text)
    clock.advance(MONTH)
    new = await finish(january, worker)
    await connection.execute(EACH_MONTH.text)

    assert (await january.reads.history(old.id), await january.reads.attempts(old.id)) == ([], [])
    assert len(await january.reads.history(new.id)) == 3
    assert len(await january.reads.attempts(new.id)) == 1
    with pytest.raises(LeaseLost):  # the page warns of it
        await january.complete(worker, old.id, old.token)
    assert await january.maintenance.prune(Retention(succeeded=1)) == 1, "retention deletes the job itself"


async def test_rows_go_to_the_default_partition_when_the_next_month_has_none(
    january: Engine, connection: Any, clock: MovableClock
) -> None:
    worker = (await january.workers.register()).id
    await connection.execute(PARTITION.text)
    clock.advance(6 * MONTH)
    late = await finish(january, worker)
    assert await partitions(connection, "holdfast_events", late.id) == ["holdfast_events_later"]
    clock.advance(60)
    assert await january.maintenance.prune(Retention(succeeded=1)) == 1
    assert await partitions(connection, "holdfast_kept_attempts", late.id) == ["holdfast_kept_attempts_later"]


async def test_the_share_of_hot_updates_is_reported(january: Engine, connection: Any) -> None:
    rows = await connection.fetch(HOT_UPDATES.text)
    assert {row["relname"] for row in rows} == {"holdfast_jobs", "holdfast_ready", "holdfast_claim_batches"}


async def test_the_printed_sql_makes_the_schema_on_postgresql(fresh_postgres_url: str, connection: Any) -> None:
    await connection.execute("CREATE SCHEMA by_hand")
    url = f"{fresh_postgres_url}?options=-csearch_path%3Dby_hand"
    assert await missing(url)
    by_hand = await asyncpg.connect(url)
    await by_hand.execute(as_sql("postgres"))
    await by_hand.close()
    assert await missing(url) == []


async def test_the_printed_sql_makes_the_schema_on_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as by_hand:
        by_hand.executescript(as_sql("sqlite"))
    assert await missing(f"sqlite:///{tmp_path}/jobs.db") == []


def test_every_clause_of_why_is_explained() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(why))) if isinstance(node, ast.Call)]
    clauses = {
        node.args[0].value
        for node in calls
        if isinstance(node.func, ast.Name) and node.func.id == "Clause" and isinstance(node.args[0], ast.Constant)
    }
    assert clauses
    assert sorted(first_cells(PAGES[WHY])) == sorted(map(str, clauses))
