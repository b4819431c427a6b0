"""Tells processes that wait for results which jobs have ended. A lost signal only costs time: a poll finds the job.

A signal names a job by the end of its id, which is random: two jobs with the same end cost a read, nothing else.
Nothing is sent while no process waits. On PostgreSQL a waiting process holds an advisory lock, shared, and announces
itself when it begins. A process that ends jobs tests the lock in the statement that notifies; if no process holds it,
nothing is sent for a second, or until the next announcement. On SQLite a waiting process has a socket beside the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.ids import Ids
from holdfast.store.advisory_locks import lock_key
from holdfast.store.listen_connection import ListenConnection, Subscription
from holdfast.store.notify import PAYLOAD_BYTES_MAX, BatchedNotifier
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.wake_sockets import RESULTS, WakeDirectory, WakeSender, WakeSocket

ENDED, AWAITED = "holdfast_results", "holdfast_waits"  # channels: jobs that have ended; a process begins to wait
LOCK = lock_key("results")
LOCK_TRIES = 3
END_CHARS = 8
QUIET_SECONDS = 1.0  # for how long a sender believes that no process waits

Hear = Callable[[Sequence[str] | None], None]

_NOTIFY = Query(
    "notify_results",
    f"""WITH lock AS MATERIALIZED (SELECT NOT pg_try_advisory_xact_lock({LOCK}) AS is_held)
    SELECT is_held, set_config('synchronous_commit', 'off', TRUE),
           CASE WHEN is_held THEN
             (SELECT count(pg_notify('{ENDED}', each.payload)) FROM unnest(:payloads::text[]) AS each(payload))
           END
      FROM lock""",
)


def end_of(job_id: str) -> str:
    return job_id[-END_CHARS:]


def encode_ends(ends: Iterable[str]) -> list[str]:
    """As few payloads as possible."""
    joined = "".join(ends)
    size = PAYLOAD_BYTES_MAX // END_CHARS * END_CHARS
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def decode_ends(payload: str) -> list[str] | None:
    """None: any job may have ended."""
    return [payload[at : at + END_CHARS] for at in range(0, len(payload), END_CHARS)] or None


class ResultSignals(Protocol):
    """Of one event loop of a process."""

    @property
    def listening(self) -> bool: ...

    def ended(self, job_ids: Collection[str]) -> None:
        """After the commit: tell the processes that wait for results."""
        ...

    async def listen(self, hear: Hear) -> None:
        """Until `rest`: `hear` gets the ends of the ids of jobs that have ended, or None for any. Polling has to do
        where `listening` is false afterwards."""
        ...

    async def rest(self) -> None: ...

    async def close(self) -> None: ...

    def drop(self) -> None: ...


def result_signals(store: PostgresStore | SqliteStore, url: str, clock: Clock, ids: Ids) -> ResultSignals:
    if isinstance(store, PostgresStore):
        return PostgresResultSignals(store, url, clock, ids)
    return SqliteResultSignals(WakeDirectory(store.path), ids)


class SqliteResultSignals:
    def __init__(self, directory: WakeDirectory, ids: Ids) -> None:
        self._directory, self._ids = directory, ids
        self._sender = WakeSender(directory, RESULTS, lambda ends: [each.encode() for each in encode_ends(ends)])
        self._socket: WakeSocket | None = None

    @property
    def listening(self) -> bool:
        return self._socket is not None and self._socket.open

    def ended(self, job_ids: Collection[str]) -> None:
        self._sender([end_of(job_id) for job_id in job_ids])

    async def listen(self, hear: Hear) -> None:
        if self._socket is None:
            self._socket = WakeSocket(
                self._directory,
                RESULTS,
                self._ids,
                lambda datagram: hear(decode_ends(datagram.decode(errors="replace"))),
            )

    async def rest(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def close(self) -> None:
        await self.rest()
        await self._sender.close()

    def drop(self) -> None:
        self._sender.drop()


class ResultNotifier(BatchedNotifier):
    """Sends the ends of ids while a process waits for results."""

    about = "cannot tell other processes that jobs have ended; they poll for results"

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self._quiet_until = 0.0
        self._announced = 0

    def ended(self, job_ids: Collection[str]) -> None:
        if self._clock.monotonic() >= self._quiet_until:
            self([end_of(job_id) for job_id in job_ids])

    def awaited(self, _: str) -> None:
        """A process begins to wait, or may have begun."""
        self._announced += 1
        self._quiet_until = 0.0

    async def _send(self, items: set[str]) -> None:
        announced = self._announced
        row = await self._store.write(lambda tx: tx.one(_NOTIFY, payloads=encode_ends(items)), alone=True)
        if row is not None and not row["is_held"] and announced == self._announced:
            self._quiet_until = self._clock.monotonic() + QUIET_SECONDS


class PostgresResultSignals:
    """It listens on a connection of its own, opened by the first wait, unless the process has one already."""

    def __init__(self, store: PostgresStore, url: str, clock: Clock, ids: Ids) -> None:
        self._url, self._clock, self._ids = url, clock, ids
        self.sender = ResultNotifier(store, clock)
        self.ended = self.sender.ended
        self._announcements = Subscription(AWAITED, self.sender.awaited)
        self._own: ListenConnection | None = None
        self._shared: ListenConnection | None = None
        self._subscribed: tuple[ListenConnection, Subscription] | None = None
        self._locked_in = 0  # the number of the connection that holds the lock
        self._pooled = False
        self._opening = asyncio.Lock()

    @property
    def listening(self) -> bool:
        if self._subscribed is None:
            return False
        session, _ = self._subscribed
        return session.connected and session.number == self._locked_in

    async def use(self, session: ListenConnection) -> None:
        """The connection of the presence: announcements of other processes are heard there."""
        self._shared = session
        with suppress(StoreUnavailable):  # the reconnect subscribes
            await session.add(self._announcements)

    def leave(self) -> None:
        """It is about to be closed."""
        if self._subscribed is not None and self._subscribed[0] is self._shared:
            self._subscribed = None
        self._shared = None

    async def listen(self, hear: Hear) -> None:
        async with self._opening:
            if self._subscribed is None and (session := await self._session()) is not None:
                subscription = Subscription(ENDED, lambda payload: hear(decode_ends(payload)))
                self._subscribed = session, subscription
                await session.add(subscription)
            if self._subscribed is not None and not self.listening:
                await self._announce(self._subscribed[0])

    async def _announce(self, session: ListenConnection) -> None:
        """Never waits for the lock: that a sender tests it takes a moment, unless that process hangs."""
        number = session.number
        for _ in range(LOCK_TRIES):
            [row] = await session.rows(f"SELECT pg_try_advisory_lock_shared({LOCK}) AS is_held")
            if row["is_held"]:
                self._locked_in = number
                await session.rows(f"SELECT pg_notify('{AWAITED}', '')")
                return

    async def rest(self) -> None:
        async with self._opening:
            if self._subscribed is not None:
                is_locked, (session, subscription), self._subscribed = self.listening, self._subscribed, None
                self._locked_in = 0
                await session.remove(subscription)
                if is_locked:
                    await session.rows(f"SELECT pg_advisory_unlock_shared({LOCK})")

    async def close(self) -> None:
        self._subscribed = None
        await self.sender.close()
        if self._own is not None:
            await self._own.close()

    def drop(self) -> None:
        self.sender.drop()
        if self._own is not None:
            self._own.abandon()

    async def _session(self) -> ListenConnection | None:
        """None behind a pooler."""
        if self._shared is not None:
            return self._shared
        if self._own is None and not self._pooled:
            self._own = await ListenConnection.open(
                self._url, self._clock, self._ids, Loops(self._clock, self._ids), self._announcements
            )
            self._pooled = self._own is None
        return self._own
