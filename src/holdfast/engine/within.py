"""`engine.within(tx)`: verbs inside an open transaction of a handler or of an extension's route."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine import cancel as _cancel
from holdfast.engine import complete as _complete
from holdfast.engine import create as _create
from holdfast.engine import leases as _leases
from holdfast.engine import wake as _wake
from holdfast.engine import withdraw as _withdraw
from holdfast.engine.context import EngineContext
from holdfast.engine.insert import Created
from holdfast.engine.leases import the_only
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.model.reports import Complete, HeldLease, Settled, Withdrawal, Withdrawn
from holdfast.store import Tx


class Within(NamedTuple):
    tx: Tx
    ctx: EngineContext

    async def create(self, job: NewJob) -> Created:
        return (await _create.create(self.tx, self.ctx, [job], actor=Actor.CLIENT))[0]

    async def cancel(self, job_id: str, *, reason: str = "canceled", tenant: str | None = None) -> _cancel.Canceling:
        return await _cancel.cancel(self.tx, self.ctx, job_id, reason=reason, tenant=tenant)

    async def wake(self, job_id: str, *, tenant: str | None = None) -> bool:
        return await _wake.wake(self.tx, self.ctx, job_id, tenant=tenant)

    async def holder(self, lease: HeldLease) -> str:
        """The worker that holds the job of this lease."""
        return await _leases.holder_of(self.tx, self.ctx, lease)

    async def hold(self, lease: HeldLease) -> None:
        """Lock the job of this lease until the transaction ends."""
        await _leases.hold(self.tx, self.ctx, lease)

    async def complete(self, worker: str, item: Complete) -> Settled:
        return the_only(await _complete.complete(self.tx, self.ctx, worker, [item]))

    async def withdraw(self, worker: str, request: Withdrawal) -> Withdrawn:
        """The last operation of the transaction must be `hold` or `complete`, which check the lease."""
        return await _withdraw.withdraw_unfenced(self.tx, self.ctx, worker, request)
