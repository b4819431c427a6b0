"""`engine.reads`: jobs, history, statistics, health and policies, each in one read transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.engine.component import Component, reading
from holdfast.engine.reads import diagnosis as _diagnosis
from holdfast.engine.reads import extension_checks as _probes
from holdfast.engine.reads import health as _vitals
from holdfast.engine.reads import job_limits as _job_limits
from holdfast.engine.reads import live_view as _live_view
from holdfast.engine.reads import missing_extensions as _missing
from holdfast.engine.reads import queue_stats as _depths
from holdfast.engine.reads import read as _read
from holdfast.engine.reads import why as _why
from holdfast.engine.registry import TYPES_FRESH_SECONDS, Snapshot
from holdfast.lifecycle import Lifecycles
from holdfast.model import Job, JobType, Part
from holdfast.store import Row, q
from holdfast.store.diagnostics import postgres_state, sqlite_state, weak_settings


class Reads(Component):
    """Reads without side effects: always the committed state."""

    get = reading(_read.get)
    page = reading(_read.page)
    page_summaries = reading(_read.page_outlines)
    summaries = reading(_read.outlines)
    children = reading(_read.children)
    ids_beginning = reading(_read.beginning)
    counts = reading(_read.counts)
    history = reading(_read.history)
    attempts = reading(_read.attempts)

    async def parts(self, job_id: str) -> list[Part]:
        return (await self.store.read(lambda tx: _read.parts(tx, [job_id])))[job_id]

    parts_to_do = reading(_read.unfinished_as_pending)
    limits_of = reading(_job_limits.limits_of)
    feed = reading(_read.feed)
    feed_end = reading(_read.feed_end)
    log_extent = reading(_read.extent)
    why = reading(_why.why)

    async def queue_stats(self, max_age_seconds: float = 10.0) -> _depths.QueueStats:
        """Jobs waiting and running per queue and type, at most this old; one process counts for all."""
        return await _depths.queue_stats(self.store, self.ctx, max_age_seconds)

    async def health(self) -> _vitals.SystemHealth:
        return await self.store.read(lambda tx: _vitals.health(tx, self.store.dialect))

    live_counts = reading(_live_view.counts)
    live_activity = reading(_live_view.activity)
    diagnosis = reading(_diagnosis.diagnosis)
    postgres_state = reading(postgres_state)
    sqlite_state = reading(sqlite_state)

    async def applied_migrations(self) -> list[Row]:
        return await self.store.read(lambda tx: tx.all(q.applied_migrations))

    async def weak_settings(self) -> list[str]:
        """Database settings that can lose acknowledged jobs."""
        return await self.store.read(lambda tx: weak_settings(tx, self.store.dialect))

    async def now(self) -> datetime:
        """The time of the database's clock."""
        row = await self.store.read(lambda tx: tx.one(q.clock))
        at: datetime = row["now_at"] if row else self.ctx.clock.now()
        return at

    async def lifecycles(self) -> Lifecycles:
        """The lifecycles of this process, and of every app that has declared job types in this database."""
        if self.ctx.registry.types_age >= TYPES_FRESH_SECONDS:
            await self.store.read(self.ctx.registry.types)
        return self.ctx.lifecycles

    async def job_types(self) -> dict[str, JobType]:
        """Every job type that some app has declared."""
        return await self.store.read(self.ctx.registry.types)

    async def snapshot(self, number: int) -> Snapshot:
        """The policy that a lease or a job names, with its lifecycle; it never changes."""
        return await self.store.read(lambda tx: self.ctx.registry.snapshot(tx, number))

    async def snapshots(self, jobs: list[Job]) -> dict[int, Snapshot]:
        """The lifecycle and the policy that each job was created under, by the number that the job names."""
        policies = {job.policy for job in jobs}
        return await self.store.read(lambda tx: self.ctx.registry.snapshots(tx, policies))

    async def policies_of_jobs(self, job_ids: list[str]) -> dict[str, int]:
        """The numbers of the policies that jobs were created under."""
        rows = await self.store.read(lambda tx: tx.all(q.policies_of_jobs, ids=job_ids))
        return {row["id"]: row["policy"] for row in rows}

    missing_extensions = reading(_missing.missing)

    async def ask_extension(self, probe: _probes.Probe) -> Any:
        """The answer of an extension, or `CheckFailed`."""
        if probe.outside:
            return await _probes.run_outside(self.store, probe.hook)
        return await self.store.read(lambda tx: _probes.run_probe(tx, probe.hook))

    async def check_extension(self, probe: _probes.Probe) -> _probes.Checked:
        return _probes.finding(probe, await self.ask_extension(probe))
