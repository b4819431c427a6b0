"""The source of a test's worker: stops it when nothing is left to run, and records how executions ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.model import Lease
from holdfast.model.reports import Release, Settled
from holdfast.store.presence import Presence
from holdfast.testing.clock import SharedClock
from holdfast.worker.source import Answers, Claims, Names, Report
from holdfast.worker.sources.database import DatabaseSource

if TYPE_CHECKING:
    from holdfast.worker.runtime import Worker

MOVES_MAX = 1000
PAUSE_FIRST_SECONDS, PAUSE_SECONDS = 0.001, 0.02


class DrainSource(DatabaseSource):
    """`until_done`: when nothing is due, move the clock to the next due time, as long as a job waits."""

    runtime: Worker

    def __init__(self, engine: Engine, clock: SharedClock, ids: Ids, *, worker: str, until_done: bool) -> None:
        super().__init__(engine, Presence(ids, None), clock, worker=worker)
        self.ended: list[tuple[Lease, Report]] = []
        self.endless = False
        self._time, self._until_done, self._moves = clock, until_done, 0
        self._leases: dict[str, Lease] = {}
        self._pause = PAUSE_FIRST_SECONDS
        self._quiet = False  # nothing ran when the last claim began, so nothing can have become due since

    async def claim(self, limit: int, *, queues: Names, types: Names, reserved: bool = False) -> Claims:
        self._quiet = not self.runtime.slots.executions
        claimed = await super().claim(limit, queues=queues, types=types, reserved=reserved)
        self._leases |= {lease.token: lease for lease, _ in claimed}
        if claimed:
            self._pause = PAUSE_FIRST_SECONDS
        return claimed

    async def recover_claims(self, known: set[str]) -> Claims:
        found = await super().recover_claims(known)
        self._leases |= {lease.token: lease for lease, _ in found}
        return found

    async def wait(self, seconds: float, queues: Names = None, types: Names = None, *, reserved: bool = False) -> bool:
        """A claim found nothing. Running jobs may still enqueue others; when nothing runs either, stop the worker."""
        while self.runtime.slots.executions:
            await self._clock.sleep(self._pause)
            self._pause = min(PAUSE_SECONDS, self._pause * 2)
            if (await self.engine.polls.poll(self.worker, queues, types)).any:
                return True
        if not self._quiet or await self._moved_on():
            return True
        self.runtime.stop()
        return False

    async def _moved_on(self) -> bool:
        if not self._until_done or (next_in := (await self.engine.polls.poll(self.worker)).next_in) is None:
            return False
        self._moves += 1
        self.endless = self._moves > MOVES_MAX
        self._time.advance(0 if self.endless else next_in)
        return not self.endless

    # -- reports ----------------------------------------------------------------------------------------------

    async def settle(self, reports: Sequence[Report]) -> Answers:
        answers = await super().settle(reports)
        for report, answer in zip(reports, answers, strict=True):
            if isinstance(answer, Settled) and not _never_began(report, answer):
                self.ended.append((self._leases[report.token], report))
        return answers


def _never_began(report: Report, answer: Settled) -> bool:
    """A job that the worker could not start was released, to be claimed again at once."""
    return (
        isinstance(report, Release)
        and report.delay_seconds == 0
        and not report.children
        and answer.state is not State.CANCELED
    )
