"""What the keeper does: renew, in one beat, every lease whose executor lives, and hear what is lost or canceled."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.ids import Ids
from holdfast.model import Liveness
from holdfast.model.reports import Beat, HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.heartbeat.lease_table import LeaseTable, TableEntry
from holdfast.worker.heartbeat.watchdog import Watchdog
from holdfast.worker.processes.process_state import ProcessState, state_of

WATCH_SECONDS = 0.5
LOOK_SECONDS = 0.5
STOPS_SECONDS = 1.0
SETTLED_SECONDS = 1.0  # most jobs are over sooner, and need no renewal
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0
ANSWER_MIN_SECONDS, ANSWER_MAX_SECONDS = 2.0, 10.0

_T = TypeVar("_T")
log = logging.getLogger("holdfast.keeper")


class HeartbeatSource(Protocol):
    """What a keeper needs of a worker's source."""

    async def heartbeat(self, leases: list[HeldLease], *, liveness: Liveness, slots: int) -> Beat: ...

    async def stops(self, leases: list[HeldLease]) -> list[HeldLease]: ...


async def run_heartbeats(
    source: HeartbeatSource,
    table: LeaseTable,
    *,
    heartbeat_seconds: float,
    watchdog_seconds: float,
    tell: Callable[[HeartbeatResult], None],
    idle_seconds: float = 0.0,
    clock: Clock | None = None,
    ids: Ids | None = None,
    poked: asyncio.Event | None = None,
) -> None:
    """Until the worker is gone. One that holds nothing, and has said so, beats only every `idle_seconds`, if longer."""
    clock = clock or Clock()
    watchdog = Watchdog(watchdog_seconds, clock.monotonic())
    beats = HeartbeatLoop(
        source,
        table,
        watchdog,
        heartbeat_seconds,
        max(idle_seconds, heartbeat_seconds),
        tell,
        clock=clock,
        ids=ids or Ids(),
        poked=poked or asyncio.Event(),
    )
    beating = asyncio.create_task(beats.run())
    guarding = asyncio.create_task(run_watchdog(table, watchdog, clock))
    try:
        [first, *_], _ = await asyncio.wait({beating, guarding}, return_when=asyncio.FIRST_COMPLETED)
        first.result()
    finally:
        for task in (beating, guarding):
            task.cancel()
        await asyncio.gather(beating, guarding, return_exceptions=True)


async def run_watchdog(table: LeaseTable, watchdog: Watchdog, clock: Clock) -> None:
    """Apart from the beats: a database that does not answer must not hold it up."""
    worker = table.header().worker
    while (state := state_of(worker)) is not ProcessState.GONE:
        now = clock.monotonic()
        if state is ProcessState.STOPPED:
            watchdog.excuse(now)
        elif (complaint := watchdog.complaint(table, now)) is not None:
            log.error("holdfast keeper: killing worker process %d: %s", worker, complaint)
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            return
        await clock.sleep(WATCH_SECONDS)


