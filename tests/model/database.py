"""The database the model test runs on: one engine for all runs, wiped between them."""

from __future__ import annotations

import random
import sqlite3
from typing import Any, Protocol

import asyncpg

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.store import open_store
from holdfast.store.migrate import sqlite_path

TABLES = (
    "limit_units",
    "limit_tokens",
    "limits",
    "key_lanes",
    "kept_keys",
    "jobs",
    "events",
    "kept_attempts",
    "parts",
    "queues",
    "sweeps",
    "workers",
    "past_workers",
)


class ChosenIds(Ids):
    """Ids that repeat in every run, and a jitter that the test sets."""

    chance = 0.0

    def restart(self) -> None:
        self._random = random.Random(7)
        self._last_tick = 0

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def jitter(self) -> float:
        return self.chance


class Wiper(Protocol):
    async def wipe(self) -> None: ...

    async def close(self) -> None: ...


class ModelDatabase:
    """Cached policies and lanes stay: they are the same in every run."""

    def __init__(self, engine: Engine, clock: MovableClock, ids: ChosenIds, wiper: Wiper) -> None:
        self.engine, self.clock, self.ids = engine, clock, ids
        self._wiper = wiper

    @classmethod
    async def open(cls, url: str) -> ModelDatabase:
        clock, ids = MovableClock(), ChosenIds()
        ids.restart()
        engine = Engine(await open_store(url, clock, ids), clock=clock, ids=ids)
        wiper = SqliteWiper(url) if url.startswith("sqlite") else PostgresWiper(await asyncpg.connect(url))
        return cls(engine, clock, ids, wiper)

    async def restart(self) -> None:
        """An empty database with the clock at its start."""
        await self._wiper.wipe()
        self.clock.advance((MovableClock().now() - self.clock.now()).total_seconds())
        self.ids.restart()

    async def close(self) -> None:
        await self.engine.close()
        await self._wiper.close()


class PostgresWiper:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def wipe(self) -> None:
        tables = (*TABLES, "ready", "claim_batches")
        await self._connection.execute(f"TRUNCATE {', '.join(f'holdfast_{table}' for table in tables)}")

    async def close(self) -> None:
        await self._connection.close()


class SqliteWiper:
    """The trigger that refuses to delete unfinished jobs is dropped for a moment."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(sqlite_path(url), isolation_level=None)
        [(self._guard,)] = self._connection.execute("SELECT sql FROM sqlite_master WHERE name = 'holdfast_jobs_kept'")

    async def wipe(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DROP TRIGGER holdfast_jobs_kept")
        for table in TABLES:
            self._connection.execute(f"DELETE FROM holdfast_{table}")
        self._connection.execute(self._guard)
        self._connection.execute("COMMIT")

    async def close(self) -> None:
        self._connection.close()
