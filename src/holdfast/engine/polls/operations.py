"""`engine.polls`: cheap questions that workers, servers and maintenance ask about once a second."""

from __future__ import annotations

from holdfast.engine.context import Component
from holdfast.engine.polls import claimable as _claimable
from holdfast.engine.polls import due_work as _due_work
from holdfast.engine.polls import open_work as _open_work
from holdfast.model import Lease
from holdfast.model.reports import (
    HeldLease,
)


class Polls(Component):
    """Each is one read; what it finds is only a hint for the verb that follows."""

    async def poll(
        self, worker: str, queues: list[str] | None = None, types: list[str] | None = None
    ) -> _claimable.ClaimPoll:
        """What a claim would find, in one query: an idle worker asks this first."""
        return await self.store.read(lambda tx: _claimable.poll(tx, self.ctx, worker, queues, types))

    async def to_stop(self, worker: str, leases: list[HeldLease]) -> list[HeldLease]:
        """Those that should not go on; a heartbeat then tells which are lost and which canceled."""
        return await self.store.read(lambda tx: _claimable.to_stop(tx, worker, leases))

    async def held_by(self, worker: str, *instances: str) -> list[HeldLease]:
        """What one process of a worker holds, by its names: asked when the answer to its claim was lost."""
        return await self.store.read(lambda tx: _claimable.held_by(tx, worker, list(instances)))

    async def leases(self, held: list[HeldLease]) -> list[Lease]:
        """Those of them that are current, in full."""
        return await self.store.read(lambda tx: _claimable.leases(tx, held))

    async def open_work(self, queues: list[str] | None = None, types: list[str] | None = None) -> _open_work.OpenWork:
        """What there is to claim, asked by one for all who wait."""
        return await self.store.read(lambda tx: _open_work.open_work(tx, self.ctx, queues, types))

    async def claimants(self, workers: list[str]) -> dict[str, _open_work.Claimant]:
        return await self.store.read(lambda tx: _open_work.claimants(tx, workers))

    async def instances(self) -> list[str]:
        """The processes that hold jobs: of these a watcher asks whether they live, and gives the dead to `reap`."""
        return await self.store.read(_claimable.instances)

    async def due_work(self, *, workers_kept: float, claims_kept: float) -> _due_work.DueWork:
        """Which of these steps may find something to do: asked first, because most of the time none does."""
        return await self.store.read(
            lambda tx: _due_work.due_work(tx, self.ctx, workers_kept=workers_kept, claims_kept=claims_kept)
        )
