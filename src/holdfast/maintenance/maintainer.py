"""Maintenance on a timer: engine verbs, bounded and without a leader, in every server and every worker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.backoff import delay
from holdfast.clock import Clock
from holdfast.engine import Engine, Retention
from holdfast.engine.maintenance.due_work import Chores
from holdfast.engine.maintenance.extension_tasks import SOON_SECONDS, Task
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.maintenance.rotation import Rotation
from holdfast.outage_log import LoopFailures, is_outage, outage

RETRY_SECONDS = 0.5
WORKER_LOG_SECONDS = 1.0
SELDOM = 3  # of so many rounds, one prunes; while more waits to be deleted, each of them
PRUNE_SECONDS = 2.0  # of pruning in one round: then the other steps have their turn
TOGETHER = 0.5  # of the interval: nobody who misses a turn or two makes a gap that looks as if nobody could sweep
CLAIMS_KEPT_SECONDS = 3600.0  # whoever repeats a request does so within seconds
WORKERS_KEPT_SECONDS = 86_400.0  # after a worker process has ended: long enough to be asked about in the morning

log = logging.getLogger(__name__)


class Maintainer:
    """It is no job and it needs none, so that what rescues jobs cannot get stuck like one (K10)."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        *,
        every: float,
        retention: Retention,
        rotation: Rotation | None = None,
    ) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._every, self._retention = every, retention
        self._rotation = rotation or Rotation(clock, ids)
        self._failures = 0
        self._rounds = 0
        self._more_to_prune = False

    async def run(self) -> None:
        """Until cancelled: again and again, not only at a start (K22)."""
        while True:
            while await self.sweep():
                continue
            if self._failures:
                await self._clock.sleep(delay(self._failures, RETRY_SECONDS, self._every, self._ids.jitter()))
            else:
                await self._rotation.wait(self._every, together=TOGETHER * self._every)

    async def sweep(self) -> bool:
        """Each step that is due, once. True when one of them was full: there may be more to do at once."""
        full, failed = False, False
        try:
            chores = await self._look()
        except Exception as error:  # then each step finds out for itself
            chores, failed = Chores(), True
            self._note(self._look, error)
        for step in self._steps(chores):
            try:
                full = await step() >= self._engine.limits.sweep_batch or full
            except Exception as error:
                failed = True
                self._note(step, error)
        self._failures = self._failures + 1 if failed else 0
        return full and not failed

    async def _look(self) -> Chores:
        return await self._engine.polls.due_work(workers_kept=WORKERS_KEPT_SECONDS, claims_kept=CLAIMS_KEPT_SECONDS)

    def _steps(self, chores: Chores) -> list[Callable[[], Awaitable[int]]]:
        prunes = (self._more_to_prune or self._rounds % SELDOM == 0) and self._retention.deletes
        self._rounds += 1
        steps = {
            self._rebase_event_log: chores.log_ahead,
            self._adopt: self._engine.job_types.adopts,
            self._requeue: chores.ripe,
            self._reap: chores.running,
            self._mark_swept: chores.unswept and not chores.running,
            self._accept: chores.orphans,
            self._mark_silent: chores.silent,
            self._forget_workers: chores.forgotten,
            self._prune_claims: chores.claims,
            self._prune_sessions: chores.sessions,
            self._prune_worker_log: chores.lines,
            self._prune: prunes,
        }
        return [step for step, due in steps.items() if due]

    def _note(self, step: Callable[[], Awaitable[object]], error: Exception) -> None:
        """Once for each time that it begins to fail."""
        if is_outage(error):
            outage.failed(f"do maintenance ({step.__name__[1:]})", error, often=False)
        elif not self._failures:
            unexpected = None if isinstance(error, StoreError) else error
            log.warning("maintenance (%s) failed, retrying: %s", step.__name__[1:], error, exc_info=unexpected)

    async def _rebase_event_log(self) -> int:
        await self._engine.maintenance.rebase_event_log()
        return 0

    async def _adopt(self) -> int:
        await self._engine.job_types.adopt()
        return 0

    async def _requeue(self) -> int:
        return await self._engine.maintenance.requeue_due()

    async def _reap(self) -> int:
        return len(await self._engine.maintenance.reap())

    async def _mark_swept(self) -> int:
        await self._engine.maintenance.record_sweep()
        return 0

    async def _accept(self) -> int:
        return await self._engine.maintenance.accept_orphans()

    async def _mark_silent(self) -> int:
        return len(await self._engine.maintenance.mark_silent_workers())

    async def _forget_workers(self) -> int:
        return await self._engine.maintenance.forget_workers(WORKERS_KEPT_SECONDS)

    async def _prune_claims(self) -> int:
        return await self._engine.maintenance.prune_claim_requests(CLAIMS_KEPT_SECONDS)

    async def _prune_sessions(self) -> int:
        return await self._engine.sessions.prune()

    async def _prune_worker_log(self) -> int:
        return await self._engine.maintenance.prune_worker_events()

    async def _prune(self) -> int:
        """Step after step while they are full, so that deleting keeps up with any rate of work."""
        until = self._clock.monotonic() + PRUNE_SECONDS
        self._more_to_prune = False
        while (gone := await self._engine.maintenance.prune(self._retention)) >= self._engine.limits.sweep_batch:
            if self._clock.monotonic() >= until:
                self._more_to_prune = True
                break
        return gone


class ExtensionMaintainer:
    """What extensions want done from time to time. It runs beside our own: a long task keeps no sweep waiting."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, tasks: Iterable[Task]) -> None:
        self._engine, self._clock, self._ids, self._tasks = engine, clock, ids, list(tasks)
        self._failing = LoopFailures("do the maintenance of extensions", log, often=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(await self.round() * (1 + 0.1 * self._ids.jitter()))

    async def round(self) -> float:
        """What is due, once, and how long to wait after that."""
        try:
            upkeep = await self._engine.maintenance.extension_tasks(self._tasks)
            until = self._clock.monotonic() + upkeep.pause
            for task in upkeep.due:
                await self._engine.maintenance.run_extension_task(task)
                if self._clock.monotonic() >= until:  # that this process lives must be said in between
                    break
            self._failing.succeeded()
            return SOON_SECONDS if upkeep.due or upkeep.unknown else upkeep.pause
        except Exception as error:
            self._failing.failed(error)
            return RETRY_SECONDS * 2


class WorkerEventRecorder:
    """Only in servers: nobody else can be watched, and whoever watches wants to hear of a worker within a second."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._noting = LoopFailures("note what workers do", log, often=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._engine.maintenance.record_worker_events()
                self._noting.succeeded()
            except Exception as error:
                self._noting.failed(error)
            await self._clock.sleep(WORKER_LOG_SECONDS * (0.75 + 0.5 * self._ids.jitter()))
