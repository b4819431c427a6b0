"""Looks at the database again and again, and what a look costs is bounded however many jobs there are."""

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

COUNT_MAX = 100_000  # of each kind but those that could run now
COUNT_SHARE = 20  # counting takes at most one part in so many of the time
COUNT_WAIT_SECONDS = 0.2  # longer than that, a look does with the counts before
FLOW_SAMPLE = 10_000
ENDED_EVENTS, ENDED_KEPT = 500, 50
RUNNING_MAX, WORKERS_MAX = 100, 200
DEAD_SECONDS = 3600.0
GONE_SECONDS = 600.0  # a worker that went is shown for so long
GAP_SECONDS = 120.0  # a look so late has no rates: nobody counts what an hour without the database brought


Rates = dict[tuple[str, str], float]  # jobs a second, by queue and way


class Counts(NamedTuple):
    at: datetime
    waiting: list[Row]
    others: list[Row]


class Seen(NamedTuple):
    """What one look reads besides the counts. `pos` is where the feed of events ended."""

    at: datetime
    pos: int
    held: list[Row]
    running: list[Row]
    workers: list[Row]
    paused: list[Row]
    flow: list[Row]
    ended: list[EndedRow]


class Collector:
    """`look` gives a frame; the second one and those behind it know rates."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine, self._clock, self._database = engine, engine.clock, database
        self._counting: asyncio.Task[Counts] | None = None
        self._counts: Counts | None = None
        self._count_again = 0.0
        self._before: Seen | None = None
        self._queues: set[str] = set()  # once seen, a queue stays in its place
        self._ended: deque[EndedRow] = deque(maxlen=ENDED_KEPT)

    async def look(self) -> TopSnapshot:
        counts = await self._counted()
        seen = await self._engine.store.read(self._see)
        frame = self._frame(seen, counts)
        self._before = seen
        return frame

    async def close(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    # -- counting ---------------------------------------------------------------------------------------------

    async def _counted(self) -> Counts:
        """The newest there are; where counting takes long, it goes on beside the looks, and more rarely."""
        if self._counting is None and self._clock.monotonic() >= self._count_again:
            self._counting = asyncio.create_task(self._count())
        if self._counting is not None:
            patience = None if self._counts is None else COUNT_WAIT_SECONDS
            done, _ = await asyncio.wait({self._counting}, timeout=patience)
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

    # -- looking ----------------------------------------------------------------------------------------------

    async def _see(self, tx: Tx) -> Seen:
        [clock], end = await tx.all(q.clock), await tx.one(q.feed_end)
        at, pos = clock["now_at"], end["pos"] if end else 0
        after = self._before.pos if self._before else 0
        flow = await tx.all(q.top_flow, after=after, until=pos, limit=FLOW_SAMPLE) if self._since(at) else []
        endings = await tx.all(q.top_ended, after=after, until=pos, limit=ENDED_EVENTS)
        return Seen(
            at=at,
            pos=pos,
            held=await tx.all(q.top_held),
            running=await tx.all(q.top_running, limit=RUNNING_MAX),
            workers=await tx.all(q.top_workers, limit=WORKERS_MAX, seconds=GONE_SECONDS),
            paused=await tx.all(q.paused_queues),
            flow=flow,
            ended=[await self._ending(tx, row) for row in endings[:ENDED_KEPT]],
        )

    def _since(self, at: datetime) -> float:
        """Seconds since the look before; 0 if there was none, or too long ago."""
        seconds = (at - self._before.at).total_seconds() if self._before else 0.0
        return seconds if 0 < seconds < GAP_SECONDS else 0.0

    async def _ending(self, tx: Tx, row: Row) -> EndedRow:
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

    # -- what it means ----------------------------------------------------------------------------------------

    def _frame(self, seen: Seen, counts: Counts) -> TopSnapshot:
        self._ended.extendleft(reversed(seen.ended))
        rates = self._rates(seen)
        queues = self._queue_lines(seen, counts, rates)
        leases: Counter[str] = Counter()
        for row in seen.held:
            leases[row["lease_worker"]] += row["jobs"]
        return TopSnapshot(
            database=self._database,
            at=seen.at,
            counted_at=counts.at,
            totals=totals_of(queues, rated=rates is not None),
            queues=queues,
            workers=[_worker(WorkerRecord.from_row(row), leases, seen.at) for row in seen.workers],
            running=[_running(row) for row in seen.running],
            ended=list(self._ended),
        )

    def _queue_lines(self, seen: Seen, counts: Counts, rates: Rates | None) -> list[QueueRow]:
        numbers = _numbers(seen, counts)
        oldest = {row["queue"]: row["oldest_at"] for row in counts.waiting}
        paused = {row["name"]: row for row in seen.paused}
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

    def _rates(self, seen: Seen) -> Rates | None:
        if not (seconds := self._since(seen.at)):
            return None
        sampled = sum(row["events"] for row in seen.flow)
        return {(row["queue"], row["way"]): row["events"] * row["happened"] / sampled / seconds for row in seen.flow}


def _numbers(seen: Seen, counts: Counts) -> dict[str, dict[str, int]]:
    """By queue, and by the name of the column."""
    found: dict[str, Counter[str]] = {}
    for kind, rows in (("waiting", counts.waiting), ("running", seen.held)):
        for row in rows:
            found.setdefault(row["queue"], Counter())[kind] += row["jobs"]
    for row in counts.others:
        kind = "dead_last_hour" if row["kind"] == "dead" else row["kind"]
        found.setdefault(row["queue"], Counter())[kind] += row["jobs"]
    return {queue: dict(numbers) for queue, numbers in found.items()}


def _worker(worker: WorkerRecord, leases: Counter[str], now: datetime) -> WorkerRow:
    held = leases[worker.id]
    worker = worker.with_holding(Holding(held) if held else None)
    heard = worker.last_heartbeat_at or worker.registered_at
    silent = worker.status not in ("offline", "disabled") and (now - heard).total_seconds() > worker.offline_seconds
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
