"""Every query of a bundled extension is prepared on both databases: the same parameters, the same columns."""

import sqlite3
from contextlib import closing

import asyncpg
import pytest

from holdfast.extend import Extension
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.render import POSTGRES, SQLITE, render
from holdfast.workloads.generation import ext as generation
from holdfast.workloads.images import ext as images
from tests.store.test_every_query import columns_on_sqlite, parameters

EXTENSIONS = [images, generation]
OF_WHOLE_TABLES = {"without_account"}  # for `holdfast credits check`, which reads all


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.name)
async def test_every_query_is_the_same_on_both_databases(
    extension: Extension, fresh_sqlite_url: str, fresh_postgres_url: str
) -> None:
    for url in (fresh_sqlite_url, fresh_postgres_url):
        await migrate(url, [extension])
    path = sqlite_path(fresh_sqlite_url)
    sqlite, postgres = sqlite3.connect(path, isolation_level=None), await asyncpg.connect(fresh_postgres_url)
    try:
        for query in extension.q.all():
            prepared = await postgres.prepare(render(query, POSTGRES, 1).text)
            assert parameters(query, POSTGRES) == parameters(query, SQLITE), query.name
            if on_postgres := [attribute.name for attribute in prepared.get_attributes()]:
                assert columns_on_sqlite(sqlite, query) == on_postgres, query.name
    finally:
        await postgres.close()
        sqlite.close()


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.name)
async def test_no_query_reads_a_whole_table(extension: Extension, fresh_sqlite_url: str) -> None:
    """As SQLite plans it, which has no statistics here: an index for each condition."""
    await migrate(fresh_sqlite_url, [extension])
    with closing(sqlite3.connect(sqlite_path(fresh_sqlite_url))) as db:
        for query in extension.q.all():
            statement = render(query, SQLITE, 1)
            plan = db.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params))
            steps = [row[3] for row in plan]
            scans = [step for step in steps if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
            expected = query.name in OF_WHOLE_TABLES
            assert [scan for scan in scans if "json_each" not in scan and not expected] == [], query.name


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.name)
def test_both_databases_have_the_same_tables(extension: Extension) -> None:
    names = [[migration.name for migration in extension.migrations(dialect)] for dialect in ("postgres", "sqlite")]
    assert names[0] == names[1]
