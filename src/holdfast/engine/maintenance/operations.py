"""`engine.maintenance`: bounded steps that any number of processes may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine import accept as _accept
from holdfast.engine import claim_requests as _claims
from holdfast.engine.admin import workers as _workers
from holdfast.engine.component import Component, reading, writing
from holdfast.engine.maintenance import clock_correction as _set_back
from holdfast.engine.maintenance import event_log as _event_log
from holdfast.engine.maintenance import extension_tasks as _tasks
from holdfast.engine.maintenance import prune as _prune
from holdfast.engine.maintenance import reap as _reap
from holdfast.engine.maintenance import requeue as _requeue
from holdfast.engine.maintenance import worker_events as _worker_log
from holdfast.model import WorkerRecord
from holdfast.store import PostgresStore, Row


class Maintenance(Component):
    """Each step does at most one batch and is safe to run anywhere at any time."""

    requeue_due = writing(_requeue.requeue_due)

    async def reap(
        self,
        *,
        queues: list[str] | None = None,
        gone: list[str] | None = None,
        unheard_seconds: float = 0.0,
        limit: int | None = None,
    ) -> list[Row]:
        wanted: dict[str, Any] = {"queues": queues, "gone": gone, "unheard_seconds": unheard_seconds, "limit": limit}
        in_grace = await self._in_grace()
        return await self.store.write(lambda tx: _reap.reap(tx, self.ctx, in_grace=in_grace, **wanted))

    async def record_sweep(self) -> None:
        """In place of `reap`, when nothing runs: that a process looked is to be known."""
        if not await self.store.write(lambda tx: _reap.record_sweep(tx, self.ctx), alone=True):
            await self._in_grace()

    async def _in_grace(self) -> bool:
        """Does silence prove nothing yet? Where the clock was set back, the times are corrected first."""
        swept = await self.store.write(lambda tx: _reap.last_sweep(tx, self.ctx), alone=True)
        if swept.set_back:
            await _set_back.correct_times(self.store, self.ctx)
        return swept.in_grace

    drop_claim_batches = writing(_reap.drop_claim_batches)
    accept_orphans = writing(_accept.accept_orphans)
    prune = writing(_prune.prune)
    overdue = reading(_prune.overdue)

    async def mark_silent_workers(self) -> list[WorkerRecord]:
        if await self._in_grace():
            return []
        return await self.store.write(_workers.mark_silent)

    forget_workers = writing(_workers.forget)

    async def record_worker_events(self) -> int:
        """Record an event for each worker whose status has changed."""
        if await self.store.read(_worker_log.is_all_said):
            return 0
        return await self.store.write(lambda tx: _worker_log.record_worker_events(tx, self.ctx))

    prune_worker_events = writing(_worker_log.prune_worker_events)
    prune_claim_requests = writing(_claims.prune_claims)

    async def rebase_event_log(self) -> bool:
        """After a dump was restored on another server: let new events sort after all existing ones. True: done."""
        if not isinstance(self.store, PostgresStore) or not await self.store.read(_event_log.is_ahead):
            return False
        # While this waits for a long transaction, all writers wait behind it: try once, with a short timeout.
        await self.store.write(_event_log.rebase_within, retry_locked=False)
        return True

    async def extension_tasks(self, tasks: Sequence[_tasks.Task]) -> _tasks.DueTasks:
        """What the extensions of this process want to be done; on the way it says which these are."""
        found = await self.store.read(lambda tx: _tasks.due_tasks(tx, self.ctx, tasks))
        if found.unseen or found.unknown:
            await self.store.write(lambda tx: _tasks.record_extensions(tx, self.ctx, found.unknown))
        return found

    run_extension_task = writing(_tasks.run_task)
