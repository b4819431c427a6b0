"""The engine: one method per verb of a job's life. Each method runs the verb's function in a transaction."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.engine import accept as _accept
from holdfast.engine import cancel as _cancel
from holdfast.engine import claim as _claim
from holdfast.engine import claim_requests as _claims
from holdfast.engine import complete as _complete
from holdfast.engine import fail as _fail
from holdfast.engine import heartbeat as _heartbeat
from holdfast.engine import progress as _progress
from holdfast.engine import redrive as _redrive
from holdfast.engine import reject as _reject
from holdfast.engine import release as _release
from holdfast.engine import wake as _wake
from holdfast.engine import withdraw as _withdraw
from holdfast.engine.accept import accept_each
from holdfast.engine.admin.bench import Bench
from holdfast.engine.admin.operations import Audit, ConfiguredLimits, Extensions, Keys, Queues, Sessions, Workers
from holdfast.engine.component import Component, refusing, writing
from holdfast.engine.context import EngineContext, EngineLimits
from holdfast.engine.create import create, create_alike, create_all, store_each
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.insert import CheckedJob, Created, all_alike, all_checked
from holdfast.engine.job_types import JobTypes
from holdfast.engine.leases import check_claim, the_only
from holdfast.engine.maintenance import event_log as _event_log
from holdfast.engine.maintenance import requeue as _requeue
from holdfast.engine.maintenance.operations import Maintenance
from holdfast.engine.policy_settings import PolicySettings
from holdfast.engine.polls.claimable import overdue
from holdfast.engine.polls.operations import Polls
from holdfast.engine.reads.operations import Reads
from holdfast.engine.registry import PolicyRegistry, unless_stale
from holdfast.engine.result_waits import ResultWaits
from holdfast.engine.webhooks.operations import Webhooks
from holdfast.engine.within import Within
from holdfast.errors import HoldfastError, StoreError, WorkerDisabled
from holdfast.ids import Ids
from holdfast.lifecycle import Actor, Lifecycles
from holdfast.model import Lease, Liveness, NewJob
from holdfast.model.names import check_name
from holdfast.model.reports import (
    Advanced,
    Beat,
    Complete,
    Fail,
    HeldLease,
    Progress,
    Rejection,
    Release,
    Settled,
)
from holdfast.store import PostgresStore, SqliteStore, Tx
from holdfast.store.deferred_hints import DeferredHints


class Engine(Component):
    """The verbs of jobs. Other operations are grouped by topic: `reads`, `polls`, `maintenance`, `job_types`,
    `workers`, `queues`, `job_limits`, `keys`, `sessions`, `extensions`, `webhooks`, `results`, `audit` and `bench`."""

    def __init__(
        self,
        store: PostgresStore | SqliteStore,
        *,
        lifecycles: Lifecycles | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        limits: EngineLimits | None = None,
        hooks: Hooks | None = None,
        policy_settings: PolicySettings | None = None,
    ) -> None:
        clock, lifecycles = clock or Clock(), lifecycles or Lifecycles()
        ctx = EngineContext(
            clock=clock,
            ids=ids or Ids(),
            lifecycles=lifecycles,
            registry=PolicyRegistry(lifecycles, clock, policy_settings),
            limits=limits or EngineLimits(),
            hooks=hooks or Hooks(),
        )
        super().__init__(store, ctx)
        self.clock, self.ids = clock, ctx.ids
        with suppress(RuntimeError):  # no event loop is running
            ctx.later = DeferredHints()
        self.reads, self.polls, self.maintenance = Reads(store, ctx), Polls(store, ctx), Maintenance(store, ctx)
        self.job_types, self.webhooks, self.audit = JobTypes(store, ctx), Webhooks(store, ctx), Audit(store, ctx)
        self.keys, self.sessions, self.workers = Keys(store, ctx), Sessions(store, ctx), Workers(store, ctx)
        self.queues, self.extensions, self.bench = Queues(store, ctx), Extensions(store, ctx), Bench(store, ctx)
        self.job_limits, self.results = ConfiguredLimits(store, ctx), ResultWaits(store, ctx)
        ctx.ended = self.results.ended
        store.identity.on_change.append(ctx.registry.forget)
        ctx.registry.forgotten += [ctx.only_lanes.clear, ctx.next_turns.clear, ctx.last_taken.clear]
        if isinstance(store, PostgresStore):
            store.prepare_changed_database(_event_log.is_ahead, _event_log.rebase_within)

    @property
    def limits(self) -> EngineLimits:
        return self.ctx.limits

    def within(self, tx: Tx) -> Within:
        """The verbs inside a transaction of the engine's store that is already open."""
        return Within(tx, self.ctx)

    def flush_hints(self) -> None:
        """Send the scheduled hints about jobs in callers' transactions; later ones are dropped."""
        if self.ctx.later is not None:
            self.ctx.later.flush()

    async def close(self) -> None:
        self.flush_hints()
        await self.results.close()
        await self.store.close()

    # -- creating ---------------------------------------------------------------------------------------------

    async def create(self, job: NewJob, **options: Any) -> Created:
        return (await self.create_many([job], **options))[0]

    async def create_many(
        self, jobs: list[NewJob], *, actor: Actor = Actor.CLIENT, accept: bool | None = True, connection: Any = None
    ) -> list[Created]:
        """Create all jobs or none. With `connection`, in the transaction that the caller has open on it.

        `accept=None`: jobs whose lifecycle separates acceptance are accepted in a second commit.
        """
        if not jobs:
            return []
        if connection is not None:
            return await unless_stale(
                lambda: self._write_through(
                    connection, partial(create, ctx=self.ctx, jobs=jobs, actor=actor, accept=accept)
                )
            )
        try:
            return await self._create_all(jobs, actor=actor, accept=accept)
        except HoldfastError as refusal:
            await self.audit.record_refusals([refusal])
            raise

    async def create_gathered(self, jobs: list[NewJob]) -> list[Created]:
        """`create_many` for jobs of several callers. If one of them is refused, they are sent again in smaller batches:
        only the refusal of a single job is final."""
        return await (self.create_many(jobs) if len(jobs) == 1 else self._create_all(jobs))

    async def _create_all(
        self, jobs: list[NewJob], *, actor: Actor = Actor.CLIENT, accept: bool | None = True
    ) -> list[Created]:
        new = all_checked(jobs)
        if len(new) == 1:
            made = await create_alike(self.store, self.ctx, new[0], [new[0].payload], actor=actor, accept=accept)
        else:
            made = await create_all(self.store, self.ctx, new, actor=actor, accept=accept)
        if accept is not None:
            return made
        return [the_only([one]) for one in await accept_each(self.accept_created, [*made])]

    async def create_alike(self, job: NewJob, payloads: list[dict[str, Any]]) -> list[Created]:
        """Create jobs that differ only in their payloads, all or none; cheaper than `create_many`."""
        if not payloads or job.idempotency_key is not None or self.ctx.hooks.needs_of(job.type):
            return await self.create_many([msgspec.structs.replace(job, payload=payload) for payload in payloads])
        one, texts = all_alike(job, payloads)
        return await create_alike(self.store, self.ctx, one, texts, actor=Actor.CLIENT, accept=True)

    async def create_each(self, jobs: list[CheckedJob]) -> list[Created | Exception]:
        """Create each job independently: the result or the error of each."""
        answers = await accept_each(self.accept_created, await self._store_each(jobs))
        await self.audit.record_refusals(answers)
        return answers

    async def _store_each(self, jobs: list[CheckedJob]) -> list[Created | Exception]:
        return await store_each(self.store, self.ctx, jobs)

    accept_created = writing(_accept.accept_created)
    accept = writing(_accept.accept, alone=True)

    # -- working ----------------------------------------------------------------------------------------------

    async def claim(
        self,
        worker: str,
        *,
        limit: int = 1,
        queues: list[str] | None = None,
        types: list[str] | None = None,
        instance: str | None = None,
        at_once: bool = False,
    ) -> list[Lease]:
        """Lease up to `limit` jobs. If there are fewer, requeue due retries and expired leases, and claim again.

        `at_once`: return what the first query finds, for a worker that claims again soon.
        """
        check_claim(self.ctx, worker, instance, queues, types, limit)

        async def take(wanted: int) -> list[Lease]:
            return await self.store.write(
                lambda tx: _claim.claim(
                    tx, self.ctx, worker=worker, instance=instance, queues=queues, types=types, limit=wanted
                ),
                alone=True,
            )

        leases = await take(limit)
        if leases and at_once:
            return leases
        try:
            if len(leases) < limit and await self._requeue_overdue(worker, queues):
                leases += await take(limit - len(leases))
        except (StoreError, WorkerDisabled):
            if not leases:  # leases that are committed must reach the worker
                raise
        return leases

    async def claim_once(
        self,
        worker: str,
        request: str,
        *,
        limit: int = 1,
        queues: list[str] | None = None,
        types: list[str] | None = None,
        instance: str | None = None,
    ) -> list[Lease] | None:
        """An idempotent `claim`: a repeat with the same request id returns the same leases, if they are still held.
        None: nothing to claim; the request id is not used up."""
        check_claim(self.ctx, worker, instance, queues, types, limit)
        check_name(request, "request_id")

        async def take() -> list[Lease] | None:
            wanted: dict[str, Any] = {"queues": queues, "types": types, "limit": limit, "instance": instance}
            return await self.store.write(lambda tx: _claims.claim_once(tx, self.ctx, request, worker=worker, **wanted))

        found = await take()
        return await take() if found is None and await self._requeue_overdue(worker, queues) else found

    give_back = writing(_claims.give_back)

    async def _requeue_overdue(self, worker: str, queues: list[str] | None) -> bool:
        """Requeue due retries and expired leases. False: there were none."""
        if not await self.store.read(lambda tx: overdue(tx, self.ctx, worker, queues)):
            return False
        await self.maintenance.requeue_due()
        await self.maintenance.reap(queues=queues)
        return True

    async def heartbeat(
        self, worker: str, leases: list[HeldLease], *, liveness: Liveness | None = None, slots: int | None = None
    ) -> Beat:
        return await self.store.write(
            lambda tx: _heartbeat.heartbeat(tx, worker=worker, leases=leases, liveness=liveness, slots=slots),
            alone=not leases,
        )

    async def progress(self, worker: str, report: Progress) -> Advanced:
        return the_only(await self.progress_many(worker, [report]))

    async def progress_many(self, worker: str, reports: list[Progress]) -> list[Advanced | HoldfastError]:
        alone = not any(report.counters or report.parts for report in reports)
        return await self.store.write(lambda tx: _progress.progress(tx, self.ctx, worker, reports), alone=alone)

    async def complete(self, worker: str, job_id: str, token: str, result: Any = None) -> Settled:
        return the_only(await self.complete_many(worker, [Complete(job_id, token, result)]))

    complete_many = writing(_complete.complete, alone=True)

    async def fail(self, worker: str, job_id: str, token: str, code: str, message: str = "", **about: Any) -> Settled:
        """`about` are the other fields of `Fail`."""
        failure = Fail(job_id, token, code=code, message=message, **about)
        return the_only(await self.fail_many(worker, [failure]))

    fail_many = writing(_fail.fail)

    async def release(self, worker: str, job_id: str, token: str, *, delay_seconds: float = 0) -> Settled:
        return the_only(await self.release_many(worker, [Release(job_id, token, delay_seconds)]))

    release_many = writing(_release.release)

    async def reject(self, worker: str, job_id: str, token: str, code: str, message: str = "", **about: Any) -> Settled:
        rejection = Rejection(job_id, token, code=code, message=message, **about)
        return the_only(await self.reject_many(worker, [rejection]))

    reject_many = writing(_reject.reject)
    reject_queued = writing(_reject.reject_queued)

    # -- operating --------------------------------------------------------------------------------------------

    async def redrive(self, job_id: str, **options: Any) -> Created:
        try:
            return await self.store.write(lambda tx: _redrive.redrive(tx, self.ctx, job_id, **options))
        except HoldfastError as refusal:
            await self.audit.record_refusals([refusal])
            raise

    cancel = refusing(_cancel.cancel)
    wake = writing(_wake.wake)
    requeue = refusing(_requeue.requeue)
    discard = writing(_fail.discard)
    withdraw = writing(_withdraw.withdraw)
