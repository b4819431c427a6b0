"""Connections of a SQLite store that die before their n-th statement, in one thread.

    python -m tests.engine.dying_connection sqlite:////tmp/jobs.db

It creates jobs until a write is direct, prints their number, and is killed before the commit of the next one.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from typing import Any

from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.store import direct_connection, open_store
from holdfast.store import sqlite as sqlite_store

WRITER = "holdfast-sqlite-write"


def die() -> None:
    raise sqlite3.OperationalError("the process died here")


class DyingConnection(sqlite_store.SqliteConnection):
    """Before each statement, including history, savepoints and commits."""

    left = -1
    thread = WRITER
    die = staticmethod(die)
    rolls_back = True

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self.step()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        self.step()
        return super().executemany(*args)

    def cursor(self, *args: Any) -> sqlite3.Cursor:
        self.step()
        return super().cursor(*args)

    def rollback(self) -> None:
        if not self.rolls_back and threading.current_thread().name == self.thread:
            die()
        super().rollback()

    @classmethod
    def step(cls) -> None:
        if threading.current_thread().name != cls.thread:
            return
        if cls.left == 0:
            cls.left = -1
            cls.die()
        cls.left -= 1


async def statements_of_a_direct_create(engine: Engine, job: NewJob) -> tuple[int, int]:
    """And how many jobs were created before a write was direct, with that one."""
    for created in range(1, 100):
        DyingConnection.left = 1000
        await engine.create(job)
        if DyingConnection.left < 1000:
            return 1000 - DyingConnection.left, created
    raise AssertionError("no write was direct")


async def be_killed(url: str) -> None:
    sqlite_store.SqliteConnection = DyingConnection  # type: ignore[misc]
    direct_connection.QUICK_SECONDS = 3600.0
    DyingConnection.thread = threading.current_thread().name
    DyingConnection.die = staticmethod(lambda: os.kill(os.getpid(), signal.SIGKILL))
    engine = Engine(await open_store(url))
    statements, created = await statements_of_a_direct_create(engine, NewJob(type="a"))
    print(created, flush=True)
    DyingConnection.left = statements - 1
    await engine.create(NewJob(type="a"))


if __name__ == "__main__":
    asyncio.run(be_killed(sys.argv[1]))
