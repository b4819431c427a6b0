"""The two implementations in every comparison, with the same verbs: the engine, and minimal hand-written SQL."""

from __future__ import annotations

import json
from typing import Any, Protocol

from benchmarks.databases import Database, PostgresDatabase, SqliteDatabase, cleared_tables
from holdfast.clock import Clock, to_micros
from holdfast.engine import Complete, Engine, HeldLease
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import open_store

TYPE = "bench"
PAYLOAD = {"to": "customer@example.com", "subject": "About a hundred bytes, as small jobs have", "template": 42}
LEASE_SECONDS = 30
REAP_BATCH = 1000


class Implementation(Protocol):
    @property
    def database(self) -> Database: ...

    tables: tuple[str, ...]  # the first holds the jobs
    held: list[Any]  # leases that a round begins with

    async def create(self, count: int, *, priority: int = 0) -> None: ...

    async def claim(self, limit: int) -> list[Any]: ...

    async def complete(self, leases: list[Any]) -> None: ...

    async def heartbeat(self, leases: list[Any]) -> None: ...

    async def reap(self) -> int: ...


class EngineCalls:
    """The engine as an embedding program calls it."""

    def __init__(self, database: Database, engine: Engine, worker: str, tables: tuple[str, ...]) -> None:
        self.database = database
        self.engine = engine
        self.worker = worker
        self.tables = tables
        self.held: list[Any] = []

    @classmethod
    async def open(cls, database: Database) -> EngineCalls:
        engine = Engine(await open_store(database.url))
        return await cls.over(database, engine)

    @classmethod
    async def over(
        cls, database: Database, engine: Engine, *more_tables: str, worker: str | None = None
    ) -> EngineCalls:
        """With an engine that is open, and a worker of its own if none is given."""
        worker = worker or (await engine.workers.register(name="bench")).id
        return cls(database, engine, worker, (*await cleared_tables(database), *more_tables))

    async def close(self) -> None:
        await self.engine.close()

    async def create(self, count: int, *, priority: int = 0) -> None:
        if count == 1:
            await self.engine.create(NewJob(type=TYPE, payload=PAYLOAD, priority=priority))
        else:
            await self.engine.create_many([NewJob(type=TYPE, payload=PAYLOAD, priority=priority) for _ in range(count)])

    async def claim(self, limit: int) -> list[Any]:
        return await self.engine.claim(self.worker, limit=limit, types=[TYPE])

    async def complete(self, leases: list[Any]) -> None:
        await self.engine.complete_many(self.worker, [Complete(lease.id, lease.token) for lease in leases])

    async def heartbeat(self, leases: list[Any]) -> None:
        beat = await self.engine.heartbeat(self.worker, [HeldLease(lease.id, lease.token) for lease in leases])
        assert not beat.lost

    async def reap(self) -> int:
        return len(await self.engine.maintenance.reap())


# The columns that a plain job fills, besides the times and `due`, which the statements set.
_FILLED = {
    "id": "uuid",
    "tenant": "text",
    "type": "text",
    "queue": "text",
    "lane": "integer",
    "lifecycle": "text",
    "policy": "integer",
    "moves": "integer",
    "state": "text",
    "priority": "smallint",
    "version": "integer",
    "max_attempts": "integer",
    "lease_seconds": "float8",
    "late_writes": "boolean",
    "payload": "text",
}
_NEEDED = "id, lease_token, type, queue, attempt, max_attempts, lease_expires_at, payload, checkpoint"


def raw_side(database: Database, **options: Any) -> RawPostgres | RawSqlite:
    return (
        RawPostgres(database, **options) if isinstance(database, PostgresDatabase) else RawSqlite(database, **options)
    )


