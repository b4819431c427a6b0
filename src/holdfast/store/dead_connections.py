"""Detects half-open connections to PostgreSQL, on which the answer to a statement never arrives.

For each statement that has waited for long, a new connection asks the server what its backend does. If it is active,
the statement waits on. If it is idle, because the answer or the statement was lost, the connection is closed, and all
idle ones with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from holdfast.store.connect import DATABASE_ERRORS, open_connection
from holdfast.store.pool import PostgresPool

CHECK_SECONDS = 1.0
UNANSWERED_SECONDS = 4.0
CONNECT_SECONDS = 5.0

_AT_WORK = "SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND coalesce(state, '') NOT LIKE 'idle%'"


class DeadConnectionDetector:
    """Checks about once a second while connections are in use."""

    def __init__(self, url: str, pool: PostgresPool) -> None:
        self._url, self._pool = url, pool
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._suspects: dict[Any, float] = {}  # idle on the server at the last check, with the start of their statement

    def start(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])

    def _check(self) -> None:
        self._timer = None
        now = time.monotonic()
        waiting = [each for each in self._pool.in_use if each.asked_at]
        stalled = [each for each in waiting if now - each.asked_at >= UNANSWERED_SECONDS]
        if stalled and (self._checking is None or self._checking.done()):
            self._checking = asyncio.get_running_loop().create_task(self._close_dead(stalled))
        if waiting:
            self.start()

    async def _close_dead(self, stalled: list[Any]) -> None:
        """Close connections that two checks in a row found idle: once, the answer may just be on its way."""
        asked = {each: each.asked_at for each in stalled}
        idle = await self._idle_on_server(stalled)
        waiting = {each: asked[each] for each in idle if each.asked_at == asked[each]}
        silent = [each for each, since in waiting.items() if self._suspects.get(each) == since]
        self._suspects = waiting
        for each in silent:
            each.terminate()
        if silent:
            self._pool.drop_idle()

    async def _idle_on_server(self, stalled: list[Any]) -> list[Any]:
        """The connections whose backend is idle; none, if the server cannot be asked."""
        try:
            asking: Any = await open_connection(self._url, timeout=CONNECT_SECONDS, command_timeout=CONNECT_SECONDS)
            try:
                here = [each for each in stalled if not each.is_closed() and each._addr == asking._addr]
                at_work = await asking.fetch(_AT_WORK, [each.get_server_pid() for each in here])
            finally:
                with contextlib.suppress(Exception):
                    await asking.close(timeout=1)
        except DATABASE_ERRORS:
            return []
        busy = {row["pid"] for row in at_work}
        return [each for each in here if not each.is_closed() and each.get_server_pid() not in busy]
