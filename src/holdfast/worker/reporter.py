"""How executions ended, on its way to the database: in batches when busy, at once when idle, until it has arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
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
from holdfast.worker.execution import Execution
from holdfast.worker.outcomes import Abandoned, Completed, Failed, Outcome, Recorded, Rejected, Released
from holdfast.worker.source import Answers, Source

if TYPE_CHECKING:
    from holdfast.worker.metrics import WorkerCounters

BATCH_MAX = 1000
LINGER_SECONDS = 0.002  # while other jobs are about to end too; a lone one does not wait
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0
REPORT = "report how jobs ended"
PIECES = 32  # into which a batch with an unknown outcome is cut
APART_MAX = 4  # of these under way at once

# Refused for what the report says: no other error changes an outcome.
_REFUSALS, _REFUSAL_CODES = (Invalid, Refused, Conflict, RowRefused), ("constraint_violated", "rolled_back")
_NOTHING_DONE = (StoreUnavailable, SchemaStale)

log = logging.getLogger("holdfast.worker")

Ended = tuple[Execution, Outcome]


class Reporter:
    def __init__(
        self,
        source: Source,
        clock: Clock,
        ids: Ids,
        *,
        busy: Callable[[], bool],
        settled: Callable[[Execution], None],
        metrics: WorkerCounters | None = None,
        attempt_log: AttemptLog | None = None,
    ) -> None:
        self._source, self._metrics = source, metrics
        self._attempt_log = attempt_log or AttemptLog()
        self._clock, self._ids = clock, ids
        self._busy, self._settled = busy, settled
        self._waiting: list[Ended] = []
        self._apart: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None  # that ended one of these: a mistake, since outages end none
        self.closed = False
        self._turns = asyncio.Semaphore(APART_MAX)
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, run: Execution, outcome: Outcome) -> None:
        self._waiting.append((run, outcome))
        self._empty.clear()
        self._some.set()

    async def empty(self) -> None:
        while self._apart or not self._empty.is_set():
            await self._empty.wait()
            if self._apart:
                await asyncio.wait(self._apart)

    async def run(self) -> None:
        """Never ends by itself. What could not be delivered is tried again: every report carries its token."""
        try:
            await self._run()
        finally:
            self.closed = True
            for task in self._apart:
                task.cancel()

    async def _run(self) -> None:
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while True:
            await self._some.wait()
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
                self._some.clear()
                self._empty.set()

    async def _deliver(self, batch: list[Ended], *, apart: bool = False) -> list[Ended]:
        by_kind: dict[type[Any], list[Ended]] = {}
        for ended in batch:
            by_kind.setdefault(type(ended[1]), []).append(ended)
        undelivered: list[Ended] = []
        for kind, group in by_kind.items():
            if kind is Abandoned:  # there is nothing to say
                if self._metrics is not None:
                    self._metrics.abandoned(group)
                self._attempt_log.abandoned(group)
                self._done(group)
            elif kind is Recorded:
                self._over(group, [Settled(run.lease.id, State.SUCCEEDED) for run, _ in group])
            else:
                undelivered += await self._deliver_group(kind, group, apart=apart)
        return undelivered

    async def _deliver_group(self, kind: type[Any], group: list[Ended], *, apart: bool) -> list[Ended]:
        try:
            report_of, send = _REPORTS[kind]
            answers = await send(self._source, [report_of(run.lease, outcome) for run, outcome in group])
        except HoldfastError as error:
            if isinstance(error, _REFUSALS) or error.code in _REFUSAL_CODES:
                if len(group) == 1:
                    return self._reworded(group[0], error)
                return [one for alone in group for one in await self._deliver_group(kind, [alone], apart=apart)]
            outage.failed(REPORT, error)
            if len(group) == 1 or not isinstance(error, StoreError) or isinstance(error, _NOTHING_DONE):
                return group
            self._settle_apart(group)
            return []
        outage.succeeded(REPORT)
        return self._answered(group, answers, apart=apart)

    def _answered(self, group: list[Ended], answers: Answers, *, apart: bool) -> list[Ended]:
        """What is to be reported again: in other words, or later, when a hook that failed may work."""
        over: list[tuple[Ended, Settled | HoldfastError]] = []
        again: list[Ended] = []
        later: list[Ended] = []
        for ended, answer in zip(group, answers, strict=True):
            if isinstance(answer, HookFailed):
                later.append(ended)
            elif isinstance(answer, HoldfastError) and not isinstance(answer, LeaseLost | ExtensionMissing):
                again += self._reworded(ended, answer)
            else:
                over.append((ended, answer))
        self._over([ended for ended, _ in over], [answer for _, answer in over])
        if later and not apart:
            self._settle_apart(later)
            later = []
        return again + later

    def _over(self, group: list[Ended], answers: Answers) -> None:
        for (run, _), answer in zip(group, answers, strict=True):
            if isinstance(answer, HoldfastError):
                log.warning("job %s: its end was refused: %s", run.lease.id, answer)
        if self._metrics is not None:
            self._metrics.ended(group, answers)
        self._attempt_log.ended(group, answers)
        self._done(group)

    def _settle_apart(self, group: list[Ended]) -> None:
        """Nobody knows what became of this batch: one of it may hold up all the others each time, as a row does that
        somebody has locked. In pieces, and those in pieces again, it holds up nothing but itself."""
        size = -(-len(group) // PIECES)
        for start in range(0, len(group), size):
            task = asyncio.create_task(self._insist(group[start : start + size]))
            self._apart.add(task)
            task.add_done_callback(self._ended_apart)

    def _ended_apart(self, task: asyncio.Task[None]) -> None:
        """An error that is not expected ends the worker: its jobs would otherwise be renewed and never reported."""
        self._apart.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("how jobs ended cannot be reported; this worker ends", exc_info=error)
            self._error = error
            self._some.set()

    async def _insist(self, piece: list[Ended]) -> None:
        backoff = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        while piece:
            async with self._turns:
                piece = await self._deliver(piece, apart=True)
            if piece:
                await self._clock.sleep(backoff.next())

    def _reworded(self, ended: Ended, error: HoldfastError) -> list[Ended]:
        """The database will not have it in these words: a guard said no, or the lifecycle has no such move."""
        run, outcome = ended
        if isinstance(outcome, Failed) and outcome.code == error.code:
            log.error("job %s: neither its end nor its failure could be recorded: %s", run.lease.id, error)
            self._done([ended])
            return []
        return [(run, Failed(error.code, error.message, permanent=isinstance(outcome, Rejected)))]

    def _done(self, group: list[Ended]) -> None:
        for run, _ in group:
            self._settled(run)


def _complete(lease: Lease, outcome: Completed) -> Complete:
    return Complete(lease.id, lease.token, outcome.result)


def _of(report: type[Any]) -> Callable[[Lease, Any], Any]:
    """It has the fields of the outcome, and says which lease it is about."""
    return lambda lease, outcome: report(lease.id, lease.token, **asdict(outcome))


_REPORTS: dict[type[Any], tuple[Callable[[Lease, Any], Any], Callable[[Source, list[Any]], Awaitable[Answers]]]] = {
    Completed: (_complete, lambda source, reports: source.complete(reports)),
    Failed: (_of(Fail), lambda source, reports: source.fail(reports)),
    Released: (_of(Release), lambda source, reports: source.release(reports)),
    Rejected: (_of(Rejection), lambda source, reports: source.reject(reports)),
}
