"""Hints for waiting workers: LISTEN/NOTIFY on PostgreSQL, sockets and the data version on SQLite. They may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from holdfast.clock import Clock
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.model.hint import Hint
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import Query
from holdfast.store.sqlite import SqliteStore, connect
from holdfast.store.wake_sockets import HINTS, WakeDirectory, WakeSender

CHANNEL = "holdfast_hints"
ANY = "*"
PAYLOAD_BYTES_MAX = 7900  # PostgreSQL allows less than 8000
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.025  # between two NOTIFYs: hints in between are batched
PAUSE_LONE_SECONDS = 0.002  # after a NOTIFY for a single commit: one follows the other, as when a caller waits for each
PAUSE_SHARE = 50  # the pause is this many times the duration of the NOTIFY: under load hints must not cost throughput

log = logging.getLogger(__name__)


class WakeSignal:
    """Stores a hint until `wait` consumes it. `queues`: hints about other queues are ignored."""

    def __init__(self, queues: Collection[str] | None = None) -> None:
        self._queues = None if queues is None else frozenset(queues)
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def is_for(self, queues: Collection[str] | None) -> bool:
        return self._queues is None or queues is None or not self._queues.isdisjoint(queues)

    def wake(self, queues: Collection[str] | None = None) -> None:
        """There may be work in these queues, or in any. Thread-safe."""
        if self._event.is_set() or not self.is_for(queues):
            return
        if _running_loop() is self._loop:
            self._event.set()
        else:
            with contextlib.suppress(RuntimeError):  # that loop is closed
                self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """True as soon as there is a hint since the last True; False after the timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


def queue_waker(wake: Callable[[Collection[str]], None]) -> Callable[[Sequence[Hint]], None]:
    """A waker of the engine that passes on only the queues."""
    return lambda hints: wake({hint.queue for hint in hints})


def pause_after(took: float) -> float:
    """The pause before the next NOTIFY, by the duration of this one."""
    return min(max(PAUSE_SECONDS, PAUSE_SHARE * took), PAUSE_MAX_SECONDS)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- SQLite: each commit changes `PRAGMA data_version`, which is cheap to read ----------------------------------------


class SqliteChangeDetector:
    """Detects commits to the file by any process since the last check."""

    def __init__(self, path: Path, ids: Ids) -> None:
        self._connection = connect(path, ids)
        self._connection.execute("PRAGMA busy_timeout = 0")  # it runs in the event loop
        self._seen = self._version()

    def any(self) -> bool:
        try:
            before, self._seen = self._seen, self._version()
        except sqlite3.OperationalError:  # busy for a moment: the next check will tell
            return False
        return self._seen != before

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])


# -- PostgreSQL: LISTEN and NOTIFY -------------------------------------------------------------------------------------

# One statement and one round trip. Asynchronous commit: a hint need not survive a crash, and the server-wide lock of
# NOTIFY is not held during a flush to disk.
_NOTIFY = Query("notify", f"SELECT set_config('synchronous_commit', 'off', TRUE), pg_notify('{CHANNEL}', :payload)")


def encode_queues(queues: Collection[str]) -> str:
    payload = json.dumps(sorted(queues))
    return payload if len(payload) <= PAYLOAD_BYTES_MAX else ANY


def decode_queues(payload: str) -> list[str] | None:
    """The queues of a notification; None means any, also for an unknown payload on the channel."""
    try:
        queues = json.loads(payload)
    except ValueError:
        return None
    return [str(queue) for queue in queues] if isinstance(queues, list) else None


class BatchedNotifier:
    """Sends NOTIFY to every listening process. Called after a commit, never inside a transaction.

    The first is sent at once; what comes during the NOTIFY and the pause after it is batched.
    """

    about = ""  # what it cannot do while it fails

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: set[str] = set()
        self._commits = 0  # of which it tells
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._closed = False

    def __call__(self, items: Collection[str]) -> None:
        if self._closed:  # the connections are closing: polling finds the rest
            return
        self._waiting.update(items)
        self._commits += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        """Send what is pending; drop what comes later."""
        self._closed = True
        await self.flush()

    def drop(self) -> None:
        """Discard what is pending and what comes later."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def flush(self) -> None:
        """Wait until everything pending is sent."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                items, commits, self._waiting, self._commits = self._waiting, self._commits, set(), 0
                begun = self._clock.monotonic()
                await self._try_to_send(items)
                took = self._clock.monotonic() - begun
                await self._clock.sleep(pause_after(took) if commits > 1 else PAUSE_LONE_SECONDS)
        finally:
            self._task = None

    async def _try_to_send(self, items: set[str]) -> None:
        try:
            await self._send(items)
            self._failing = False
        except StoreError as error:
            if not self._failing:
                log.warning("NOTIFY failed, %s: %s", self.about, error)
            self._failing = True

    async def _send(self, items: set[str]) -> None:
        raise NotImplementedError


class Notifier(BatchedNotifier):
    """A waker: tells waiting workers the queues in which there may be work."""

    about = "cannot wake other processes; they find jobs by polling"

    async def _send(self, items: set[str]) -> None:
        await self._store.write(lambda tx: tx.one(_NOTIFY, payload=encode_queues(items)), alone=True)


def hint_sender(store: PostgresStore | SqliteStore, clock: Clock) -> Notifier | WakeSender:
    """Tells the waiting workers of other processes the queues in which there may be work."""
    if isinstance(store, PostgresStore):
        return Notifier(store, clock)
    return WakeSender(WakeDirectory(store.path), HINTS, lambda queues: [encode_queues(queues).encode()])
