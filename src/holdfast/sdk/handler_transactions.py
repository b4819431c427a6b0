"""`ctx.transaction()`: a handler's writes, new jobs and its job's completion in one commit, guarded by the lease."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine import Created, Engine
from holdfast.errors import Invalid
from holdfast.model import Job, Lease, NewJob
from holdfast.model.enqueueable import MakesJobs, new_job_of
from holdfast.model.reports import Complete, HeldLease, Withdrawal, Withdrawn
from holdfast.sdk.handle import JobHandle
from holdfast.store import Tx
from holdfast.store.open_transaction import transaction
from holdfast.worker.outcomes import Recorded

if TYPE_CHECKING:
    from holdfast.sdk.app import App


class HandlerDatabase:
    """The database of an app, for its handlers."""

    def __init__(self, app: App) -> None:
        self._app = app

    @asynccontextmanager
    async def transaction(self, lease: Lease) -> AsyncIterator[HandlerTransaction]:
        """Raises `LeaseLost` if the lease is lost, at the beginning or at the end.

        The job's row is locked only right before the commit, unless the handler calls `hold`: a long transaction must
        not block the heartbeat of its worker.
        """
        engine = await self._app.engine()
        async with transaction(engine.store) as tx:
            worker = await engine.within(tx).holder(HeldLease(lease.id, lease.token))
            job_tx = HandlerTransaction(self._app, engine, tx, lease, worker)
            yield job_tx
            await job_tx.end()

    async def enqueue(
        self, lease: Lease, job: MakesJobs | NewJob | str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> JobHandle[Any]:
        [made] = await self._app.create([_child_of(lease, new_job_of(job, args, kwargs))])
        return JobHandle(self._app, made.id, existed=made.existed)

    async def children(self, lease: Lease) -> list[Job]:
        return await (await self._app.engine()).reads.children(lease.id)

    async def cancel(self, lease: Lease, job_id: str, reason: str) -> bool:
        canceling = await (await self._app.engine()).cancel(job_id, reason=reason, tenant=lease.tenant)
        return bool(canceling.canceled)


def _child_of(lease: Lease, new: NewJob) -> NewJob:
    tenant = lease.tenant if new.tenant == "default" else new.tenant
    return msgspec.structs.replace(new, tenant=tenant, parent_id=new.parent_id or lease.id)


class HandlerTransaction:
    """Implements `worker/transactions.py: JobTx` on the engine. It is a `Tx` too, with the statements of `tx`."""

    def __init__(self, app: App, engine: Engine, tx: Tx, lease: Lease, worker: str) -> None:
        self._app, self._engine, self._tx = app, engine, tx
        self._lease, self._worker = lease, worker
        self.completed: Recorded | None = None
        self.alone, self.lock_seconds, self.lock_errors = tx.alone, tx.lock_seconds, tx.lock_errors
        self.all, self.one, self.run, self.flush = tx.all, tx.one, tx.run, tx.flush
        self.savepoint, self.after_commit = tx.savepoint, tx.after_commit
        self.call, self.wait_for_locks = tx.call, tx.wait_for_locks

    async def enqueue(self, job: MakesJobs | NewJob | str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        new = _child_of(self._lease, new_job_of(job, args, kwargs))

        async def create(jobs: list[NewJob]) -> list[Created]:
            return [await self._engine.within(self._tx).create(jobs[0])]

        [made] = await self._app.traced([new], create)
        return JobHandle(self._app, made.id, existed=made.existed)

    async def cancel(self, job_id: str, reason: str = "canceled") -> bool:
        canceling = await self._engine.within(self._tx).cancel(job_id, reason=reason, tenant=self._lease.tenant)
        return canceling.canceled

    async def withdraw(self, job_id: str, reason: str = "canceled", *, message: str = "") -> Withdrawn:
        lease = self._lease
        asked = Withdrawal(id=lease.id, token=lease.token, target=job_id, reason=reason, message=message)
        return await self._engine.within(self._tx).withdraw(self._worker, asked)

    async def wake(self, job_id: str) -> bool:
        return await self._engine.within(self._tx).wake(job_id, tenant=self._lease.tenant)

    async def hold(self) -> None:
        await self._engine.within(self._tx).hold(HeldLease(self._lease.id, self._lease.token))

    async def complete(self, result: Any = None) -> None:
        if self.completed is not None:
            raise Invalid("this transaction already completes the job", code="already_completed")
        self.completed = Recorded(self._app.handlers[self._lease.type].signature.result(result))

    async def end(self) -> None:
        """The last statement before the commit: completes the job, or checks the lease."""
        if self.completed is None:
            await self.hold()
        else:
            done = Complete(self._lease.id, self._lease.token, self.completed.result)
            await self._engine.within(self._tx).complete(self._worker, done)