class Raw:
    """A loop over the same job row: no constraints, triggers, events, attempts or answers to questions.

    `table` other than `raw_jobs` is one that exists, `ready` its rows to claim, `also` an assignment in every move.
    """

    def __init__(
        self,
        *,
        table: str = "raw_jobs",
        ready: str = "state = 'queued'",
        also: str = "",
        lifecycle: str = "default",
        moves: int = 0,
        payload: str | None = None,
    ) -> None:
        self.table = table
        self.tables: tuple[str, ...] = (table,)
        self.held: list[Any] = []
        self.ready = ready
        self.also = f", {also}" if also else ""
        self._fixed = ("default", TYPE, "default", 1, lifecycle, 1, moves, "queued")
        self._payload = payload
        self._ids = Ids()
        self._clock = Clock()

    def _rows(self, count: int, priority: int) -> list[tuple[Any, ...]]:
        now = self._clock.now()
        return [
            (
                self._ids.job_ids(now, 1)[0],
                *(*self._fixed, priority, 1, 5, float(LEASE_SECONDS), True),
                self._payload or json.dumps(PAYLOAD),
            )
            for _ in range(count)
        ]


class RawPostgres(Raw):
    def __init__(self, database: PostgresDatabase, **options: Any) -> None:
        super().__init__(**options)
        self.database = database
        self._connection = database.connection
        self._worker = self._ids.token()
        self._sql_create = (
            f"INSERT INTO {self.table} ({', '.join(_FILLED)}, due, run_at, created_at, updated_at)"
            f" SELECT fresh.*, TRUE, now(), now(), now()"
            f" FROM unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(_FILLED.values(), 1))}) AS fresh"
        )
        self._sql_complete = f"""
            UPDATE {self.table}
               SET state = 'succeeded', lease_worker = NULL, lease_token = NULL, lease_expires_at = NULL,
                   finished_at = now(){self.also}
             WHERE id = ANY($1::uuid[])"""
        self._sql_heartbeat = f"""
            UPDATE {self.table} SET lease_expires_at = now() + {LEASE_SECONDS} * interval '1 second'
             WHERE id = ANY($1::uuid[])"""
        self._sql_reap = f"""
            UPDATE {self.table}
               SET state = 'retrying', due = FALSE, run_at = now() + interval '2 seconds', lost = lost + 1,
                   lease_worker = NULL, lease_token = NULL, lease_expires_at = NULL
             WHERE id IN (SELECT id FROM {self.table} WHERE state = 'running' AND lease_expires_at <= now()
                           LIMIT {REAP_BATCH} FOR UPDATE SKIP LOCKED)
         RETURNING id"""

    async def prepare(self) -> None:
        await self.database.run(f"CREATE TABLE {self.table} (LIKE holdfast_jobs INCLUDING DEFAULTS, PRIMARY KEY (id))")
        for column in await self.database.columns("holdfast_jobs"):
            if column not in (*_FILLED, "id"):  # what the schema requires besides is not the business of a plain loop
                await self.database.run(f"ALTER TABLE {self.table} ALTER {column} DROP NOT NULL")
        await self.database.run(
            f"CREATE INDEX {self.table}_claim ON {self.table} (priority DESC, id) WHERE state = 'queued'"
        )

    def _claim_sql(self, limit: int) -> str:
        return f"""
            UPDATE {self.table}
               SET state = 'running', due = NULL, epoch = epoch + 1, attempt = attempt + 1, lease_worker = $1,
                   lease_token = gen_random_uuid(), lease_expires_at = now() + {LEASE_SECONDS} * interval '1 second',
                   claimed_at = now(){self.also}
             WHERE id IN (SELECT id FROM {self.table} WHERE {self.ready} AND run_at <= now()
                           ORDER BY priority DESC, id LIMIT {limit} FOR UPDATE SKIP LOCKED)
         RETURNING {_NEEDED}"""

    async def create(self, count: int, *, priority: int = 0) -> None:
        await self._connection.execute(self._sql_create, *zip(*self._rows(count, priority), strict=True))

    async def claim(self, limit: int) -> list[Any]:
        return await self._connection.fetch(self._claim_sql(limit), self._worker)  # type: ignore[no-any-return]

    async def complete(self, leases: list[Any]) -> None:
        await self._connection.execute(self._sql_complete, [lease["id"] for lease in leases])

    async def heartbeat(self, leases: list[Any]) -> None:
        await self._connection.execute(self._sql_heartbeat, [lease["id"] for lease in leases])

    async def reap(self) -> int:
        return len(await self._connection.fetch(self._sql_reap))


