"""Periodic maintenance in every server and worker: requeue, reap, prune, in bounded batches and without a leader."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sized

from holdfast.backoff import delay
from holdfast.clock import Clock
from holdfast.engine import Engine, Retention
from holdfast.engine.maintenance.extension_tasks import SOON_SECONDS, Task
from holdfast.engine.polls.due_work import DueWork
from holdfast.errors import StoreError
from holdfast.ids import Ids
from holdfast.maintenance.rotation import Rotation
from holdfast.outage_log import LoopFailures, is_outage, outage

RETRY_SECONDS = 0.5
WORKER_EVENTS_SECONDS = 1.0
PRUNE_ROUNDS = 3  # one in so many rounds prunes; every round while there is more to delete
PRUNE_SECONDS = 2.0  # of pruning in one round
TOGETHER = 0.5  # of the interval between the sweeps of all processes: one that misses its turn leaves no long gap
CLAIMS_KEPT_SECONDS = 3600.0  # a claim request is retried within seconds
WORKERS_KEPT_SECONDS = 86_400.0  # after a worker process has ended

Step = Callable[[], Awaitable[Sized | int | None]]

log = logging.getLogger(__name__)


class Maintainer:
    """Not a job itself, so that what rescues jobs cannot get stuck like one."""

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
        """Sweeps periodically until cancelled."""
        while True:
            while await self.sweep():
                continue
            if self._failures:
                await self._clock.sleep(delay(self._failures, RETRY_SECONDS, self._every, self._ids.jitter()))
            else:
                await self._rotation.wait(self._every, together=TOGETHER * self._every)

    async def sweep(self) -> bool:
        """Each step that is due, once. True when one of them filled its batch: there may be more to do at once."""
        full, failed = False, False
        try:
            polls = self._engine.polls
            chores = await polls.due_work(workers_kept=WORKERS_KEPT_SECONDS, claims_kept=CLAIMS_KEPT_SECONDS)
        except Exception as error:  # run every step: each finds out by itself
            chores, failed = DueWork(), True
            self._log_failure("look", error)
        for name, step in self._steps(chores):
            try:
                full = _count(await step()) >= self._engine.limits.sweep_batch or full
            except Exception as error:
                failed = True
                self._log_failure(name, error)
        self._failures = self._failures + 1 if failed else 0
        return full and not failed

    def _steps(self, chores: DueWork) -> list[tuple[str, Step]]:
        job_types, work = self._engine.job_types, self._engine.maintenance
        kept = self._retention
        prunes = self._more_to_prune or self._rounds % PRUNE_ROUNDS == 0
        prunes = prunes and (bool(kept.limits()) or kept.attempts is not None)
        self._rounds += 1
        steps: list[tuple[str, object, Step]] = [
            ("rebase_event_log", chores.log_ahead, work.rebase_event_log),
            ("adopt", job_types.adopts, job_types.adopt),
            ("requeue", chores.ripe, work.requeue_due),
            ("drop_claim_batches", chores.batches, work.drop_claim_batches),
            ("reap", chores.running, work.reap),  # reads the jobs of all batches
            ("record_sweep", chores.unswept and not chores.running, work.record_sweep),
            ("accept", chores.orphans, work.accept_orphans),
            ("mark_silent", chores.silent, work.mark_silent_workers),
            ("forget_workers", chores.forgotten, lambda: work.forget_workers(WORKERS_KEPT_SECONDS)),
            ("prune_claims", chores.claims, lambda: work.prune_claim_requests(CLAIMS_KEPT_SECONDS)),
            ("prune_sessions", chores.sessions, self._engine.sessions.prune),
            ("open_full_lanes", chores.full_keys, self._engine.job_limits.open_full_lanes),
            ("recount_limits", chores.changed_limits, self._engine.job_limits.recount),
            ("prune_tokens", chores.tokens, self._engine.job_limits.prune_tokens),
            ("prune_worker_events", chores.lines, work.prune_worker_events),
            ("prune", prunes, self._prune),
        ]
        return [(name, step) for name, due, step in steps if due]

    def _log_failure(self, step: str, error: Exception) -> None:
        """Once for each time that it begins to fail."""
        if is_outage(error):
            outage.failed(f"do maintenance ({step})", error, often=False)
        elif not self._failures:
            unexpected = None if isinstance(error, StoreError) else error
            log.warning("maintenance (%s) failed, retrying: %s", step, error, exc_info=unexpected)

    async def _prune(self) -> int:
        """Batch after batch while they are full, so that pruning keeps up with any rate of work."""
        until = self._clock.monotonic() + PRUNE_SECONDS
        self._more_to_prune = False
        while (gone := await self._engine.maintenance.prune(self._retention)) >= self._engine.limits.sweep_batch:
            if self._clock.monotonic() >= until:
                self._more_to_prune = True
                break
        return gone


def _count(done: Sized | int | None) -> int:
    return done if isinstance(done, int) else len(done or ())


class ExtensionMaintainer:
    """Runs the maintenance tasks of extensions, in a loop of its own: a long task must not delay a sweep."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, tasks: Iterable[Task]) -> None:
        self._engine, self._clock, self._ids, self._tasks = engine, clock, ids, list(tasks)
        self._failing = LoopFailures("run extension maintenance", log, often=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(await self.round() * (1 + 0.1 * self._ids.jitter()))

    async def round(self) -> float:
        """Runs the tasks that are due; returns how long to wait after that."""
        try:
            upkeep = await self._engine.maintenance.extension_tasks(self._tasks)
            until = self._clock.monotonic() + upkeep.pause
            for task in upkeep.due:
                await self._engine.maintenance.run_extension_task(task)
                if self._clock.monotonic() >= until:  # check again which tasks are due
                    break
            self._failing.succeeded()
            return SOON_SECONDS if upkeep.due or upkeep.unknown else upkeep.pause
        except Exception as error:
            self._failing.failed(error)
            return RETRY_SECONDS * 2


class WorkerEventRecorder:
    """Records that workers came and went, for the event streams of servers: only servers run it."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._failing = LoopFailures("record worker events", log, often=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._engine.maintenance.record_worker_events()
                self._failing.succeeded()
            except Exception as error:
                self._failing.failed(error)
            await self._clock.sleep(WORKER_EVENTS_SECONDS * (0.75 + 0.5 * self._ids.jitter()))
