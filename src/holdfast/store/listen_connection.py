"""A connection to PostgreSQL for the life of the process: it holds a lock, it listens, it comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.ids import Ids
from holdfast.outage_log import outage
from holdfast.store.connect import open_connection, session_settings
from holdfast.store.error_mapping import kind_of, said_by, unreachable
from holdfast.store.notify import CHANNEL
from holdfast.store.postgres import FAILED, is_pooled

LISTEN = "listen for hints"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0
DRIVER_SECONDS = 3600.0  # the driver's own timeout must not come first
SLICES = 10  # of that time: however long one of them takes because the event loop is blocked, it counts as one
PING_SECONDS, PING_MAX_SECONDS = 5.0, 300.0  # of a process that is alone, and of one among many
RETURN_SECONDS = (0.1, 0.5)

# Nothing ends an idle session of ours. The lock is shared: after a network failure the server may keep the old session
# for a while, and the new one need not wait for it.
_SETTLE = """
SET idle_session_timeout = 0;
{settings};
SELECT pg_advisory_lock_shared({key})
"""


class ListenConnection:
    """`number` rises with each connection: what was seen under another number may have been a restart."""

    def __init__(self, url: str, key: int, clock: Clock, ids: Ids, heard: Callable[[str], None]) -> None:
        self._url, self._key, self._clock, self._ids, self._heard = url, key, clock, ids, heard
        self.number = 0
        self._ping_seconds = PING_SECONDS
        self._connection: asyncpg.Connection[Any] | None = None
        self._busy = asyncio.Lock()
        self._cut = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, url: str, key: int, clock: Clock, ids: Ids, heard: Callable[[str], None], loops: Loops
    ) -> ListenConnection | None:
        """None behind a pooler: the connection is then lent to others between our statements, with lock and all."""
        session = cls(url, key, clock, ids, heard)
        try:
            if not await session._connect():
                return None
        except FAILED as error:
            raise unreachable(url, error) from error
        session._staying = loops.start("LISTEN connection", session._stay)
        return session

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def among(self, live: int) -> None:
        """All together ping about as often as one alone. What is missed on a dead wire is found by polling."""
        self._ping_seconds = min(PING_SECONDS * live, PING_MAX_SECONDS)

    async def rows(self, sql: str, *values: Any) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("the session with PostgreSQL is cut; it comes back by itself")
        try:
            async with self._busy:
                return await _answered(connection.fetch(sql, *values, timeout=DRIVER_SECONDS))
        except FAILED as error:
            connection.terminate()
            told = "the session with PostgreSQL was cut: "
            raise StoreUnavailable(f"{told}{kind_of(error)}", full=f"{told}{said_by(error)}") from error

    async def close(self) -> None:
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.wait([self._staying])
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*FAILED):
                await connection.close(timeout=1)

    # -- staying ----------------------------------------------------------------------------------------------

    async def _stay(self) -> None:
        while True:
            await self._until_cut()
            outage.failed(LISTEN, "the session with PostgreSQL was cut")
            while not await self._is_back():
                continue
            outage.succeeded(LISTEN)
            self._heard("")  # whatever was said meanwhile was missed

    async def _until_cut(self) -> None:
        while not await self._clock.within(self._cut, self._ping_seconds):
            with contextlib.suppress(StoreUnavailable):  # then it is cut, half-open sockets included
                await self.rows("SELECT 1")

    async def _is_back(self) -> bool:
        least, most = RETURN_SECONDS
        await self._clock.sleep(least + (most - least) * self._ids.jitter())
        try:
            return await self._connect()
        except FAILED:
            return False

    async def _connect(self) -> bool:
        connection = await open_connection(
            self._url, timeout=CONNECT_SECONDS, command_timeout=ANSWER_SECONDS, statement_cache_size=0
        )
        try:
            if await is_pooled(connection):
                await connection.close(timeout=1)
                return False
            await connection.execute(_settle(self._key))
            await connection.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: self._heard(payload))
        except BaseException:
            connection.terminate()
            raise
        self._cut.clear()
        self._connection = connection
        self.number += 1
        connection.add_termination_listener(self._ended)
        if connection.is_closed():  # before we could listen for that
            self._ended(connection)
        return True

    def _ended(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self._cut.set()


def _settle(key: int) -> str:
    return _SETTLE.format(key=key, settings="; ".join(f"SET {setting}" for setting in session_settings()))


async def _answered(asking: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """The answer, within ANSWER_SECONDS in which our event loop runs: while it is blocked, the server is not silent."""
    task = asyncio.ensure_future(asking)
    try:
        for _ in range(SLICES):
            await asyncio.wait({task}, timeout=ANSWER_SECONDS / SLICES)
            if task.done():
                return task.result()
        raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} s")
    finally:
        task.cancel()
