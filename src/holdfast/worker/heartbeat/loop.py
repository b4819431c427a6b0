"""The loop of the heartbeat process: renews leases whose executors are alive, and learns what is lost or canceled."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model import Liveness
from holdfast.model.reports import Beat, HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable, TableEntry
from holdfast.worker.heartbeat.watchdog import Watchdog
from holdfast.worker.processes.process_state import ProcessState, state_of
from holdfast.worker.source import Source

WATCH_SECONDS = 0.5
LOOK_SECONDS = 0.5
CANCEL_CHECK_SECONDS = 1.0
NEW_LEASE_SECONDS = 1.0  # most jobs finish sooner, and need no renewal
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0
RESPONSE_MIN_SECONDS, RESPONSE_MAX_SECONDS = 2.0, 10.0

_T = TypeVar("_T")
log = logging.getLogger("holdfast.heartbeat")


class HeartbeatLoop:
    """`idle_seconds`: while the worker is idle, one heartbeat in so many seconds is enough, if that is longer.
    `triggered`: set it to send a heartbeat now."""

    def __init__(
        self,
        source: Source,
        table: LeaseTable,
        *,
        heartbeat_seconds: float,
        watchdog_seconds: float,
        idle_seconds: float,
        on_result: Callable[[HeartbeatResult], None],
        triggered: asyncio.Event,
    ) -> None:
        self._source, self._table, self._clock = source, table, Clock()
        self._watchdog = Watchdog(watchdog_seconds, self._clock.monotonic())
        self._heartbeat_seconds, self._idle_seconds = heartbeat_seconds, max(idle_seconds, heartbeat_seconds)
        self._idle = False  # the last heartbeat reported no job, and the worker is enabled
        self._on_result = on_result
        self._triggered = triggered
        self._triggered.set()
        self._worker = table.header().worker
        self._sent_at = self._checked_at = self._retry_at = 0.0
        self._backoff = Backoff(Ids(), PAUSE_SECONDS, PAUSE_MAX_SECONDS)  # between tries
        self._known: set[HeldLease] = set()  # reported as lost or canceled by the last heartbeat

    async def run(self) -> None:
        """Until the worker process is gone."""
        tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._watch())]
        try:
            [first, *_], _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Apart from the heartbeats: a database that does not respond must not delay it."""
        while (state := state_of(self._worker)) is not ProcessState.GONE:
            now = self._clock.monotonic()
            if state is ProcessState.STOPPED:
                self._watchdog.restart(now)
            elif (reason := self._watchdog.reason_to_kill(self._table, now)) is not None:
                log.error("killing unresponsive worker process %d: %s", self._worker, reason)
                with suppress(ProcessLookupError):
                    os.kill(self._worker, signal.SIGKILL)
                return
            await self._clock.sleep(WATCH_SECONDS)

    async def _renew(self) -> None:
        while True:
            if state_of(self._worker) is not ProcessState.RUNNING:
                await self._clock.sleep(WATCH_SECONDS)
                self._triggered.set()  # when it runs again, tell it at once what it lost meanwhile
                continue
            await self._step(self._table.entries())

    async def _step(self, entries: list[TableEntry]) -> None:
        now = self._clock.monotonic()
        due = self._due(entries)
        if now >= due:
            await self._send(entries)
        elif now >= max(self._checked_at, self._sent_at) + CANCEL_CHECK_SECONDS and not self._backoff.failures:
            await self._check_for_cancels(entries)
        else:
            await self._clock.within(self._triggered, min(LOOK_SECONDS, due - now))

    def _due(self, entries: list[TableEntry]) -> float:
        if self._backoff.failures:
            return self._retry_at
        return 0.0 if self._triggered.is_set() else self._sent_at + self._interval(entries)

    def _interval(self, entries: list[TableEntry]) -> float:
        if self._idle and not entries and not self._table.header().busy:
            return self._idle_seconds
        wanted = (min(entry.lease_seconds / 3, entry.heartbeat_seconds or math.inf) for entry in entries)
        return min([self._heartbeat_seconds, *wanted])

    # -- renewing ---------------------------------------------------------------------------------------------

    async def _send(self, entries: list[TableEntry]) -> None:
        self._triggered.clear()
        header, sent = self._table.header(), self._clock.monotonic()
        entries = [entry for entry in entries if self._should_renew(entry, sent)]
        response = self._source.heartbeat(
            [entry.held for entry in entries],
            liveness=Liveness.BUSY if header.busy else Liveness.IDLE,
            slots=header.slots,
        )
        timeout = min(max(self._interval(entries) / 2, RESPONSE_MIN_SECONDS), RESPONSE_MAX_SECONDS)
        try:
            heartbeat = await _within(timeout, response)
            self._idle = heartbeat.enabled and not header.busy
            self._renewed(sent, entries, heartbeat)
        except Exception as error:
            self._failed(str(error) or type(error).__name__)

    def _should_renew(self, entry: TableEntry, now: float) -> bool:
        if now - entry.since < min(NEW_LEASE_SECONDS, entry.lease_seconds / 6):
            return False
        return not entry.executor or state_of(entry.executor, child_of=self._worker) is ProcessState.RUNNING

    def _renewed(self, sent: float, entries: list[TableEntry], heartbeat: Beat) -> None:
        lost = _lost(entries, heartbeat)
        for entry in entries:
            if entry not in lost:
                self._table.renewed(entry.slot, sent)
        canceled = set(heartbeat.cancel)
        result = HeartbeatResult(
            sent=sent,
            renewed=True,
            lost=self._still_held(lost),
            cancel=[entry.held for entry in entries if entry.held.id in canceled and entry not in lost],
            enabled=heartbeat.enabled,
            fleet=heartbeat.fleet,
        )
        self._sent_at = sent
        self._backoff.reset()
        self._known = {*result.lost, *result.cancel}
        self._watchdog.database_reached(sent)
        self._on_result(result)

    def _still_held(self, lost: list[TableEntry]) -> list[HeldLease]:
        """A job that finished while the heartbeat was under way is not lost."""
        if not lost:
            return []
        held = {entry.held for entry in self._table.entries()}
        return [entry.held for entry in lost if entry.held in held]

    def _failed(self, message: str) -> None:
        self._retry_at = self._clock.monotonic() + self._backoff.next()
        self._watchdog.database_unreachable()
        self._on_result(HeartbeatResult(failed=message))

    # -- between heartbeats -----------------------------------------------------------------------------------

    async def _check_for_cancels(self, entries: list[TableEntry]) -> None:
        """A read, cheaper than a heartbeat and so more frequent."""
        self._checked_at = now = self._clock.monotonic()
        leases = [entry.held for entry in entries if now - entry.since >= NEW_LEASE_SECONDS]
        try:
            if leases:
                stops = await _within(RESPONSE_MIN_SECONDS, self._source.stop_requests(leases))
                if not self._known.issuperset(stops):
                    self._triggered.set()
        except Exception:
            self._triggered.set()  # the heartbeat reports the error


def _lost(entries: list[TableEntry], heartbeat: Beat) -> list[TableEntry]:
    """The response names jobs. If a job is held twice, under an old and a new token, the old lease was lost first."""
    losses = Counter(heartbeat.lost)
    lost = []
    for entry in sorted(entries, key=lambda entry: entry.since) if losses else ():
        if losses[entry.held.id]:
            losses[entry.held.id] -= 1
            lost.append(entry)
    return lost


async def _within(seconds: float, response: Awaitable[_T]) -> _T:
    """Does not wait for the cancellation of a request that timed out: its connection may be half dead."""
    asking = asyncio.ensure_future(response)
    asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
    try:
        done, _ = await asyncio.wait({asking}, timeout=seconds)
        if not done:
            raise TimeoutError(f"the database did not respond within {seconds:g} s")
        return asking.result()
    finally:
        asking.cancel()
