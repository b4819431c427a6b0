"""`engine.reads`: jobs, history, statistics, health and policies, each in one read transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.engine.context import Component
from holdfast.engine.reads import diagnosis as _diagnosis
from holdfast.engine.reads import extension_checks as _probes
from holdfast.engine.reads import health as _vitals
from holdfast.engine.reads import live_view as _live_view
from holdfast.engine.reads import missing_extensions as _missing
from holdfast.engine.reads import queue_stats as _depths
from holdfast.engine.reads import read as _read
from holdfast.engine.reads import why as _why
from holdfast.engine.registry import TYPES_FRESH_SECONDS, Snapshot
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Lifecycles, Policy
from holdfast.model import Attempt, Event, Job, JobType, Part
from holdfast.model.summary import JobSummary
from holdfast.store import Row, q
from holdfast.store.diagnostics import PostgresState, SqliteState, postgres_state, sqlite_state, weak_settings


class Reads(Component):
    """Reads without side effects: always the committed state."""

    async def get(self, job_id: str, tenant: str | None = None) -> Job:
        return await self.store.read(lambda tx: _read.get(tx, job_id, tenant))

    async def page(
        self, wanted: _read.Filter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> _read.Page:
        return await self.store.read(lambda tx: _read.page(tx, wanted or _read.Filter(), cursor=cursor, limit=limit))

    async def page_summaries(
        self, wanted: _read.Filter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[JobSummary], str | None]:
        return await self.store.read(lambda tx: _read.page_outlines(tx, wanted, cursor=cursor, limit=limit))

    async def summaries(self, wanted: list[tuple[str, str]]) -> list[JobSummary | HoldfastError]:
        """Of (job, tenant) each: what clients ask after, many in one query."""
        return await self.store.read(lambda tx: _read.outlines(tx, wanted))

    async def children(self, job_id: str, *, limit: int = 1000) -> list[Job]:
        """The jobs whose parent it is, the oldest first."""
        return await self.store.read(lambda tx: _read.children(tx, job_id, limit=limit))

    async def ids_beginning(self, text: str, *, limit: int) -> list[str]:
        """The ids that begin with this text."""
        return await self.store.read(lambda tx: _read.beginning(tx, text, limit=limit))

    async def counts(self, wanted: _read.Filter | None = None) -> list[tuple[str, str, Any, int]]:
        return await self.store.read(lambda tx: _read.counts(tx, wanted or _read.Filter()))

    async def history(self, job_id: str, *, after: int = 0, limit: int = _read.HISTORY_MAX) -> list[Event]:
        return await self.store.read(lambda tx: _read.history(tx, job_id, after=after, limit=limit))

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await self.store.read(lambda tx: _read.attempts(tx, job_id))

    async def parts(self, job_id: str) -> list[Part]:
        return (await self.store.read(lambda tx: _read.parts(tx, [job_id])))[job_id]

    async def parts_to_do(self, job_ids: list[str]) -> dict[str, list[Part]]:
        return await self.store.read(lambda tx: _read.unfinished_as_pending(tx, job_ids))

    async def feed(self, after: _read.Cursor | None = None, *, limit: int = 1000) -> tuple[list[Event], _read.Cursor]:
        return await self.store.read(lambda tx: _read.feed(tx, after or _read.Cursor(), limit=limit))

    async def feed_end(self) -> _read.Cursor:
        return await self.store.read(_read.feed_end)

    async def log_extent(self) -> _read.Extent:
        """Which part of the log there is to read: to see whether a reader can go on from where it was."""
        return await self.store.read(_read.extent)

    async def why(self, job_id: str, tenant: str | None = None) -> list[_why.Clause]:
        return await self.store.read(lambda tx: _why.why(tx, self.ctx, job_id, tenant))

    async def queue_stats(self, max_age_seconds: float = 10.0) -> _depths.QueueStats:
        """How much waits and runs, not older than that (or than a count is worth): one process counts for all."""
        return await _depths.queue_stats(self.store, self.ctx, max_age_seconds)

    async def health(self) -> _vitals.SystemHealth:
        return await self.store.read(lambda tx: _vitals.health(tx, self.store.dialect))

    async def live_counts(self) -> _live_view.Counts:
        return await self.store.read(_live_view.counts)

    async def live_activity(self, before: _live_view.Activity | None) -> _live_view.Activity:
        """What runs now, and what happened since the activity `before`."""
        return await self.store.read(lambda tx: _live_view.activity(tx, self.ctx.registry, before))

    async def diagnosis(self, *, sweep_seconds: float, lease_seconds: float) -> _diagnosis.Diagnosis:
        return await self.store.read(lambda tx: _diagnosis.diagnosis(tx, sweep_seconds, lease_seconds))

    async def postgres_state(self) -> PostgresState:
        return await self.store.read(postgres_state)

    async def sqlite_state(self) -> SqliteState:
        return await self.store.read(sqlite_state)

    async def applied_migrations(self) -> list[Row]:
        return await self.store.read(lambda tx: tx.all(q.applied_migrations))

    async def weak_settings(self) -> list[str]:
        """What makes acknowledged jobs less than durable here."""
        return await self.store.read(lambda tx: weak_settings(tx, self.store.dialect))

    async def now(self) -> datetime:
        """The time by which the database decides."""
        row = await self.store.read(lambda tx: tx.one(q.clock))
        at: datetime = row["now_at"] if row else self.ctx.clock.now()
        return at

    async def lifecycles(self) -> Lifecycles:
        """Those of this process, and those of every app whose job types the database has."""
        if self.ctx.registry.types_age >= TYPES_FRESH_SECONDS:
            await self.store.read(self.ctx.registry.types)
        return self.ctx.lifecycles

    async def job_types(self) -> dict[str, JobType]:
        """Every job type that some app has declared."""
        return await self.store.read(self.ctx.registry.types)

    async def snapshot(self, number: int) -> Snapshot:
        """That policy with the lifecycle it belongs to."""
        return await self.store.read(lambda tx: self.ctx.registry.snapshot(tx, number))

    async def snapshots(self, jobs: list[Job]) -> dict[int, Snapshot]:
        """The lifecycle and the policy that each job was created under, by the number that the job names."""
        policies = {job.policy for job in jobs}
        return await self.store.read(lambda tx: self.ctx.registry.snapshots(tx, policies))

    async def policy(self, number: int) -> Policy:
        """The policy that a lease or a job names; it never changes."""
        return (await self.snapshot(number)).policy

    async def policies_of_jobs(self, job_ids: list[str]) -> dict[str, int]:
        """The numbers of the policies that jobs were created under."""
        rows = await self.store.read(lambda tx: tx.all(q.policies_of_jobs, ids=job_ids))
        return {row["id"]: row["policy"] for row in rows}

    async def missing_extensions(self) -> dict[str, int]:
        """Which no live process has, and how many jobs need each of them."""
        return await self.store.read(_missing.missing)

    async def ask_extension(self, probe: _probes.Probe) -> Any:
        """What an extension says, or `Failed`."""
        return await self.store.read(lambda tx: _probes.asked(tx, probe.hook))

    async def check_extension(self, probe: _probes.Probe) -> _probes.Checked:
        return await self.store.read(lambda tx: _probes.checked(tx, probe))
