"""A bare loop over one narrow table, as the floor under every peer: 100 jobs in a statement, no history, no leases."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
from common import URL, Calls, noop

BATCH = 100
POLL_SECONDS = 0.01
TABLE = "CREATE TABLE raw_jobs (id {id} PRIMARY KEY, data text NOT NULL, state smallint NOT NULL DEFAULT 0)"
INDEX = "CREATE INDEX raw_jobs_ready ON raw_jobs (id) WHERE state = 0"
READY = f"SELECT id FROM raw_jobs WHERE state = 0 ORDER BY id LIMIT {BATCH}"
CLAIM = "UPDATE raw_jobs SET state = 1 WHERE id IN ({ready}) RETURNING id, data"


async def prepare() -> None:
    if URL.startswith("sqlite"):
        with closing(_file()) as connection:
            connection.execute(TABLE.format(id="integer"))
            connection.execute(INDEX)
    else:
        connection = await asyncpg.connect(URL)
        await connection.execute(TABLE.format(id="bigint GENERATED ALWAYS AS IDENTITY"))
        await connection.execute(INDEX)
        await connection.close()


async def work() -> None:
    if URL.startswith("sqlite"):
        await _work_in_file()
        return
    connection = await asyncpg.connect(URL)
    claim = await connection.prepare(CLAIM.format(ready=f"{READY} FOR UPDATE SKIP LOCKED"))
    complete = await connection.prepare("UPDATE raw_jobs SET state = 2 WHERE id = ANY($1::bigint[])")
    while True:
        if jobs := await claim.fetch():
            await complete.fetch(_run(jobs))
        else:
            await asyncio.sleep(POLL_SECONDS)


async def _work_in_file() -> None:
    connection = _file()
    while True:
        if jobs := connection.execute(CLAIM.format(ready=READY)).fetchall():
            ids = ", ".join(map(str, _run(jobs)))
            connection.execute(f"UPDATE raw_jobs SET state = 2 WHERE id IN ({ids})")
        else:
            await asyncio.sleep(POLL_SECONDS)


def _run(jobs: list[Any]) -> list[int]:
    for _, data in jobs:
        noop(data)
    return [job[0] for job in jobs]


def _file() -> sqlite3.Connection:
    connection = sqlite3.connect(URL.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


@asynccontextmanager
async def opened(callers: int) -> AsyncIterator[Calls]:
    if URL.startswith("sqlite"):
        with closing(_file()) as file:
            yield Calls(lambda data: file.execute("INSERT INTO raw_jobs (data) VALUES (?)", (data,)), _bulk_of(file))
        return
    connection = await asyncpg.connect(URL)
    one = await connection.prepare("INSERT INTO raw_jobs (data) VALUES ($1)")
    bulk = await connection.prepare("INSERT INTO raw_jobs (data) SELECT unnest($1::text[])")
    yield Calls(one.fetch, bulk.fetch)
    await connection.close()


def _bulk_of(file: sqlite3.Connection) -> Callable[[list[str]], None]:
    def bulk(data: list[str]) -> None:
        with file:
            file.execute("BEGIN IMMEDIATE")
            file.executemany("INSERT INTO raw_jobs (data) VALUES (?)", [(each,) for each in data])

    return bulk
