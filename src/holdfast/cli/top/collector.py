"""Reads the data of `holdfast top` at each refresh, with bounded cost for any number of jobs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.top.snapshot import EndedRow, QueueRow, RunningRow, TopSnapshot, WorkerRow, totals_of
from holdfast.lifecycle import STATUS, State
from holdfast.model import WorkerRecord
from holdfast.model.worker import Holding
from holdfast.store import q

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store import Row, Tx

COUNT_MAX = 100_000  # of each kind except waiting
COUNT_SHARE = 20  # counting takes at most 1/20 of the time
COUNT_WAIT_SECONDS = 0.2  # then a refresh uses the previous counts
FLOW_SAMPLE = 10_000
ENDED_EVENTS, ENDED_KEPT = 500, 50
RUNNING_MAX, WORKERS_MAX = 100, 200
DEAD_SECONDS = 3600.0
GONE_SECONDS = 600.0  # how long an offline worker is shown
GAP_SECONDS = 120.0  # after a longer gap, such as an outage, there are no rates


Rates = dict[tuple[str, str], float]  # jobs per second, by queue and direction


class Counts(NamedTuple):
    at: datetime
    waiting: list[Row]
    others: list[Row]


class Reading(NamedTuple):
    """What one refresh reads besides the counts. `pos` is the end of the event log."""

    at: datetime
    pos: int
    held: list[Row]
    running: list[Row]
    workers: list[Row]
    paused: list[Row]
    flow: list[Row]
    ended: list[EndedRow]


class Collector:
    """From the second call on, `collect` returns rates."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine, self._clock, self._database = engine, engine.clock, database
        self._counting: asyncio.Task[Counts] | None = None
        self._counts: Counts | None = None
        self._count_again = 0.0
        self._before: Reading | None = None
        self._queues: set[str] = set()  # a queue stays in the list once it was shown
        self._ended: deque[EndedRow] = deque(maxlen=ENDED_KEPT)

    async def collect(self) -> TopSnapshot:
        counts = await self._counted()
        reading = await self._engine.store.read(self._read)
        snapshot = self._snapshot(reading, counts)
        self._before = reading
        return snapshot

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    # -- counting ---------------------------------------------------------------------------------------------

    async def _counted(self) -> Counts:
        """The latest counts; slow counting continues in the background, and runs less often."""
        if self._counting is None and self._clock.monotonic() >= self._count_again:
            self._counting = asyncio.create_task(self._count())
        if self._counting is not None:
            timeout = None if self._counts is None else COUNT_WAIT_SECONDS
            done, _ = await asyncio.wait({self._counting}, timeout=timeout)
            for counting in done:
                self._counting = None
                self._counts = counting.result()
        assert self._counts is not None  # noqa: S101
        return self._counts

    async def _count(self) -> Counts:
        begun = self._clock.monotonic()

        async def work(tx: Tx) -> Counts:
            [clock] = await tx.all(q.clock)
            waiting = await tx.all(q.top_waiting)
            return Counts(clock["now_at"], waiting, await tx.all(q.top_counts, limit=COUNT_MAX, seconds=DEAD_SECONDS))

        counts = await self._engine.store.read(work)
        took = self._clock.monotonic() - begun
        self._count_again = begun + took * COUNT_SHARE
        return counts

    # -- reading ----------------------------------------------------------------------------------------------

    async def _read(self, tx: Tx) -> Reading:
        [clock], end = await tx.all(q.clock), await tx.one(q.feed_end)
        at, pos = clock["now_at"], end["pos"] if end else 0
        after = self._before.pos if self._before else 0
        flow = await tx.all(q.top_flow, after=after, until=pos, limit=FLOW_SAMPLE) if self._since(at) else []
        ended_events = await tx.all(q.top_ended, after=after, until=pos, limit=ENDED_EVENTS)
        return Reading(
            at=at,
            pos=pos,
            held=await tx.all(q.top_held),
            running=await tx.all(q.top_running, limit=RUNNING_MAX),
            workers=await tx.all(q.top_workers, limit=WORKERS_MAX, seconds=GONE_SECONDS),
            paused=await tx.all(q.paused_queues),
            flow=flow,
            ended=[await self._ended_row(tx, row) for row in ended_events[:ENDED_KEPT]],
        )

    def _since(self, at: datetime) -> float:
        """Seconds since the last refresh; 0 if there was none, or too long ago."""
        seconds = (at - self._before.at).total_seconds() if self._before else 0.0
        return seconds if 0 < seconds < GAP_SECONDS else 0.0

    async def _ended_row(self, tx: Tx, row: Row) -> EndedRow:
        machine, state = (await self._engine.ctx.registry.snapshot(tx, row["policy"])).machine, State(row["to_state"])
        return EndedRow(
            job_id=row["job_id"],
            job_type=row["type"],
            queue=row["queue"],
            status=STATUS[state],
            state=machine.words[state],
            stored_state=state.value,
            code=row["reason"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            seconds=(row["at"] - row["claimed_at"]).total_seconds() if row["claimed_at"] else None,
            at=row["at"],
        )

    # -- the snapshot -----------------------------------------------------------------------------------------

    def _snapshot(self, reading: Reading, counts: Counts) -> TopSnapshot:
        self._ended.extendleft(reversed(reading.ended))
        rates = self._rates(reading)
        queues = self._queue_rows(reading, counts, rates)
        leases: Counter[str] = Counter()
        for row in reading.held:
            leases[row["lease_worker"]] += row["jobs"]
        return TopSnapshot(
            database=self._database,
            at=reading.at,
            counted_at=counts.at,
            totals=totals_of(queues, rated=rates is not None),
            queues=queues,
            workers=[_worker(WorkerRecord.from_row(row), leases, reading.at) for row in reading.workers],
            running=[_running(row) for row in reading.running],
            ended=list(self._ended),
        )

    def _queue_rows(self, reading: Reading, counts: Counts, rates: Rates | None) -> list[QueueRow]:
        numbers = _numbers(reading, counts)
        oldest = {row["queue"]: row["oldest_at"] for row in counts.waiting}
        paused = {row["name"]: row for row in reading.paused}
        self._queues |= numbers.keys() | paused.keys() | {queue for queue, _ in rates or ()}
        return [
            QueueRow(
                queue=name,
                **numbers.get(name, {}),
                in_per_second=None if rates is None else rates.get((name, "in"), 0.0),
                out_per_second=None if rates is None else rates.get((name, "out"), 0.0),
                oldest_waiting_at=oldest.get(name),
                paused_at=paused[name]["paused_at"] if name in paused else None,
                paused_by=paused[name]["paused_by"] if name in paused else None,
            )
            for name in sorted(self._queues)
        ]

    def _rates(self, reading: Reading) -> Rates | None:
        if not (seconds := self._since(reading.at)):
            return None
        sampled = sum(row["events"] for row in reading.flow)
        return {(row["queue"], row["way"]): row["events"] * row["happened"] / sampled / seconds for row in reading.flow}


def _numbers(reading: Reading, counts: Counts) -> dict[str, dict[str, int]]:
    """Job counts by queue and column."""
    found: dict[str, Counter[str]] = {}
    for kind, rows in (("waiting", counts.waiting), ("running", reading.held)):
        for row in rows:
            found.setdefault(row["queue"], Counter())[kind] += row["jobs"]
    for row in counts.others:
        kind = "dead_last_hour" if row["kind"] == "dead" else row["kind"]
        found.setdefault(row["queue"], Counter())[kind] += row["jobs"]
    return {queue: dict(numbers) for queue, numbers in found.items()}


def _worker(worker: WorkerRecord, leases: Counter[str], now: datetime) -> WorkerRow:
    held = leases[worker.id]
    worker = worker.with_holding(Holding(held) if held else None)
    last_seen = worker.last_heartbeat_at or worker.registered_at
    silent = worker.status not in ("offline", "disabled") and (now - last_seen).total_seconds() > worker.offline_seconds
    return WorkerRow(
        worker_id=worker.id,
        name=worker.name,
        status="silent" if silent else worker.status,
        slots=worker.slots,
        leases=held,
        last_heartbeat_at=worker.last_heartbeat_at,
    )


def _running(row: Row) -> RunningRow:
    return RunningRow(
        job_id=row["id"],
        job_type=row["type"],
        queue=row["queue"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        step=row["step"],
        percent=row["percent"],
        eta_at=row["eta_at"],
        since=row["claimed_at"],
        cancel_requested=row["cancel_requested_at"] is not None,
        worker_id=row["lease_worker"],
    )
