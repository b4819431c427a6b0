"""Crash detection and wake-ups: a worker process holds an advisory lock or a lock file, which other processes check."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Collection, Iterable
from pathlib import Path

from holdfast.background import Loops
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.store.advisory_locks import worker_lock
from holdfast.store.listen_connection import ListenConnection, Subscription
from holdfast.store.lock_files import LockFiles
from holdfast.store.migrate import dialect_of, sqlite_path
from holdfast.store.notify import CHANNEL, SqliteChangeDetector, WakeSignal, decode_queues
from holdfast.store.result_signals import PostgresResultSignals, ResultSignals
from holdfast.store.wake_sockets import HINTS, WakeDirectory, WakeSocket

POLL_SECONDS = 0.05  # how often a waiting process checks whether its SQLite file has changed
FEW_PROCESSES = 4  # on a SQLite file: more of them look before they claim, or all would want its only lock at once

_LIVE = ".live"  # an instance name with this suffix belongs to a process that holds a lock while it lives
_NAME = re.compile(r"[A-Za-z0-9_-]+-\d+-[0-9a-f]{16}\.live")

_LOCKS_HELD = """
SELECT classid::bigint << 32 | objid::bigint AS key
  FROM pg_locks
 WHERE locktype = 'advisory'
   AND objsubid = 1
   AND granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND classid::bigint << 32 | objid::bigint = ANY($1::bigint[])
"""

log = logging.getLogger(__name__)


class Presence:
    """The presence of this process: its instance name for claims, and its wake-ups.

    `session_number` changes when earlier observations may be outdated. This base class holds no lock and detects no
    crashes: only leases expire.
    """

    session_number = 0
    exact = True  # the last hint means work; otherwise only that something was written: look before a claim

    def __init__(self, ids: Ids, queues: Collection[str] | None) -> None:
        self._signal = WakeSignal(queues)
        self.wake = self._signal.wake
        self._plain = f"{_host()}-{os.getpid()}-{ids.bits(64):016x}"

    @property
    def instance(self) -> str:
        """Read it for each claim: its suffix tells whether the lock is held now."""
        return self._plain

    @property
    def names(self) -> set[str]:
        """Every name that this process may have claimed under."""
        return {self._plain, self._plain + _LIVE}

    @property
    def lock(self) -> str:
        """The name whose lock the heartbeat process must hold too; empty if none."""
        return ""

    async def wait(self, seconds: float) -> bool:
        """True as soon as there may be work, False after the timeout."""
        return await self._signal.wait(seconds)

    async def dead(self, instances: Iterable[str]) -> set[str]:
        """The instances whose process is known to have ended; never unknown ones or our own."""
        return set()

    def forget(self, instances: Iterable[str]) -> None:
        """They are dead and hold no leases."""

    def set_live_processes(self, live: int) -> None:
        """The number of live processes, which share the load of pings on the server."""

    async def share(self, results: ResultSignals | None) -> None:
        """Let the results that this process waits for, and those that others wait for, use its connection."""

    async def close(self) -> None: ...


class SqlitePresence(Presence):
    """On SQLite: a lock file and a wake-up socket beside the database; the data version is polled while waiting."""

    exact = False

    def __init__(self, path: Path, ids: Ids, queues: Collection[str] | None) -> None:
        super().__init__(ids, queues)
        path = path.resolve()
        self._files = LockFiles(path.with_name(f"{path.name}.workers"))
        self._detector = SqliteChangeDetector(path, ids)
        self._name = self._hold()
        self.wake = self._wake
        self._hinted = False
        self._few = True
        self._socket = WakeSocket(WakeDirectory(path), HINTS, ids, self._hear)

    def _hear(self, datagram: bytes) -> None:
        self._wake(decode_queues(datagram.decode(errors="replace")))

    def _wake(self, queues: Collection[str] | None = None) -> None:
        self._hinted = self._hinted or self._signal.is_for(queues)
        self._signal.wake(queues)

    def _hold(self) -> str:
        try:
            self._files.hold(self._plain + _LIVE)
        except OSError as error:
            log.warning("cannot hold a lock file; a crash is detected when leases expire: %s", error)
            return self._plain
        return self._plain + _LIVE

    @property
    def instance(self) -> str:
        return self._name

    async def wait(self, seconds: float) -> bool:
        self._poll()
        try:
            return await super().wait(seconds)
        finally:
            self._next_poll.cancel()
            self.exact, self._hinted = self._hinted and self._few, False

    def set_live_processes(self, live: int) -> None:
        self._few = live <= FEW_PROCESSES

    def _poll(self) -> None:
        if self._detector.any():
            self._signal.wake()
        self._next_poll = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    async def dead(self, instances: Iterable[str]) -> set[str]:
        return {name for name in instances if _NAME.fullmatch(name) and self._files.is_free(name)}

    def forget(self, instances: Iterable[str]) -> None:
        self._files.remove(name for name in instances if _NAME.fullmatch(name))

    async def close(self) -> None:
        self._socket.close()
        self._files.release(self._plain + _LIVE)
        self._detector.close()


class PostgresPresence(Presence):
    """On PostgreSQL: a connection with an advisory lock and LISTEN. Other processes find the lock in `pg_locks`.

    The heartbeat process holds the same lock on its connections, so the lock exists as long as leases are renewed, even
    if this connection is lost.
    """

    _session: ListenConnection | None = None
    _results: PostgresResultSignals | None = None

    @classmethod
    async def open(
        cls, url: str, clock: Clock, ids: Ids, queues: Collection[str] | None, loops: Loops
    ) -> PostgresPresence:
        presence = cls(ids, queues)
        key = worker_lock(presence._plain + _LIVE)

        def wake(payload: str) -> None:
            presence.wake(decode_queues(payload))

        presence._session = await ListenConnection.open(url, clock, ids, loops, Subscription(CHANNEL, wake, key))
        if presence._session is None:
            log.warning("PostgreSQL is behind a pooler: no LISTEN/NOTIFY; a crash is detected when leases expire")
        return presence

    @property
    def instance(self) -> str:
        return self._plain + _LIVE if self._session is not None and self._session.connected else self._plain

    @property
    def lock(self) -> str:
        return "" if self._session is None else self._plain + _LIVE

    @property
    def session_number(self) -> int:  # type: ignore[override]
        return 0 if self._session is None else self._session.number

    async def dead(self, instances: Iterable[str]) -> set[str]:
        names = {worker_lock(name): name for name in set(instances) - self.names if _NAME.fullmatch(name)}
        if self._session is None or not names:
            return set()
        held = {row["key"] for row in await self._session.rows(_LOCKS_HELD, list(names))}
        return {name for key, name in names.items() if key not in held}

    def set_live_processes(self, live: int) -> None:
        if self._session is not None:
            self._session.set_live_processes(live)

    async def share(self, results: ResultSignals | None) -> None:
        if self._session is not None and isinstance(results, PostgresResultSignals):
            self._results = results
            await results.use(self._session)

    async def close(self) -> None:
        if self._results is not None:
            self._results.leave()
        if self._session is not None:
            await self._session.close()


async def open_presence(
    url: str,
    clock: Clock | None = None,
    ids: Ids | None = None,
    *,
    queues: Collection[str] | None = None,
    loops: Loops | None = None,
) -> Presence:
    """`queues`: hints about other queues are ignored. `loops`: the background loops of the process."""
    clock, ids = clock or Clock(), ids or Ids()
    if dialect_of(url) == "sqlite":
        return SqlitePresence(sqlite_path(url), ids, queues)
    return await PostgresPresence.open(url, clock, ids, queues, loops or Loops(clock, ids))


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:60] or "host"
