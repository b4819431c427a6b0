"""A database as an operator with a SQL prompt sees it: SQL text in, rows or an error out, the same on both stores."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from holdfast.lifecycle import FINAL, State
from holdfast.store.migrate import dialect_of, migrate, sqlite_path

WORKER = "00000000-0000-4000-8000-000000000001"
TOKEN = "00000000-0000-4000-8000-000000000002"
OTHER = "00000000-0000-4000-8000-000000000003"


def job_id(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


class Refusal(Exception):
    """The database said no; `code` is HF001, HF002, HF003, or `constraint`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ByHand:
    """`{t}` in the SQL is a point in time, the one thing both dialects spell differently."""

    time: str

    async def _run(self, sql: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        return await self._run(sql.replace("{t}", self.time))

    async def accepts(self, sql: str, *, or_refuses_with: str = "HF001") -> bool:
        """Only this error counts as a refusal: another one is a mistake of the test."""
        try:
            await self.run(sql)
        except Refusal as refusal:
            if refusal.code != or_refuses_with:
                raise
            return False
        return True

    async def refuses(self, sql: str) -> str:
        with pytest.raises(Refusal) as caught:
            await self.run(sql)
        return caught.value.code


class _Postgres(ByHand):
    time = "timestamptz '2026-01-01 00:00:00+00'"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def _run(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in await self.connection.fetch(sql)]
        except asyncpg.PostgresError as error:
            state = str(error.sqlstate)
            raise Refusal("constraint" if state.startswith("23") else state, str(error)) from error


class _Sqlite(ByHand):
    time = "1767225600000000"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def _run(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return await asyncio.to_thread(lambda: self.connection.execute(sql).fetchall())
        except sqlite3.IntegrityError as error:
            raise Refusal(str(error)[:5] if str(error).startswith("HF") else "constraint", str(error)) from error


@asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[ByHand]:
    """A connection to a migrated database."""
    if dialect_of(url) == "sqlite":
        await migrate(url)
        connection = sqlite3.connect(sqlite_path(url), isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        try:
            yield _Sqlite(connection)
        finally:
            connection.close()
    else:
        session = await asyncpg.connect(url)
        try:
            yield _Postgres(session)
        finally:
            await session.close()


# The columns every job has, as SQL.
PLAIN = dict.fromkeys(("tenant", "type", "queue", "lifecycle"), "'default'")
PLAIN |= dict.fromkeys(("run_at", "created_at", "updated_at"), "{t}")
PLAIN |= {"lane": "1", "policy": "1", "priority": "0", "version": "1", "max_attempts": "5", "payload": "'{}'"}
PLAIN |= {"lease_seconds": "30", "late_writes": "TRUE", "moved_by": "'system'"}


def arriving(state: State) -> dict[str, str]:
    """The other columns of a row in this state: every constraint holds, only the move can be illegal."""
    running, waiting = state is State.RUNNING, state in (State.QUEUED, State.RETRYING)
    return {
        "state": f"'{state}'",
        "due": "TRUE" if waiting else "NULL",
        "finished_at": "{t}" if state in FINAL else "NULL",
        "lease_token": f"'{TOKEN}'" if running else "NULL",
        "lease_worker": f"'{WORKER}'" if running else "NULL",
        "lease_expires_at": "{t}" if running else "NULL",
    }


# An actor that may bring a job to this state, from wherever that is legal.
_MOVER = dict.fromkeys(State, "'system'") | dict.fromkeys((State.RUNNING, State.SUCCEEDED), "'worker'")
_MOVER[State.REJECTED] = "CASE state WHEN 'queued' THEN 'system' ELSE 'worker' END"


def insert(job: str, state: State = State.QUEUED, *, moves: int = 0, **columns: str) -> str:
    """A job in this state, as plain SQL; `columns` are SQL expressions."""
    row = {"id": f"'{job}'", "moves": str(moves), **PLAIN, **arriving(state), **columns}
    return f"INSERT INTO holdfast_jobs ({', '.join(row)}) VALUES ({', '.join(row.values())})"


def move(job: str, target: State, **columns: str) -> str:
    """Bring a job to this state by hand, as a claim or an end would."""
    changes = {
        **arriving(target),
        "epoch": "epoch + 1" if target is State.RUNNING else "epoch",
        "moved_by": _MOVER[target],
    }
    changes |= columns
    assignments = ", ".join(f"{name} = {value}" for name, value in changes.items())
    return f"UPDATE holdfast_jobs SET {assignments} WHERE id = '{job}'"


async def insert_anyhow(db: ByHand, rows: list[str]) -> None:
    """Insert rows in any state, with the trigger that refuses them disabled for a moment."""
    if isinstance(db, _Sqlite):
        [(trigger,)] = await db.run("SELECT sql FROM sqlite_master WHERE name = 'holdfast_jobs_first_state'")
        script = ["BEGIN", "DROP TRIGGER holdfast_jobs_first_state", *rows, trigger, "COMMIT"]
    else:
        script = ["BEGIN", "ALTER TABLE holdfast_jobs DISABLE TRIGGER holdfast_jobs_first_state", *rows]
        script += ["ALTER TABLE holdfast_jobs ENABLE TRIGGER holdfast_jobs_first_state", "COMMIT"]
    for statement in script:
        await db.run(statement)
