"""The parts of a job's cost in the database, each measured by taking it away.

What can be taken away is found in the catalog and in the rendered SQL, so that the list follows the schema. A part
without which jobs no longer drain is not taken away: its cost stays in the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from benchmarks.databases import Database, Host, PostgresDatabase
from benchmarks.implementations import EngineCalls
from benchmarks.operations import drain, fill
from holdfast.store import postgres, sqlite
from holdfast.store.queries import Query
from holdfast.store.render import Statement, history_afterwards, render

PROBE_JOBS = 600  # enough that an index that is written has more than one page of rows
_INSERT = re.compile(r"(INSERT INTO (\w+) \([^()]*\)\s+SELECT (?:(?!INSERT INTO|FROM ).)*FROM \w+ WHERE )", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """`sql` changes a scratch database; `not_inserted` are tables into which the statements insert no rows. What is
    `within` another part is a share of that one."""

    name: str
    sql: tuple[str, ...] = ()
    not_inserted: frozenset[str] = frozenset()
    within: bool = False


@dataclass
class Side:
    """A database without one part."""

    part: Part
    calls: EngineCalls

    @contextmanager
    def active(self) -> Iterator[EngineCalls]:
        with _rendering_without(self.part.not_inserted):
            yield self.calls


@contextmanager
def _rendering_without(tables: frozenset[str]) -> Iterator[None]:
    """The statements keep their form and their parameters; the inserts into these tables select no row."""
    if not tables:
        yield
        return
    with (
        patch.object(postgres, "render", lambda *given: _rendered(tables, *given)),
        patch.object(sqlite, "history_afterwards", lambda query, *, one: _afterwards(tables, query, one=one)),
    ):
        yield


@lru_cache(maxsize=1024)
def _rendered(tables: frozenset[str], query: Query, dialect: str, *more: Any) -> Statement:
    statement = render(query, dialect, *more)
    return replace(statement, text=without_rows(statement.text, tables))


def _afterwards(tables: frozenset[str], query: Query, *, one: bool) -> tuple[str, ...]:
    history = history_afterwards(query, one=one)
    return tuple(text for text in history if not any(f"INSERT INTO {table} " in text for table in tables))


def without_rows(text: str, tables: frozenset[str]) -> str:
    return _INSERT.sub(lambda found: found[1] + ("FALSE AND " if found[2] in tables else ""), text)


# -- what can be taken away ----------------------------------------------------------------------------------------


async def parts_of(machine: Host) -> list[Part]:
    """Of this store's schema, largest first as far as one can know: rows of history, indexes, triggers, checks."""
    async with machine.fresh() as database:
        calls = await EngineCalls.open(database)
        try:
            await _drained(calls)
        finally:
            await calls.close()
        if isinstance(database, PostgresDatabase):
            return await _postgres_parts(database)
        return await _sqlite_parts(database)


async def _postgres_parts(database: PostgresDatabase) -> list[Part]:
    await _until_alone(database)
    tables = [row["relname"] for row in await database.rows(_INSERTED)]
    indexes = [(row["name"], row["relname"]) for row in await database.rows(_WRITTEN_INDEXES)]
    triggers = [row["relname"] for row in await database.rows(_TRIGGERED)]
    checks = [(row["relname"], row["conname"]) for row in await database.rows(_CHECKED)]
    parts = []
    for table in (*tables, *sorted({table for _, table in indexes} - {*tables})):
        parts += [Part(f"rows of {table}", not_inserted=frozenset({table}))] if table in tables else []
        parts += [_index(index, within=table in tables) for index, its in indexes if its == table]
    return [
        *parts,
        Part("triggers", tuple(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in triggers)),
        Part("checks", tuple(f"ALTER TABLE {table} DROP CONSTRAINT {check}" for table, check in checks)),
        Part("waiting for the disk", ("ALTER DATABASE {database} SET synchronous_commit = off",)),
    ]


async def _until_alone(database: PostgresDatabase) -> None:
    """A session reports its counts when it ends."""
    for _ in range(200):
        if len(await database.rows(_SESSIONS)) == 1:
            return
        await asyncio.sleep(0.05)


def _index(name: str, *, within: bool) -> Part:
    return Part(f"index {name}", (f"DROP INDEX {name}",), within=within)


_SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
_INSERTED = """
SELECT relname FROM pg_stat_user_tables WHERE n_tup_ins > 0 AND relname <> 'holdfast_jobs' AND EXISTS (
    SELECT 1 FROM pg_attribute WHERE attrelid = relid AND attname = 'job_id') ORDER BY n_tup_ins DESC"""
# Neither unique, nor read by the drain, and more than a few rows.
_WRITTEN_INDEXES = """
SELECT s.indexrelname AS name, s.relname FROM pg_stat_user_indexes s JOIN pg_index i USING (indexrelid)
WHERE NOT i.indisunique AND s.idx_scan = 0 AND pg_relation_size(s.indexrelid) > 16384 ORDER BY 1"""
_TRIGGERED = """
SELECT DISTINCT relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal ORDER BY 1"""
_CHECKED = """
SELECT relname, conname FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid
WHERE contype = 'c' AND relname LIKE 'holdfast\\_%' ORDER BY 1, 2"""


async def _sqlite_parts(database: Database) -> list[Part]:
    tables = [
        table
        for table in await database.tables()
        if table not in ("holdfast_jobs", "holdfast_readers")
        and "job_id" in await database.columns(table)
        and (await database.rows(f"SELECT EXISTS (SELECT 1 FROM {table})"))[0][0]
    ]
    triggers = await database.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    return [
        *(Part(f"rows of {table}", not_inserted=frozenset({table})) for table in tables),
        Part("triggers", tuple(f"DROP TRIGGER {name}" for (name,) in triggers)),
    ]


# -- databases without a part --------------------------------------------------------------------------------------


@asynccontextmanager
async def sides(machine: Host, parts: list[Part]) -> AsyncIterator[tuple[list[Side], dict[str, str]]]:
    """A database for each part that can be taken away, and why the others cannot."""
    async with AsyncExitStack() as stack:
        found: list[Side] = []
        refused: dict[str, str] = {}
        for part in parts:
            try:
                found.append(await _side(machine, part, stack))
            except Exception as error:
                refused[part.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        yield found, refused


async def _side(machine: Host, part: Part, stack: AsyncExitStack) -> Side:
    database: Database = await stack.enter_async_context(machine.fresh())
    name = database.url.rpartition("/")[2]
    for sql in part.sql:
        await database.run(sql.format(database=name))
    calls = await EngineCalls.open(database)
    stack.push_async_callback(calls.close)
    side = Side(part, calls)
    with side.active():
        await _drained(calls)
    for table in part.not_inserted:
        if (await database.rows(f"SELECT EXISTS (SELECT 1 FROM {table})"))[0][0]:
            raise RuntimeError("no statement of its own inserts these rows")
    return side


async def _drained(calls: EngineCalls) -> None:
    """Twice, so that every statement is prepared; raises if jobs do not drain as they should."""
    for _ in range(2):
        await calls.database.clear(*calls.tables)
        await fill(calls, jobs=PROBE_JOBS)
        await drain(calls, jobs=PROBE_JOBS, by=100)
        if await calls.claim(1):
            raise RuntimeError("jobs are left that were completed")
