"""How executions ended, on its way to the database: in batches when busy, at once when idle, until it has arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, SchemaStale, StoreUnavailable
from holdfast.ids import Ids
from holdfast.model.reports import Done, Failure, Freed, Verdict
from holdfast.worker.attempts import Attempts
from holdfast.worker.outcomes import Completed, Failed, Outcome, Rejected, Released
from holdfast.worker.run import Run
from holdfast.worker.source import Answers, Source

if TYPE_CHECKING:
    from holdfast.worker.figures import Figures

BATCH_MAX = 1000
LINGER_SECONDS = 0.002  # while other jobs are about to end too; a lone one does not wait
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.1, 2.0

log = logging.getLogger("holdfast.worker")

Ended = tuple[Run, Outcome]


class Outbox:
    def __init__(
        self,
        source: Source,
        clock: Clock,
        ids: Ids,
        *,
        busy: Callable[[], bool],
        settled: Callable[[Run], None],
        figures: Figures | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self._source, self._figures = source, figures
        self._attempts = attempts or Attempts()
        self._clock, self._ids = clock, ids
        self._busy, self._settled = busy, settled
        self._waiting: list[Ended] = []
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, run: Run, outcome: Outcome) -> None:
        self._waiting.append((run, outcome))
        self._empty.clear()
        self._some.set()

    async def empty(self) -> None:
        await self._empty.wait()

    async def run(self) -> None:
        """Never ends by itself. What could not be delivered is tried again: every report carries its token."""
        pause = PAUSE_SECONDS
        while True:
            await self._some.wait()
            if len(self._waiting) < BATCH_MAX and self._busy():
                await self._clock.sleep(LINGER_SECONDS)
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            undelivered = await self._deliver(batch)
            if undelivered:
                self._waiting = undelivered + self._waiting
                await self._clock.sleep(pause * (0.5 + self._ids.jitter()))
                pause = min(PAUSE_MAX_SECONDS, pause * 2)
                continue
            pause = PAUSE_SECONDS
            if not self._waiting:
                self._some.clear()
                self._empty.set()

    async def _deliver(self, batch: list[Ended]) -> list[Ended]:
        by_kind: dict[type[Any], list[Ended]] = {}
        for ended in batch:
            by_kind.setdefault(type(ended[1]), []).append(ended)
        undelivered: list[Ended] = []
        for kind, group in by_kind.items():
            if kind not in _REPORTS:  # abandoned: there is nothing to say
                if self._figures is not None:
                    self._figures.abandoned(group)
                self._attempts.abandoned(group)
                self._done(group)
            else:
                undelivered += await self._deliver_group(kind, group)
        return undelivered

    async def _deliver_group(self, kind: type[Any], group: list[Ended]) -> list[Ended]:
        try:
            answers = await _REPORTS[kind](self._source, group)
        except (StoreUnavailable, OutcomeUnknown, SchemaStale) as error:
            log.warning("%d reports could not be delivered, trying again: %s", len(group), error)
            return group
        except HoldfastError as error:
            if len(group) == 1:
                return self._reworded(group[0], error)
            return [one for alone in group for one in await self._deliver_group(kind, [alone])]
        for (run, _), answer in zip(group, answers, strict=True):
            if isinstance(answer, LeaseLost):
                log.warning("job %s: its end was refused, the lease is lost: %s", run.lease.id, answer)
        if self._figures is not None:
            self._figures.ended(group, answers)
        self._attempts.ended(group, answers)
        self._done(group)
        return []

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


def _complete(source: Source, group: list[Ended]) -> Awaitable[Answers]:
    return source.complete([Done(run.lease.id, run.lease.token, outcome.result) for run, outcome in group])  # type: ignore[union-attr]


def _fail(source: Source, group: list[Ended]) -> Awaitable[Answers]:
    return source.fail([_failure(run, outcome) for run, outcome in group if isinstance(outcome, Failed)])


def _failure(run: Run, outcome: Failed) -> Failure:
    return Failure(
        id=run.lease.id,
        token=run.lease.token,
        code=outcome.code,
        message=outcome.message,
        context=outcome.context,
        retry_after_seconds=outcome.retry_after_seconds,
        permanent=outcome.permanent,
    )


def _release(source: Source, group: list[Ended]) -> Awaitable[Answers]:
    return source.release(
        [
            Freed(run.lease.id, run.lease.token, outcome.delay_seconds)
            for run, outcome in group
            if isinstance(outcome, Released)
        ]
    )


def _reject(source: Source, group: list[Ended]) -> Awaitable[Answers]:
    return source.reject(
        [
            Verdict(id=run.lease.id, token=run.lease.token, code=outcome.code, message=outcome.message)
            for run, outcome in group
            if isinstance(outcome, Rejected)
        ]
    )


_REPORTS: dict[type[Any], Callable[[Source, list[Ended]], Awaitable[Answers]]] = {
    Completed: _complete,
    Failed: _fail,
    Released: _release,
    Rejected: _reject,
}
