"""Where a lease lives: on the wide row of its job, or in a narrow table of its own.

    python -m benchmarks.leases [--store sqlite] [--quick]

Claim and complete by 100, and the heartbeat of 1,000 leases, with small payloads and with large incompressible ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from benchmarks.databases import Database, Host, PostgresDatabase, host
from benchmarks.implementations import LEASE_SECONDS, Implementation, RawPostgres, RawSqlite, raw_side
from benchmarks.measurement import Candidate, measure_in_turns
from benchmarks.operations import beat, drain, filled, holding
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, shown, write_results

LEASES = 1000
PAYLOADS = {"200 B": 200, "8 kB": 8192}

_NARROW = "job_id {id} PRIMARY KEY, worker {id} NOT NULL, token {id} NOT NULL, expires_at {time} NOT NULL"
_EXPIRY_INDEX = "CREATE INDEX raw_jobs_expiry ON raw_jobs (lease_expires_at) WHERE state = 'running'"


class NarrowPostgres(RawPostgres):
    """Claim and complete write two tables in one statement; a heartbeat writes only the narrow one."""

    async def prepare(self) -> None:
        await super().prepare()
        self.tables = (*self.tables, "leases")
        columns = _NARROW.format(id="uuid", time="timestamptz")
        await self.database.run(f"CREATE TABLE leases ({columns}) WITH (fillfactor = 50)")
        self._sql_complete = """
            WITH ended AS (DELETE FROM leases WHERE job_id = ANY($1::uuid[]) RETURNING job_id)
            UPDATE raw_jobs SET state = 'succeeded', finished_at = now() WHERE id IN (SELECT job_id FROM ended)"""
        self._sql_heartbeat = f"""
            UPDATE leases SET expires_at = now() + {LEASE_SECONDS} * interval '1 second'
             WHERE job_id = ANY($1::uuid[])"""

    def _claim_sql(self, limit: int) -> str:
        return f"""
            WITH taken AS (
                UPDATE raw_jobs
                   SET state = 'running', due = NULL, epoch = epoch + 1, attempt = attempt + 1, claimed_at = now()
                 WHERE id IN (SELECT id FROM raw_jobs WHERE {self.ready} AND run_at <= now()
                               ORDER BY priority DESC, id LIMIT {limit} FOR UPDATE SKIP LOCKED)
             RETURNING id, type, queue, attempt, max_attempts, payload, checkpoint),
            leased AS (
                INSERT INTO leases
                SELECT id, $1, gen_random_uuid(), now() + {LEASE_SECONDS} * interval '1 second' FROM taken
             RETURNING job_id, token, expires_at)
            SELECT taken.*, leased.token, leased.expires_at FROM taken JOIN leased ON leased.job_id = taken.id"""


class NarrowSqlite(RawSqlite):
    async def prepare(self) -> None:
        await super().prepare()
        self.tables = (*self.tables, "leases")
        await self.database.run(
            f"CREATE TABLE leases ({_NARROW.format(id='text', time='integer')}) STRICT, WITHOUT ROWID"
        )
        self._sql_complete = """
            UPDATE raw_jobs SET state = 'succeeded', finished_at = ?1 WHERE id IN (SELECT value FROM json_each(?2))"""
        self._sql_heartbeat = f"""
            UPDATE leases SET expires_at = ?1 + {LEASE_SECONDS}000000
             WHERE job_id IN (SELECT value FROM json_each(?2))"""

    def _claim_sql(self, limit: int) -> str:
        return f"""
            UPDATE raw_jobs
               SET state = 'running', due = NULL, epoch = epoch + 1, attempt = attempt + 1, claimed_at = ?2
             WHERE id IN (SELECT id FROM raw_jobs WHERE {self.ready} AND run_at <= ?2
                           ORDER BY priority DESC, id LIMIT {limit})
         RETURNING id, type, queue, attempt, max_attempts, payload, checkpoint, ?1"""

    async def claim(self, limit: int) -> list[Any]:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            jobs = await super().claim(limit)
            until = self._now() + LEASE_SECONDS * 1_000_000
            leases = [(job[0], self._worker, self._ids.token(), until) for job in jobs]
            self._connection.executemany("INSERT INTO leases VALUES (?, ?, ?, ?)", leases)
        return [(*job, *lease[2:]) for job, lease in zip(jobs, leases, strict=True)]

    async def complete(self, leases: list[Any]) -> None:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            ids = json.dumps([lease[0] for lease in leases])
            self._connection.execute("DELETE FROM leases WHERE job_id IN (SELECT value FROM json_each(?))", (ids,))
            await super().complete(leases)


async def on_the_row(database: Database, payload: str, *, indexed: bool = False) -> Implementation:
    side = raw_side(database, payload=payload)
    await side.prepare()
    if indexed:
        await database.run(_EXPIRY_INDEX)
    return await _with_room(side)


async def in_a_table(database: Database, payload: str) -> Implementation:
    side: NarrowPostgres | NarrowSqlite = (
        NarrowPostgres(database, payload=payload)
        if isinstance(database, PostgresDatabase)
        else NarrowSqlite(database, payload=payload)
    )
    await side.prepare()
    return await _with_room(side)


async def _with_room(side: RawPostgres | RawSqlite) -> Implementation:
    """As the real table has it, so that a new version of a row may stay on its page."""
    if isinstance(side, RawPostgres):
        await side.database.run("ALTER TABLE raw_jobs SET (fillfactor = 90)")
    return side


WAYS: dict[str, Callable[[Database, str], Awaitable[Implementation]]] = {
    "on the job row": on_the_row,
    "on the job row, expiry indexed": partial(on_the_row, indexed=True),
    "in a narrow table": in_a_table,
}


async def compare(store: str, machine: Host, *, rounds: int, slices: int, jobs: int) -> list[dict[str, Any]]:
    found = []
    rows = []
    for size, length in PAYLOADS.items():
        payload = json.dumps({"data": random.Random(length).randbytes(length // 2).hex()[: length - 12]})
        async with AsyncExitStack() as stack:
            sides = {
                name: await make(await stack.enter_async_context(machine.fresh()), payload)
                for name, make in WAYS.items()
            }
            for task, prepare, run in (
                ("claim+complete by 100", partial(filled, jobs=jobs * slices), partial(drain, jobs=jobs, by=100)),
                ("heartbeat of 1,000", partial(holding, jobs=LEASES), beat),
            ):
                candidates = [
                    Candidate(name, side.database, partial(prepare, side), partial(run, side))
                    for name, side in sides.items()
                ]
                scores = await measure_in_turns(f"{store}, {size}, {task}", candidates, rounds=rounds, slices=slices)
                found.append({"task": task, "payload": size, "ways": rounds_of(scores)})
                for name, score in scores.items():
                    used = [shown(score.cpu_micros, ".1f"), shown(score.wal_bytes, ",.0f")]
                    rows.append([f"{task}, {size}: {name}", f"{score.rate:,.0f}", f"{score.micros:.1f}", *used])
    print_table(await machine.version(), ["", "per second", "us each", "CPU us", "WAL bytes"], rows)
    return found


async def measure(options: argparse.Namespace) -> None:
    stores = {}
    for store in chosen_stores(options):
        with host(store) as machine:
            sizes = (
                {"rounds": 1, "slices": 1, "jobs": 100} if options.quick else {"rounds": 7, "slices": 10, "jobs": 500}
            )
            stores[store] = await compare(store, machine, **sizes)
    write_results(options.results, "leases", quick=options.quick, stores=stores)


def main(words: list[str] | None = None) -> None:
    asyncio.run(measure(arguments(__doc__.partition("\n")[0] if __doc__ else None).parse_args(words)))


if __name__ == "__main__":
    main()
