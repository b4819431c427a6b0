"""The connection pool of the PostgreSQL store: connections open on demand, up to a limit; last used, first reused.

asyncpg's own pool starts a task for each released connection, which costs more than a small statement.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.clock import Clock

IDLE_SECONDS_MAX = 300.0
CLOSE_SECONDS = 5.0


class PostgresPool:
    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int, clock: Clock) -> None:
        self._connect, self._size, self._clock = connect, size, clock
        self.on_open: Callable[[Any], Awaitable[None]] | None = None  # more setup of a new connection
        self._all: set[Any] = set()
        self._opening = 0
        self._idle: deque[tuple[Any, float]] = deque()
        self._waiters: deque[asyncio.Future[Any]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def idle(self) -> Any:
        """An idle connection, to be returned with `release`; None if there is none."""
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._all.discard(connection)
        return None

    async def acquire(self) -> Any:
        """A connection, to be returned with `release`."""
        while True:
            if (connection := self.idle()) is not None:
                return connection
            if len(self._all) + self._opening < self._size:
                return await self._open()
            if (connection := await self._wait_for_connection()) is not None:
                return connection

    def release(self, connection: Any) -> None:
        """Return a connection: the longest waiter gets it. A closed one makes room for a new one."""
        if self._closed or connection.is_closed():
            self._all.discard(connection)
            connection.terminate()
            self._hand_over(None)
        elif not self._hand_over(connection):
            now = self._clock.monotonic()
            self._idle.append((connection, now))
            if now - self._idle[0][1] > IDLE_SECONDS_MAX:
                self._close_soon(self._idle.popleft()[0])

    @property
    def in_use(self) -> list[Any]:
        idle = {connection for connection, _ in self._idle}
        return [connection for connection in self._all if connection not in idle]

    def drop_idle(self) -> None:
        """A connection timed out: the idle ones may be half-open too, and each would cost a timeout to find out."""
        while self._idle:
            connection, _ = self._idle.pop()
            self._all.discard(connection)
            connection.terminate()
            self._hand_over(None)

    async def close(self) -> None:
        """Wait a moment for connections in use, then close them."""
        self._closed = True
        while self._idle:
            self._close_soon(self._idle.popleft()[0])
        deadline = self._clock.monotonic() + CLOSE_SECONDS
        while (self._all or self._closing) and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.005)
        for connection in self._all:
            connection.terminate()

    def abandon(self) -> None:
        """Close all connections at once, when their event loop has ended or cannot wait."""
        self._closed = True
        for connection in self._all:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the socket
                connection.terminate()
        self._all.clear()
        self._idle.clear()

    async def _open(self) -> Any:
        self._opening += 1
        try:
            connection = await self._connected()
        except BaseException:
            self._hand_over(None)
            raise
        finally:
            self._opening -= 1
        self._all.add(connection)
        return connection

    async def _connected(self) -> Any:
        connection = await self._connect()
        if self.on_open is not None:
            try:
                await self.on_open(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _wait_for_connection(self) -> Any:
        """Wait for a released connection; None when there is room to open one."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # handed over just before the cancellation: pass it on
                self.release(waiter.result()) if waiter.result() is not None else self._hand_over(None)
            raise

    def _hand_over(self, connection: Any) -> bool:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _close_soon(self, connection: Any) -> None:
        self._all.discard(connection)
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await connection.close(timeout=1)
