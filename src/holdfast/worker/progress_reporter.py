"""Sends the progress of running handlers to the database, and waits out outages, so that handlers do not see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, KeysView, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.backoff import Backoff
from holdfast.batching import Batcher
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LeaseLost, RowRefused, StoreError, StoreUnavailable
from holdfast.ids import Ids
from holdfast.model import Part
from holdfast.model.reports import Advanced, Progress, Withdrawal, Withdrawn
from holdfast.outage_log import outage
from holdfast.worker.connectivity import Connectivity
from holdfast.worker.execution import Execution, StopReason
from holdfast.worker.source import Source

PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 1.0
SLOW_SECONDS = 0.5  # a report that takes longer waits for the database; its time does not count against the handler

log = logging.getLogger("holdfast.worker")
_T = TypeVar("_T")


@dataclass
class _Wait:
    """How long one execution waits for the database, and for which of its reports."""

    since: float
    reports: set[object] = field(default_factory=set)


class ProgressReporter:
    """`waiting`: the executions whose handlers wait for the database: a report failed, or took `SLOW_SECONDS`. No
    timeout of the job can end it meanwhile, and all of them are extended by that time afterwards.

    `fence`: for how many seconds a report is retried at most where no heartbeat tells that the lease is lost.
    """

    def __init__(
        self,
        source: Source,
        connectivity: Connectivity,
        clock: Clock,
        ids: Ids,
        *,
        fence: Callable[[Execution], float | None],
    ) -> None:
        self._source, self._connectivity, self._clock, self._ids = source, connectivity, clock, ids
        self._fence = fence
        self._batches: Batcher[Progress, Advanced] = Batcher(self._send_batch)
        self._waits: dict[Execution, _Wait] = {}

    @property
    def waiting(self) -> KeysView[Execution]:
        return self._waits.keys()

    async def progress(self, run: Execution, report: Progress) -> Advanced:
        """Call it for one report of an execution at a time, so that the newest is stored last."""
        return await self._send(run, lambda: self._batches.put(report), lambda: self._send_alone(report))

    async def parts(self, run: Execution) -> list[Part]:
        return await self._send(run, lambda: self._connectivity.call(self._source.parts(run.lease.id)))

    async def withdraw(self, run: Execution, asked: Withdrawal) -> Withdrawn:
        return await self._send(run, lambda: self._connectivity.call(self._source.withdraw(asked)))

    def _send_batch(self, reports: list[Progress]) -> Awaitable[Sequence[Advanced | HoldfastError]]:
        return self._connectivity.call(self._source.progress(reports))

    async def _send_alone(self, report: Progress) -> Advanced:
        """Not in a batch: another report may have made that fail."""
        [answer] = await self._send_batch([report])
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _send(
        self, run: Execution, first: Callable[[], Awaitable[_T]], again: Callable[[], Awaitable[_T]] | None = None
    ) -> _T:
        """Retries until it is stored, or the lease is lost. A retry does no harm: the report carries its token, and
        storing it twice changes nothing."""
        report, began = object(), self._clock.monotonic()
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._wait_begins, run, report)
        try:
            try:
                return await first()
            except RowRefused:  # a retry cannot help
                raise
            except StoreError as error:
                self._wait_begins(run, report)
                if isinstance(error, StoreUnavailable):
                    outage.failed(f"report the progress of job {run.lease.id}", error, often=False)
                else:
                    log.info("job %s: progress report failed, retrying: %s", run.lease.id, error)
            return await self._retry(run, again or first, began)
        finally:
            slow.cancel()
            self._wait_ends(run, report)

    def _wait_begins(self, run: Execution, report: object) -> None:
        wait = self._waits.setdefault(run, _Wait(self._clock.monotonic()))
        wait.reports.add(report)

    def _wait_ends(self, run: Execution, report: object) -> None:
        """Its timeouts go on when none of its reports waits any more."""
        if (wait := self._waits.get(run)) is None:
            return
        wait.reports.discard(report)
        if not wait.reports:
            del self._waits[run]
            run.extend_timeouts(self._clock.monotonic() - wait.since)

    async def _retry(self, run: Execution, again: Callable[[], Awaitable[_T]], began: float) -> _T:
        backoff, fence = Backoff(self._ids, PAUSE_SECONDS, PAUSE_MAX_SECONDS), self._fence(run)
        while True:
            await self._clock.sleep(backoff.next())
            if run.finished or run.stop_reason is StopReason.LOST:
                raise _lost(run)
            try:
                return await again()
            except RowRefused:
                raise
            except StoreError:
                pass
            if fence is not None and self._clock.monotonic() - began > fence:
                raise _lost(run)


def _lost(run: Execution) -> LeaseLost:
    return LeaseLost(f"job {run.lease.id}: the lease expired while the database could not be reached; stop the handler")
