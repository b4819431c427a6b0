"""`engine.polls`: cheap questions that workers, servers and maintenance ask about once a second."""

from __future__ import annotations

from holdfast.engine.context import Component
from holdfast.engine.maintenance import due_work as _chores
from holdfast.engine.maintenance import open_work as _openings
from holdfast.engine.maintenance import polls as _look
from holdfast.model import Lease
from holdfast.model.reports import (
    HeldLease,
)


class Polls(Component):
    """Each is one read; what it finds is only a hint for the verb that follows."""

    async def poll(
        self, worker: str, queues: list[str] | None = None, types: list[str] | None = None
    ) -> _look.ClaimPoll:
        """What a claim would find, in one query: an idle worker asks this first."""
        return await self.store.read(lambda tx: _look.poll(tx, self.ctx, worker, queues, types))

    async def to_stop(self, worker: str, leases: list[HeldLease]) -> list[HeldLease]:
        """Those that should not go on; a heartbeat then tells which are lost and which canceled."""
        return await self.store.read(lambda tx: _look.to_stop(tx, worker, leases))

    async def held_by(self, worker: str, *instances: str) -> list[HeldLease]:
        """What one process of a worker holds, by its names: asked when the answer to its claim was lost."""
        return await self.store.read(lambda tx: _look.held_by(tx, worker, list(instances)))

    async def leases(self, held: list[HeldLease]) -> list[Lease]:
        """Those of them that are current, in full."""
        return await self.store.read(lambda tx: _look.leases(tx, held))

    async def open_work(self, queues: list[str] | None = None, types: list[str] | None = None) -> _openings.OpenWork:
        """What there is to claim, asked by one for all who wait."""
        return await self.store.read(lambda tx: _openings.open_work(tx, self.ctx, queues, types))

    async def claimants(self, workers: list[str]) -> dict[str, _openings.Claimant]:
        return await self.store.read(lambda tx: _openings.claimants(tx, workers))

    async def instances(self) -> list[str]:
        """The processes that hold jobs: of these a watcher asks whether they live, and gives the dead to `reap`."""
        return await self.store.read(_look.instances)

    async def due_work(self, *, workers_kept: float, claims_kept: float) -> _chores.DueWork:
        """Which of these steps may find something to do: asked first, because most of the time none does."""
        return await self.store.read(
            lambda tx: _chores.due_work(tx, self.ctx, workers_kept=workers_kept, claims_kept=claims_kept)
        )
