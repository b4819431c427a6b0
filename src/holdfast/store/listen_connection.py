"""The LISTEN connection of a process to PostgreSQL: it holds advisory locks and reconnects when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

import asyncpg

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.ids import Ids
from holdfast.outage_log import outage
from holdfast.store.connect import DATABASE_ERRORS, open_connection, session_settings
from holdfast.store.error_mapping import driver_message, failure_kind, unreachable
from holdfast.store.postgres import is_pooled

T = TypeVar("T")

LISTEN = "listen for notifications"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0
DRIVER_SECONDS = 3600.0  # above ANSWER_SECONDS, so that the driver's own timeout never fires
SLICES = 10  # of ANSWER_SECONDS: a slice in which the event loop was blocked counts only once
PING_SECONDS, PING_MAX_SECONDS = 5.0, 300.0  # for a single process, and for one of many
RECONNECT_SECONDS = (0.1, 0.5)


class Subscription(NamedTuple):
    """`hear` gets each payload on the channel; an empty one after a reconnect, when some may have been missed.

    `lock`: an advisory lock to hold meanwhile, shared, because the server may keep a lost session for a while.
    """

    channel: str
    hear: Callable[[str], None]
    lock: int | None = None

    def receive(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self.hear(str(payload))


class ListenConnection:
    """`number` increases with each reconnect: between two numbers the server may have restarted."""

    def __init__(self, url: str, clock: Clock, ids: Ids, *subscriptions: Subscription) -> None:
        self._url, self._clock, self._ids = url, clock, ids
        self._subscriptions = list(subscriptions)
        self.number = 0
        self._ping_seconds = PING_SECONDS
        self._connection: asyncpg.Connection[Any] | None = None
        self._busy = asyncio.Lock()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, url: str, clock: Clock, ids: Ids, loops: Loops, *subscriptions: Subscription
    ) -> ListenConnection | None:
        """None behind a pooler, which would lend the server connection, with its locks, to other clients."""
        session = cls(url, clock, ids, *subscriptions)
        try:
            if not await session._connect():
                return None
        except DATABASE_ERRORS as error:
            raise unreachable(url, error) from error
        session._task = loops.start("LISTEN connection", session._keep_connected)
        return session

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def set_live_processes(self, live: int) -> None:
        """Scale the ping interval: all processes together ping about as often as one alone."""
        self._ping_seconds = min(PING_SECONDS * live, PING_MAX_SECONDS)

    async def add(self, subscription: Subscription) -> None:
        """Raises if the connection is lost; the subscription is then made by the reconnect."""
        self._subscriptions.append(subscription)
        await self._use(lambda connection: _subscribe(connection, [subscription]))

    async def remove(self, subscription: Subscription) -> None:
        """Raises if the connection is lost; then nothing is left to remove."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            await self._use(lambda connection: connection.remove_listener(subscription.channel, subscription.receive))

    async def rows(self, sql: str, *values: Any) -> list[Any]:
        found: list[Any] = await self._use(lambda connection: connection.fetch(sql, *values, timeout=DRIVER_SECONDS))
        return found

    async def _use(self, work: Callable[[asyncpg.Connection[Any]], Coroutine[Any, Any, T]]) -> T:
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("connection to PostgreSQL lost; reconnecting")
        try:
            async with self._busy:
                return await _with_timeout(work(connection))
        except DATABASE_ERRORS as error:
            connection.terminate()
            lost = "connection to PostgreSQL lost: "
            raise StoreUnavailable(f"{lost}{failure_kind(error)}", full=f"{lost}{driver_message(error)}") from error

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*DATABASE_ERRORS):
                await connection.close(timeout=1)

    def abandon(self) -> None:
        """Its event loop does not run, or cannot wait: close the socket."""
        if self._connection is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the socket
                self._connection.terminate()

    # -- reconnecting -----------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        while True:
            await self._until_lost()
            outage.failed(LISTEN, "connection to PostgreSQL lost; reconnecting")
            while not await self._reconnected():
                continue
            outage.succeeded(LISTEN)
            for subscription in self._subscriptions:
                subscription.hear("")

    async def _until_lost(self) -> None:
        while not await self._clock.within(self._lost, self._ping_seconds):
            with contextlib.suppress(StoreUnavailable):  # then the connection is closed, also a half-open one
                await self.rows("SELECT 1")

    async def _reconnected(self) -> bool:
        least, most = RECONNECT_SECONDS
        await self._clock.sleep(least + (most - least) * self._ids.jitter())
        try:
            return await self._connect()
        except DATABASE_ERRORS:
            return False

    async def _connect(self) -> bool:
        connection = await open_connection(
            self._url, timeout=CONNECT_SECONDS, command_timeout=ANSWER_SECONDS, statement_cache_size=0
        )
        try:
            if await is_pooled(connection):
                await connection.close(timeout=1)
                return False
            settings = "; ".join(f"SET {setting}" for setting in ("idle_session_timeout = 0", *session_settings()))
            await connection.execute(settings)
            made: list[Subscription] = []
            while new := [each for each in self._subscriptions if each not in made]:  # also those added meanwhile
                await _subscribe(connection, new)
                made += new
        except BaseException:
            connection.terminate()
            raise
        self._lost.clear()
        self._connection = connection
        self.number += 1
        connection.add_termination_listener(self._ended)
        if connection.is_closed():  # before the listener was added
            self._ended(connection)
        return True

    def _ended(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self._lost.set()


async def _subscribe(connection: asyncpg.Connection[Any], subscriptions: Iterable[Subscription]) -> None:
    if locks := [f"pg_advisory_lock_shared({each.lock})" for each in subscriptions if each.lock is not None]:
        await connection.execute(f"SELECT {', '.join(locks)}")
    for each in subscriptions:
        await connection.add_listener(each.channel, each.receive)


async def _with_timeout(asking: Coroutine[Any, Any, T]) -> T:
    """Wait up to ANSWER_SECONDS, without the time in which the event loop is blocked."""
    task = asyncio.ensure_future(asking)
    try:
        for _ in range(SLICES):
            await asyncio.wait({task}, timeout=ANSWER_SECONDS / SLICES)
            if task.done():
                return task.result()
        raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} s")
    finally:
        task.cancel()
