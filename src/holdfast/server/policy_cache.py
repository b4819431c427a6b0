"""Caches the policies of jobs, so that reports of jobs claimed through this server need no extra query."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engine import Engine
from holdfast.engine.registry import Snapshot
from holdfast.model import Lease

JOBS_MAX = 50_000
POLICIES_MAX = 10_000


class PolicyCache:
    """Policies are immutable, so entries never become stale."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._policies: dict[str, int] = {}  # of jobs
        self._snapshots: dict[int, Snapshot] = {}
        engine.ctx.registry.forgotten += [self._policies.clear, self._snapshots.clear]

    async def of_lease(self, lease: Lease) -> Snapshot:
        self._remember({lease.id: lease.policy})
        return await self._snapshot(lease.policy)

    async def of_jobs(self, job_ids: Iterable[str]) -> dict[str, Snapshot]:
        wanted = list(job_ids)
        known = {job_id: self._policies[job_id] for job_id in wanted if job_id in self._policies}
        if unknown := [job_id for job_id in wanted if job_id not in known]:
            found = await self._engine.reads.policies_of_jobs(unknown)
            self._remember(found)
            known |= found
        return {job_id: await self._snapshot(number) for job_id, number in known.items()}

    def _remember(self, policies: dict[str, int]) -> None:
        if len(self._policies) >= JOBS_MAX:
            self._policies.clear()
        self._policies.update(policies)

    async def _snapshot(self, number: int) -> Snapshot:
        if (known := self._snapshots.get(number)) is not None:
            return known
        if len(self._snapshots) >= POLICIES_MAX:  # jobs may have their own policies
            self._snapshots.clear()
        found = self._snapshots[number] = await self._engine.reads.snapshot(number)
        return found
