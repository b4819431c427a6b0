"""Which statements a drained job runs on PostgreSQL, by pg_stat_statements, and what its WAL consists of, by
pg_walinspect; each where the server has that extension."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.databases import PostgresDatabase, PostgresHost
from benchmarks.implementations import EngineCalls
from benchmarks.operations import drain, filled

STATEMENTS = "pg_stat_statements"
WAL = "pg_walinspect"
_SHOWN = 60  # characters of a statement


async def statements(machine: PostgresHost, jobs: int) -> dict[str, Any]:
    """Of claim and complete by 100, after as many jobs to warm up."""
    async with machine.fresh() as database:
        have = {row["name"] for row in await database.rows("SELECT name FROM pg_available_extensions")}
        loaded = (await database.rows("SHOW shared_preload_libraries"))[0][0]
        await database.run(f"ALTER DATABASE {database.url.rpartition('/')[2]} SET pg_stat_statements.track = 'top'")
        await database.run(
            f"ALTER DATABASE {database.url.rpartition('/')[2]} SET pg_stat_statements.track_planning = on"
        )
        calls = await EngineCalls.open(database)
        try:
            await filled(calls, jobs=2 * jobs)
            await drain(calls, jobs=jobs, by=100)
            if STATEMENTS in loaded:
                await database.run(f"CREATE EXTENSION {STATEMENTS}; SELECT pg_stat_statements_reset()")
            begin = await _position(database)
            await drain(calls, jobs=jobs, by=100)
            end = await _position(database)
        finally:
            await calls.close()
        return {
            "statements": await _statements(database, jobs) if STATEMENTS in loaded else [],
            "wal": await _wal(database, begin, end, jobs) if WAL in have else [],
        }


async def round_trips(machine: PostgresHost, times: int) -> dict[str, float]:
    """What protocol, parsing and commit cost: the CPU time of statements that do next to nothing."""
    async with machine.fresh() as database:
        await database.run("CREATE TABLE one_row (n integer); INSERT INTO one_row VALUES (0)")
        prepared = await database.connection.prepare("SELECT 1")
        commit = await database.connection.prepare("UPDATE one_row SET n = n + 1")
        ways: dict[str, Callable[[int], Awaitable[Any]]] = {
            "SELECT 1, prepared": lambda n: prepared.fetchval(),
            "SELECT 1, parsed and planned each time": lambda n: database.run(f"SELECT {n}"),
            "one row updated and committed": lambda n: commit.fetch(),
        }
        return {name: await _cpu_micros(database, way, times) for name, way in ways.items()}


async def _cpu_micros(database: PostgresDatabase, way: Callable[[int], Awaitable[Any]], times: int) -> float:
    before = await database.spent()
    for number in range(times):
        await way(number)
    return round(1e6 * ((await database.spent()).since(before).cpu_seconds or 0.0) / times, 2)


async def _position(database: PostgresDatabase) -> str:
    return str((await database.rows("SELECT pg_current_wal_insert_lsn()::text"))[0][0])


async def _statements(database: PostgresDatabase, jobs: int) -> list[dict[str, Any]]:
    found = await database.rows(f"""
        SELECT query, calls, rows, 1000 * total_plan_time AS plan, 1000 * total_exec_time AS exec, wal_bytes::bigint
          FROM {STATEMENTS}
         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND query NOT LIKE '%{STATEMENTS}%' AND query NOT LIKE '%pg_current_wal_insert_lsn%'
           AND rows + wal_bytes > 0
         ORDER BY total_exec_time DESC LIMIT 8""")
    return [
        {
            "statement": _short(row["query"]),
            "calls": round(row["calls"] / jobs, 4),
            "plan_micros": round(row["plan"] / jobs, 2),
            "execute_micros": round(row["exec"] / jobs, 2),
            "wal_bytes": round(row["wal_bytes"] / jobs),
        }
        for row in found
    ]


def _short(query: str) -> str:
    """Its first table, and what is done to it."""
    words = re.sub(r"\s+", " ", query)
    changed = re.findall(r"\b(UPDATE|INSERT INTO|DELETE FROM) (holdfast_\w+)", words)
    if changed:
        return ", ".join(dict.fromkeys(f"{verb.split()[0].lower()} {table}" for verb, table in changed))
    return words[:_SHOWN]


async def _wal(database: PostgresDatabase, begin: str, end: str, jobs: int) -> list[dict[str, Any]]:
    await database.run(f"CREATE EXTENSION {WAL}")
    found = await database.rows(f"""
        SELECT coalesce(c.relname, lower(r.resource_manager)) AS of, r.record_type AS record,
               sum(r.record_length)::bigint AS bytes, sum(r.fpi_length)::bigint AS full_pages, count(*) AS records
          FROM pg_get_wal_records_info('{begin}', '{end}') r
          LEFT JOIN pg_class c ON c.relfilenode = substring(r.block_ref from 'rel \\d+/\\d+/(\\d+)')::oid
         GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 15""")
    return [
        {
            "of": row["of"],
            "record": row["record"],
            "records": round(row["records"] / jobs, 3),
            "bytes": round(row["bytes"] / jobs, 1),
            "full_pages": round(row["full_pages"] / jobs, 1),
        }
        for row in found
    ]
