"""What running handlers report, on its way to the database. An outage is waited out here: no handler hears of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.batches import Batches
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LeaseLost, RowRefused, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.model import Part
from holdfast.model.reports import Advanced, Progress
from holdfast.outages import outage
from holdfast.worker.run import Ending, Run
from holdfast.worker.source import Source

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 1.0

log = logging.getLogger("holdfast.worker")
_T = TypeVar("_T")


class Reporting:
    """`waiting`: the runs whose handlers wait for the database. That time is not the handler's: no clock of the job's
    policy may run out meanwhile, and it is added to them afterwards.

    `fence`: for how many seconds a report is tried at most where no keeper says that the lease is lost.
    """

    def __init__(self, source: Source, clock: Clock, ids: Ids, *, fence: Callable[[Run], float | None]) -> None:
        self._source, self._clock, self._ids = source, clock, ids
        self._fence = fence
        self._batches: Batches[Progress, Advanced] = Batches(source.progress)
        self.waiting: set[Run] = set()

    async def progress(self, run: Run, report: Progress) -> Advanced:
        """To be called for one report of a run at a time, so that what was said last is stored last."""
        return await self._insist(run, lambda: self._batches.put(report), lambda: self._alone(report))

    async def parts(self, run: Run) -> list[Part]:
        def ask() -> Awaitable[list[Part]]:
            return self._source.parts(run.lease.id)

        return await self._insist(run, ask, ask)

    async def _alone(self, report: Progress) -> Advanced:
        """Not with others: whatever made their batch fail need not be about this one."""
        [answer] = await self._source.progress([report])
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _insist(self, run: Run, first: Callable[[], Awaitable[_T]], again: Callable[[], Awaitable[_T]]) -> _T:
        """Until it is answered, or the job is not ours to speak for any more. A report may be repeated: it has a token,
        and to store it twice is to store it once."""
        try:
            return await first()
        except RowRefused:  # to send it again will not help
            raise
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                outage.failed(f"report the progress of job {run.lease.id}", error, often=False)
            else:
                log.info("job %s: a report waits for the database: %s", run.lease.id, error)
        began, others = self._clock.monotonic(), run in self.waiting
        self.waiting.add(run)
        try:
            return await self._repeat(run, again, began)
        finally:
            if not others:
                self.waiting.discard(run)
                run.excuse(self._clock.monotonic() - began)

    async def _repeat(self, run: Run, again: Callable[[], Awaitable[_T]], began: float) -> _T:
        pause, fence = PAUSE_SECONDS, self._fence(run)
        while True:
            await self._clock.sleep(pause * (0.5 + self._ids.jitter()))
            if run.finished or run.ending is Ending.LOST:
                raise _lost(run)
            try:
                return await again()
            except RowRefused:
                raise
            except StoreError:
                pause = min(PAUSE_MAX_SECONDS, pause * 2)
            if fence is not None and self._clock.monotonic() - began > fence:
                raise _lost(run)


def _lost(run: Run) -> LeaseLost:
    return LeaseLost(
        f"job {run.lease.id}: the database could not be reached until the lease was over; stop, and leave the job to "
        "its next worker"
    )