class HeartbeatLoop:
    def __init__(
        self,
        source: HeartbeatSource,
        table: LeaseTable,
        watchdog: Watchdog,
        heartbeat_seconds: float,
        idle_seconds: float,
        tell: Callable[[HeartbeatResult], None],
        *,
        clock: Clock,
        ids: Ids,
        poked: asyncio.Event,
    ) -> None:
        self._source, self._table, self._watchdog = source, table, watchdog
        self._heartbeat_seconds, self._idle_seconds = heartbeat_seconds, idle_seconds
        self._at_rest = False  # the last beat said that nothing runs, and heard that the worker may claim
        self._tell = tell
        self._clock, self._ids = clock, ids
        self._poked = poked  # set: a beat is wanted now
        self._poked.set()
        self._worker = table.header().worker
        self._sent = self._asked = self._retry_at = 0.0
        self._backoff = Backoff(ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)  # between tries
        self._known: set[HeldLease] = set()  # as lost or canceled, since the last beat

    async def run(self) -> None:
        while True:
            if state_of(self._worker) is not ProcessState.RUNNING:
                await self._clock.sleep(WATCH_SECONDS)
                self._poked.set()  # what it lost meanwhile it should hear at once when it goes on
                continue
            await self._look(self._table.entries())

    async def _look(self, entries: list[TableEntry]) -> None:
        now = self._clock.monotonic()
        due = self._due(entries)
        if now >= due:
            await self._beat(entries)
        elif now >= max(self._asked, self._sent) + STOPS_SECONDS and not self._backoff.failures:
            await self._ask_for_stops(entries)
        else:
            await self._clock.within(self._poked, min(LOOK_SECONDS, due - now))

    def _due(self, entries: list[TableEntry]) -> float:
        if self._backoff.failures:
            return self._retry_at
        return 0.0 if self._poked.is_set() else self._sent + self._interval(entries)

    def _interval(self, entries: list[TableEntry]) -> float:
        if self._at_rest and not entries and not self._table.header().busy:
            return self._idle_seconds
        wanted = (min(entry.lease_seconds / 3, entry.beat_seconds or math.inf) for entry in entries)
        return min([self._heartbeat_seconds, *wanted])

    # -- beating ----------------------------------------------------------------------------------------------

    async def _beat(self, entries: list[TableEntry]) -> None:
        self._poked.clear()
        header, sent = self._table.header(), self._clock.monotonic()
        entries = [entry for entry in entries if self._should_go_on(entry, sent)]
        answer = self._source.heartbeat(
            [entry.held for entry in entries],
            liveness=Liveness.BUSY if header.busy else Liveness.IDLE,
            slots=header.slots,
        )
        patience = min(max(self._interval(entries) / 2, ANSWER_MIN_SECONDS), ANSWER_MAX_SECONDS)
        try:
            beat = await _within(patience, answer)
            self._at_rest = beat.enabled and not header.busy
            self._heard(sent, entries, beat)
        except Exception as error:
            self._failed(str(error) or type(error).__name__)

    def _should_go_on(self, entry: TableEntry, now: float) -> bool:
        if now - entry.since < min(SETTLED_SECONDS, entry.lease_seconds / 6):
            return False
        return not entry.executor or state_of(entry.executor, child_of=self._worker) is ProcessState.RUNNING

    def _heard(self, sent: float, entries: list[TableEntry], beat: Beat) -> None:
        lost = _lost(entries, beat)
        for entry in entries:
            if entry not in lost:
                self._table.renewed(entry.slot, sent)
        canceled = set(beat.cancel)
        news = HeartbeatResult(
            sent=sent,
            renewed=True,
            lost=self._still_there(lost),
            cancel=[entry.held for entry in entries if entry.held.id in canceled and entry not in lost],
            enabled=beat.enabled,
            fleet=beat.fleet,
        )
        self._sent = sent
        self._backoff.reset()
        self._known = {*news.lost, *news.cancel}
        self._watchdog.reached(sent)
        self._tell(news)

    def _still_there(self, lost: list[TableEntry]) -> list[HeldLease]:
        """A job that has ended while the beat was under way is no loss."""
        if not lost:
            return []
        now_there = {entry.held for entry in self._table.entries()}
        return [entry.held for entry in lost if entry.held in now_there]

    def _failed(self, message: str) -> None:
        self._retry_at = self._clock.monotonic() + self._backoff.next()
        self._watchdog.unreached()
        self._tell(HeartbeatResult(failed=message))

    # -- between the beats ------------------------------------------------------------------------------------

    async def _ask_for_stops(self, entries: list[TableEntry]) -> None:
        """Cheaper than a beat, and so more often."""
        self._asked = now = self._clock.monotonic()
        leases = [entry.held for entry in entries if now - entry.since >= SETTLED_SECONDS]
        try:
            if leases and not self._known.issuperset(await _within(ANSWER_MIN_SECONDS, self._source.stops(leases))):
                self._poked.set()
        except Exception:
            self._poked.set()  # the beat will say what is wrong


def _lost(entries: list[TableEntry], beat: Beat) -> list[TableEntry]:
    """The answer names jobs. If a job is here twice, under an old token and a new one, the old one was lost first."""
    losses = Counter(beat.lost)
    lost = []
    for entry in sorted(entries, key=lambda entry: entry.since) if losses else ():
        if losses[entry.held.id]:
            losses[entry.held.id] -= 1
            lost.append(entry)
    return lost


async def _within(seconds: float, answer: Awaitable[_T]) -> _T:
    """Whoever does not answer in time is left behind, and not waited for either: its connection may be half dead."""
    asking = asyncio.ensure_future(answer)
    asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
    try:
        done, _ = await asyncio.wait({asking}, timeout=seconds)
        if not done:
            raise TimeoutError(f"the database did not answer within {seconds:g} s")
        return asking.result()
    finally:
        asking.cancel()
