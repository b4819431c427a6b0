"""Hints: somebody who waits for work hears that there may be some. Losing every one of them costs time, never a job."""

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
from holdfast.store.sqlite import connect

CHANNEL = "holdfast_hints"
ANY = "*"
PAYLOAD_BYTES_MAX = 7900  # PostgreSQL takes less than 8000
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.005, 0.025  # between two notices: what comes meanwhile goes together
PAUSE_SHARE = 50  # the pause is that many times as long as the notice took: under load hints must not cost throughput

log = logging.getLogger(__name__)


class Ear:
    """Keeps a hint until somebody waits for it. `queues`: hints about others are not meant for us."""

    def __init__(self, queues: Collection[str] | None = None) -> None:
        self._queues = None if queues is None else frozenset(queues)
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def heard(self, queues: Collection[str] | None = None) -> None:
        """There may be work in these queues, or in any. May be called from any thread."""
        if self._event.is_set() or self._is_for_others(queues):
            return
        if _running_loop() is self._loop:
            self._event.set()
        else:
            with contextlib.suppress(RuntimeError):  # that loop has ended, and nobody waits in it
                self._loop.call_soon_threadsafe(self._event.set)

    def _is_for_others(self, queues: Collection[str] | None) -> bool:
        return self._queues is not None and queues is not None and self._queues.isdisjoint(queues)

    async def wait(self, seconds: float) -> bool:
        """True as soon as there was a hint since the last time it said so; False when the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


def by_queue(heard: Callable[[Collection[str]], None]) -> Callable[[Sequence[Hint]], None]:
    """As a waker of the engine, for somebody to whom only the queues matter."""
    return lambda hints: heard({hint.queue for hint in hints})


def pause_after(took: float) -> float:
    """Until the next notice, when this one took so long."""
    return min(max(PAUSE_SECONDS, PAUSE_SHARE * took), PAUSE_MAX_SECONDS)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- SQLite: whoever commits changes a number that is cheap to look at -------------------------------------------------


class Changes:
    """Has anybody, in any process, committed to this file since the last look?"""

    def __init__(self, path: Path, ids: Ids) -> None:
        self._connection = connect(path, ids)
        self._connection.execute("PRAGMA busy_timeout = 0")  # it is looked at from an event loop
        self._seen = self._version()

    def any(self) -> bool:
        try:
            before, self._seen = self._seen, self._version()
        except sqlite3.OperationalError:  # busy for a moment: the next look will tell
            return False
        return self._seen != before

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])


# -- PostgreSQL: LISTEN and NOTIFY -------------------------------------------------------------------------------------

# One statement and one round trip. Nobody waits for the disk: a hint need not survive a crash, and the lock that every
# notifying commit takes on the whole server is gone at once (K32).
_NOTIFY = Query("notify", f"SELECT set_config('synchronous_commit', 'off', TRUE), pg_notify('{CHANNEL}', :payload)")


def written(queues: Collection[str]) -> str:
    payload = json.dumps(sorted(queues))
    return payload if len(payload) <= PAYLOAD_BYTES_MAX else ANY


def read(payload: str) -> list[str] | None:
    """The queues of a notice; None for any, and for what somebody else wrote on our channel."""
    try:
        queues = json.loads(payload)
    except ValueError:
        return None
    return [str(queue) for queue in queues] if isinstance(queues, list) else None


class Notifier:
    """A waker that tells every listening process. Called after a commit, never inside somebody's transaction.

    The first hint goes out at once; those that come while it is under way, and a moment longer, go together.
    """

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._closed = False

    def __call__(self, queues: Collection[str]) -> None:
        if self._closed:  # its connections are about to go: the job is found by polling
            return
        self._waiting.update(queues)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        """What waits is sent first; what comes after that is dropped."""
        self._closed = True
        await self.flush()

    def drop(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def flush(self) -> None:
        """Wait until everything that waits is sent."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                queues, self._waiting = self._waiting, set()
                begun = self._clock.monotonic()
                await self._send(written(queues))
                await self._clock.sleep(pause_after(self._clock.monotonic() - begun))
        finally:
            self._task = None

    async def _send(self, payload: str) -> None:
        try:
            await self._store.write(lambda tx: tx.one(_NOTIFY, payload=payload), alone=True)
            self._failing = False
        except StoreError as error:
            if not self._failing:
                log.warning("cannot wake other processes, they find their work by polling: %s", error)
            self._failing = True
