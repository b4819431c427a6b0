"""Reads the data of `holdfast top` at each refresh, with bounded cost for any number of jobs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from holdfast.cli.top.snapshot import EndedRow, LimitRow, QueueRow, RunningRow, TopSnapshot, WorkerRow, totals_of
from holdfast.engine.reads.live_view import ENDED_KEPT, Activity, Counts
from holdfast.lifecycle import STATUS, Machine, State
from holdfast.model import WorkerRecord
from holdfast.model.worker import Holding

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store import Row

COUNT_SHARE = 20  # counting takes at most 1/20 of the time
COUNT_WAIT_SECONDS = 0.2  # then a refresh uses the previous counts

Rates = dict[tuple[str, str], float]  # jobs per second, by queue and direction


class Collector:
    """From the second call on, `collect` returns rates."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine, self._clock, self._database = engine, engine.clock, database
        self._counting: asyncio.Task[Counts] | None = None
        self._counts: Counts | None = None
        self._count_again = 0.0
        self._before: Activity | None = None
        self._queues: set[str] = set()  # a queue stays in the list once it was shown
        self._ended: deque[EndedRow] = deque(maxlen=ENDED_KEPT)

    async def collect(self) -> TopSnapshot:
        counts = await self._counted()
        activity = await self._engine.reads.live_activity(self._before)
        snapshot = self._snapshot(activity, counts)
        self._before = activity
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
        counts = await self._engine.reads.live_counts()
        took = self._clock.monotonic() - begun
        self._count_again = begun + took * COUNT_SHARE
        return counts

    # -- the snapshot -----------------------------------------------------------------------------------------

    def _snapshot(self, activity: Activity, counts: Counts) -> TopSnapshot:
        self._ended.extendleft(_ended(row, machine) for row, machine in reversed(activity.ended))
        rates = self._rates(activity)
        queues = self._queue_rows(activity, counts, rates)
        leases: Counter[str] = Counter()
        for row in activity.held:
            leases[row["lease_worker"]] += row["jobs"]
        return TopSnapshot(
            database=self._database,
            at=activity.at,
            counted_at=counts.at,
            totals=totals_of(queues, rated=rates is not None),
            queues=queues,
            limits=[LimitRow(limit=name, **asdict(use)) for name, use in sorted(counts.limits.items())],
            workers=[_worker(WorkerRecord.from_row(row), leases, activity.at) for row in activity.workers],
            running=[_running(row) for row in activity.running],
            ended=list(self._ended),
        )

    def _queue_rows(self, activity: Activity, counts: Counts, rates: Rates | None) -> list[QueueRow]:
        numbers = _numbers(activity, counts)
        oldest = {row["queue"]: row["oldest_at"] for row in counts.waiting}
        paused = {row["name"]: row for row in activity.paused}
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

    def _rates(self, activity: Activity) -> Rates | None:
        if not (seconds := activity.seconds):
            return None
        sampled = sum(row["events"] for row in activity.flow)
        return {
            (row["queue"], row["way"]): row["events"] * row["happened"] / sampled / seconds for row in activity.flow
        }


def _numbers(activity: Activity, counts: Counts) -> dict[str, dict[str, int]]:
    """Job counts by queue and column."""
    found: dict[str, Counter[str]] = {}
    for kind, rows in (("waiting", counts.waiting), ("running", activity.held)):
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


def _ended(row: Row, machine: Machine) -> EndedRow:
    state = State(row["to_state"])
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