class RawSqlite(Raw):
    def __init__(self, database: SqliteDatabase, **options: Any) -> None:
        super().__init__(**options)
        self.database = database
        self._connection = database.connection
        self._connection.create_function("new_token", 0, self._ids.token)
        self._worker = self._ids.token()
        self._sql_create = (
            f"INSERT INTO {self.table} ({', '.join(_FILLED)}, due, run_at, created_at, updated_at)"
            f" VALUES ({'?, ' * len(_FILLED)}TRUE, ?, ?, ?)"
        )
        self._sql_complete = f"""
            UPDATE {self.table}
               SET state = 'succeeded', lease_worker = NULL, lease_token = NULL, lease_expires_at = NULL,
                   finished_at = ?1{self.also}
             WHERE id IN (SELECT value FROM json_each(?2))"""
        self._sql_heartbeat = f"""
            UPDATE {self.table} SET lease_expires_at = ?1 + {LEASE_SECONDS}000000
             WHERE id IN (SELECT value FROM json_each(?2))"""
        self._sql_reap = f"""
            UPDATE {self.table}
               SET state = 'retrying', due = FALSE, run_at = ?1 + 2000000, lost = lost + 1,
                   lease_worker = NULL, lease_token = NULL, lease_expires_at = NULL
             WHERE id IN (SELECT id FROM {self.table} WHERE state = 'running' AND lease_expires_at <= ?1
                           LIMIT {REAP_BATCH})
         RETURNING id"""

    async def prepare(self) -> None:
        columns = await self.database.rows("SELECT name, type, dflt_value FROM pragma_table_info('holdfast_jobs')")
        declared = [f"{name} {kind}" + (f" DEFAULT {default}" if default else "") for name, kind, default in columns]
        await self.database.run(f"CREATE TABLE {self.table} ({', '.join(declared)}, PRIMARY KEY (id)) STRICT")
        await self.database.run(
            f"CREATE INDEX {self.table}_claim ON {self.table} (priority DESC, id) WHERE state = 'queued'"
        )

    def _claim_sql(self, limit: int) -> str:
        return f"""
            UPDATE {self.table}
               SET state = 'running', due = NULL, epoch = epoch + 1, attempt = attempt + 1, lease_worker = ?1,
                   lease_token = new_token(), lease_expires_at = ?2 + {LEASE_SECONDS}000000, claimed_at = ?2{self.also}
             WHERE id IN (SELECT id FROM {self.table} WHERE {self.ready} AND run_at <= ?2
                           ORDER BY priority DESC, id LIMIT {limit})
         RETURNING {_NEEDED}"""

    def _now(self) -> int:
        return to_micros(self._clock.now())

    async def create(self, count: int, *, priority: int = 0) -> None:
        times = [self._now()] * 3
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(self._sql_create, [(*row, *times) for row in self._rows(count, priority)])

    async def claim(self, limit: int) -> list[Any]:
        return self._connection.execute(self._claim_sql(limit), (self._worker, self._now())).fetchall()

    async def complete(self, leases: list[Any]) -> None:
        self._connection.execute(self._sql_complete, (self._now(), _ids_of(leases)))

    async def heartbeat(self, leases: list[Any]) -> None:
        self._connection.execute(self._sql_heartbeat, (self._now(), _ids_of(leases)))

    async def reap(self) -> int:
        return len(self._connection.execute(self._sql_reap, (self._now(),)).fetchall())


def _ids_of(leases: list[Any]) -> str:
    return json.dumps([lease[0] for lease in leases])
