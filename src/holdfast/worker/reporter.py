"""Reports how executions ended: in batches when the worker is busy, at once when it is idle, retried until stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.backoff import Backoff
from holdfast.clock import Clock
from holdfast.errors import (
    Conflict,
    ExtensionMissing,
    HoldfastError,
    HookFailed,
    Invalid,
    LeaseLost,
    Refused,
    RowRefused,
    SchemaStale,
    StoreError,
    StoreUnavailable,
)
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.model import Lease
from holdfast.model.reports import Complete, Fail, Rejection, Release, Settled
from holdfast.outage_log import outage
from holdfast.worker.attempt_log import AttemptLog
from holdfast.worker.connectivity import Connectivity
from holdfast.worker.execution import Execution
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Recorded, Rejected, Released
from holdfast.worker.source import Answers, Report, Source

if TYPE_CHECKING:
    from holdfast.worker.metrics import WorkerCounters

BATCH_MAX = 1000
LINGER_SECONDS = 0.002  # to collect a batch, while other jobs run; a lone report is sent at once
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0
REPORT = "report outcomes"
PIECES = 32  # into which a batch that failed is split
PIECES_AT_ONCE = 4

# The database rejects the report itself. No other error changes an outcome.
_REJECTIONS, _REJECTION_CODES = (Invalid, Refused, Conflict, RowRefused), ("constraint_violated", "rolled_back")
_NOT_REPORTED = (StoreUnavailable, SchemaStale)

log = logging.getLogger("holdfast.worker")

Ended = tuple[Execution, Outcome]


class Reporter:
    def __init__(
        self,
        source: Source,
        connectivity: Connectivity,
        clock: Clock,
        ids: Ids,
        *,
        busy: Callable[[], bool],
        settled: Callable[[list[Execution]], None],
        metrics: WorkerCounters | None = None,
        attempt_log: AttemptLog | None = None,
    ) -> None:
        self._source, self._connectivity = source, connectivity
        attempts = attempt_log or AttemptLog()
        self._observers: list[WorkerCounters | AttemptLog] = [attempts] if metrics is None else [metrics, attempts]
        self._clock, self._ids = clock, ids
        self._busy, self._settled = busy, settled
        self._waiting: list[Ended] = []
        self._pieces: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None  # that ended a piece: a bug, since outages do not
        self.closed = False
        self._piece_slots = asyncio.Semaphore(PIECES_AT_ONCE)
        self._not_empty = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, run: Execution, outcome: Outcome) -> None:
        if not self._waiting:
            self._empty.clear()
            self._not_empty.set()
        self._waiting.append((run, outcome))

    async def empty(self) -> None:
        while self._pieces or not self._empty.is_set():
            await self._empty.wait()
            if self._pieces:
                await asyncio.wait(self._pieces)

    async def run(self) -> None:
        """Until cancelled. Reports that could not be delivered are retried: every report carries its token."""
        try:
            await self._run()
        finally:
            self.closed = True
            for task in self._pieces:
                task.cancel()

    async def _run(self) -> None:
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while True:
            await self._not_empty.wait()
            if self._error is not None:
                raise self._error
            if len(self._waiting) < BATCH_MAX and self._busy():
                await self._clock.sleep(LINGER_SECONDS)
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            undelivered = await self._deliver(batch)
            if undelivered:
                self._waiting = undelivered + self._waiting
                await self._clock.sleep(backoff.next())
                continue
            backoff.reset()
            if not self._waiting and self._error is None:
                self._not_empty.clear()
                self._empty.set()

    async def _deliver(self, batch: list[Ended], *, in_piece: bool = False) -> list[Ended]:
        by_kind: dict[type[Any], list[Ended]] = {}
        for ended in batch:
            by_kind.setdefault(type(ended[1]), []).append(ended)
        undelivered: list[Ended] = []
        for kind, group in by_kind.items():
            if kind is Abandoned:  # nothing to report
                for observer in self._observers:
                    observer.abandoned(group)
                self._done(group)
            elif kind is Recorded:
                self._stored(group, [Settled(run.lease.id, State.SUCCEEDED) for run, _ in group])
            else:
                undelivered += await self._deliver_group(kind, group, in_piece=in_piece)
        return undelivered

    async def _deliver_group(self, kind: type[Any], group: list[Ended], *, in_piece: bool) -> list[Ended]:
        try:
            reports = [_report(run.lease, outcome) for run, outcome in group]
            answers = await self._connectivity.call(self._source.settle(reports))
        except HoldfastError as error:
            if isinstance(error, _REJECTIONS) or error.code in _REJECTION_CODES:
                if len(group) == 1:
                    return self._as_failure(group[0], error)
                return [left for one in group for left in await self._deliver_group(kind, [one], in_piece=in_piece)]
            outage.failed(REPORT, error)
            if len(group) == 1 or not isinstance(error, StoreError) or isinstance(error, _NOT_REPORTED):
                return group
            self._split(group)
            return []
        outage.succeeded(REPORT)
        return self._settle(group, answers, in_piece=in_piece)

    def _settle(self, group: list[Ended], answers: Answers, *, in_piece: bool) -> list[Ended]:
        """Returns what to report again: as a failure instead, or the same later, after a hook failed."""
        if all(type(answer) is Settled for answer in answers):  # as a rule
            self._stored(group, answers)
            return []
        stored: list[tuple[Ended, Settled | HoldfastError]] = []
        again: list[Ended] = []
        later: list[Ended] = []
        for ended, answer in zip(group, answers, strict=True):
            if isinstance(answer, HookFailed):
                later.append(ended)
            elif isinstance(answer, HoldfastError) and not isinstance(answer, LeaseLost | ExtensionMissing):
                again += self._as_failure(ended, answer)
            else:
                stored.append((ended, answer))
        self._stored([ended for ended, _ in stored], [answer for _, answer in stored])
        if later and not in_piece:
            self._split(later)
            later = []
        return again + later

    def _stored(self, group: list[Ended], answers: Answers) -> None:
        for (run, _), answer in zip(group, answers, strict=True):
            if type(answer) is not Settled:
                log.warning("job %s: its outcome was rejected: %s", run.lease.id, answer)
        for observer in self._observers:
            observer.ended(group, answers)
        self._done(group)

    def _split(self, group: list[Ended]) -> None:
        """It is not known what became of this batch. One report may delay all others each time, as a locked row does.
        Split into pieces, and those again, it delays only itself."""
        size = -(-len(group) // PIECES)
        for start in range(0, len(group), size):
            task = asyncio.create_task(self._deliver_piece(group[start : start + size]))
            self._pieces.add(task)
            task.add_done_callback(self._piece_ended)

    def _piece_ended(self, task: asyncio.Task[None]) -> None:
        """An unexpected error ends the worker: its jobs would otherwise be renewed and never reported."""
        self._pieces.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("outcomes cannot be reported; stopping this worker", exc_info=error)
            self._error = error
            self._not_empty.set()

    async def _deliver_piece(self, piece: list[Ended]) -> None:
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while piece:
            async with self._piece_slots:
                piece = await self._deliver(piece, in_piece=True)
            if piece:
                await self._clock.sleep(backoff.next())

    def _as_failure(self, ended: Ended, error: HoldfastError) -> list[Ended]:
        """A guard rejected the report, or the lifecycle has no such transition: report a failure instead."""
        run, outcome = ended
        if isinstance(outcome, Failed) and outcome.code == error.code:
            log.error("job %s: neither its outcome nor its failure could be reported: %s", run.lease.id, error)
            self._done([ended])
            return []
        return [(run, Failed(error.code, error.message, permanent=isinstance(outcome, Rejected)))]

    def _done(self, group: list[Ended]) -> None:
        self._settled([run for run, _ in group])


def _report(lease: Lease, outcome: Any) -> Report:
    """It has the fields of the outcome, and says which lease it is about."""
    if type(outcome) is Completed:  # most are
        return Complete(lease.id, lease.token, outcome.result)
    report: Report = _REPORTS[type(outcome)](lease.id, lease.token, **asdict(outcome))
    return report


_REPORTS: dict[type[Any], Callable[..., Any]] = {Failed: Fail, Released: Release, Rejected: Rejection}
