"""Everything that can happen to a job, one method per verb. Each runs its function in a transaction of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.engine import accept as _accept
from holdfast.engine import cancel as _cancel
from holdfast.engine import claim as _claim
from holdfast.engine import claim_requests as _claims
from holdfast.engine import complete as _complete
from holdfast.engine import create as _create
from holdfast.engine import declare as _declare
from holdfast.engine import fail as _fail
from holdfast.engine import group_create as _many_callers
from holdfast.engine import heartbeat as _heartbeat
from holdfast.engine import idempotency as _idempotency
from holdfast.engine import leases as _held
from holdfast.engine import progress as _progress
from holdfast.engine import redrive as _redrive
from holdfast.engine import reject as _reject
from holdfast.engine import release as _release
from holdfast.engine import wake as _wake
from holdfast.engine import withdraw as _withdraw
from holdfast.engine.admin import extensions as _extensions
from holdfast.engine.admin import queues as _queues
from holdfast.engine.admin import server_secrets as _secrets
from holdfast.engine.admin import workers as _workers
from holdfast.engine.admin.keyring import Keyring
from holdfast.engine.context import Limits, Rules
from holdfast.engine.hooks.hooks import Hooks
from holdfast.engine.insert import Created, Ready
from holdfast.engine.leases import in_rounds
from holdfast.engine.maintenance import clock_correction as _set_back
from holdfast.engine.maintenance import due_work as _chores
from holdfast.engine.maintenance import event_log as _event_log
from holdfast.engine.maintenance import extension_tasks as _tasks
from holdfast.engine.maintenance import open_work as _openings
from holdfast.engine.maintenance import polls as _look
from holdfast.engine.maintenance import prune as _prune
from holdfast.engine.maintenance import reap as _reap
from holdfast.engine.maintenance import requeue as _requeue
from holdfast.engine.maintenance import worker_events as _worker_log
from holdfast.engine.policy_settings import PolicySettings
from holdfast.engine.reads import extension_checks as _probes
from holdfast.engine.reads import health as _vitals
from holdfast.engine.reads import missing_extensions as _missing
from holdfast.engine.reads import queue_stats as _depths
from holdfast.engine.reads import read as _read
from holdfast.engine.reads import why as _why
from holdfast.engine.registry import TYPES_FRESH_SECONDS, NeedsTransaction, Registry, Snapshot, unless_stale
from holdfast.engine.webhooks.mailing import Mailing
from holdfast.errors import HoldfastError, Invalid, StoreError, WorkerDisabled
from holdfast.ids import Ids
from holdfast.lifecycle import Actor, Lifecycles, Policy
from holdfast.model import Attempt, Event, Job, JobType, Lease, Liveness, NewJob, Part, Worker
from holdfast.model.hint import Hint
from holdfast.model.names import check_name
from holdfast.model.reports import (
    Advanced,
    Beat,
    Done,
    Failure,
    Freed,
    Held,
    Progress,
    Settled,
    Verdict,
    Withdrawal,
    Withdrawn,
)
from holdfast.model.summary import Outline
from holdfast.store import PostgresStore, Row, SqliteStore, Tx, borrow, q
from holdfast.store.deferred_hints import LaterHints
from holdfast.store.diagnostics import weak_settings

_Answer = TypeVar("_Answer")
ADOPTING_SECONDS = 300.0  # a transaction that began before the declaration has ended by then
UNKNOWN_FRESH_SECONDS = 1.0  # a type that was unknown so long ago may be known by now


class Engine(Keyring, Mailing):
    """The verbs of jobs and workers are here; those of keys in `keyring.py`, those of webhooks in `mailing.py`."""

    later: LaterHints | None = None  # of the event loop whose connections the store and the wakers use

    def __init__(
        self,
        store: PostgresStore | SqliteStore,
        *,
        lifecycles: Lifecycles | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
        policy_settings: PolicySettings | None = None,
    ) -> None:
        self.store = store
        with suppress(RuntimeError):  # made outside of any event loop
            self.later = LaterHints()
        clock, lifecycles = clock or Clock(), lifecycles or Lifecycles()
        self.rules = Rules(
            clock=clock,
            ids=ids or Ids(),
            lifecycles=lifecycles,
            registry=Registry(lifecycles, clock, policy_settings),
            limits=limits or Limits(),
            hooks=hooks or Hooks(),
        )
        store.identities.changed.append(self.rules.registry.forget)
        if isinstance(store, PostgresStore):
            store.prepare_changed_database(_event_log.is_ahead, _event_log.rebase_within)
        self.contradictions: list[_declare.Contradiction] = []  # with other apps, as this process has declared
        self._declared: dict[str, tuple[JobType, str | None]] = {}
        self._adopting_until = 0.0

    def flush_hints(self) -> None:
        """Send the hints about jobs in callers' transactions that are still scheduled, and none after that."""
        if self.later is not None:
            self.later.flush()

    async def close(self) -> None:
        self.flush_hints()
        await self.store.close()

    # -- declaring and creating -------------------------------------------------------------------------------

    async def declare(
        self, *types: JobType, app: str | None = None, connection: Any = None
    ) -> list[_declare.Contradiction]:
        """Keep what an app says about its job types; from now on every process creates them so.

        Every process says it when it starts, so what is kept already is not written again. The answer is what another
        app that is in use declares otherwise: its word stays.
        """
        types = tuple(self._with_needs(declared) for declared in types)
        for declared in types:
            declared.check()
            self.rules.lifecycles[declared.lifecycle].policy.over(declared.policy)
        registry = self.rules.registry

        async def work(tx: Tx) -> list[_declare.Contradiction]:
            return await _declare.declare(tx, registry, types, app)

        found = await self._write_through(connection, work)
        self._declared |= {declared.name: (declared, app) for declared in types}
        registry.declare_again = self._declare_again
        registry.forget_types()
        self.contradictions += found
        self._adopting_until = self.rules.clock.monotonic() + ADOPTING_SECONDS
        if connection is None:
            await self.adopt()
        return found

    def _with_needs(self, declared: JobType) -> JobType:
        return msgspec.structs.replace(declared, needs=self.rules.hooks.needs_of(declared.name))

    @property
    def adopts(self) -> bool:
        """Jobs may still be committed whose creators did not know of the hooks that this process has declared."""
        in_time = self.rules.clock.monotonic() < self._adopting_until
        return in_time and any(self.rules.hooks.needs_of(name) for name in self._declared)

    async def adopt(self) -> None:
        """Jobs that were created before their type had hooks are moved with these hooks from now on; those whose type
        has them no more, without."""
        types, limit = sorted(self._declared), self.rules.limits.sweep_batch
        steps = [partial(_declare.free, job_types=types, limit=limit)] if types else []
        hooked = [name for name in types if self.rules.hooks.needs_of(name)]
        steps += [partial(_declare.adopt, job_type=name, limit=limit) for name in hooked]
        for step in steps:
            while await self.store.write(step) == limit:
                continue

    async def _declare_again(self, tx: Tx) -> None:
        for declared, app in self._declared.values():
            await _declare.declare(tx, self.rules.registry, [declared], app)

    async def check(self, jobs: Sequence[NewJob], *, refuse_unknown: bool, within: Tx | None = None) -> None:
        """Raise if a job contradicts what was declared about its type, or if that is unknown and must not be.

        A repeat is not asked again: what was once accepted under its key is its answer, whatever was declared since.

        `within`: the transaction that the caller holds open. To wait for a second connection while all are held so is
        to wait for ever.
        """
        registry = self.rules.registry
        if registry.types_age >= TYPES_FRESH_SECONDS:
            await self._within(registry.types, within)
        for place, job in enumerate(jobs):
            try:
                if refuse_unknown:
                    await self._check_known(job.type, within)
                registry.check_lifecycle(job)
                registry.check_payload(job)
            except Invalid as error:
                if not await self._is_repeat(job, within):
                    error.fields["place"] = place
                    raise

    async def _check_known(self, job_type: str, within: Tx | None) -> None:
        registry = self.rules.registry
        if not registry.knows(job_type) and registry.types_age >= UNKNOWN_FRESH_SECONDS:
            registry.forget_types()  # it may have been declared a moment ago
            await self._within(registry.types, within)
        registry.check_known(job_type)

    async def _is_repeat(self, job: NewJob, within: Tx | None) -> bool:
        if job.idempotency_key is None:
            return False
        return await self._within(lambda tx: _idempotency.is_repeat(tx, self.rules, job), within)

    async def _within(self, work: Callable[[Tx], Awaitable[_Answer]], within: Tx | None) -> _Answer:
        return await (self.store.read(work) if within is None else work(within))

    async def lifecycles(self) -> Lifecycles:
        """Those of this process, and those of every app whose job types the database has."""
        if self.rules.registry.types_age >= TYPES_FRESH_SECONDS:
            await self.store.read(self.rules.registry.types)
        return self.rules.lifecycles

    async def declared(self) -> dict[str, JobType]:
        """Every job type that some app has declared."""
        return await self.store.read(self.rules.registry.types)

    async def create(self, job: NewJob, **options: Any) -> Created:
        return (await self.create_many([job], **options))[0]

    async def create_many(
        self, jobs: list[NewJob], *, actor: Actor = Actor.CLIENT, accept: bool | None = True, connection: Any = None
    ) -> list[Created]:
        """All or nothing. With `connection`, inside the transaction that is open on it."""
        if not jobs:
            return []

        async def work(tx: Tx, *, alone: bool = False) -> list[Created]:
            return await _create.create(tx, self.rules, jobs, actor=actor, accept=accept, alone=alone)

        if connection is not None:
            return await unless_stale(lambda: self._write_through(connection, work))
        return await unless_stale(lambda: self._create_together(jobs, work))

    async def _create_together(self, jobs: list[NewJob], work: Callable[..., Any]) -> list[Created]:
        alone = all(job.idempotency_key is None for job in jobs) or len(jobs) == 1
        if self.rules.hooks.extensions:
            alone = alone and not any(self.rules.hooks.needs_of(job.type) for job in jobs)
        with _create.naming_key(jobs):
            try:
                return await self.store.write(partial(work, alone=alone), alone=alone, retry_locked=False)
            except NeedsTransaction:
                return await self.store.write(work, retry_locked=False)

    async def create_within(self, tx: Tx, job: NewJob) -> Created:
        """In a transaction of our own that is open already."""
        return (await _create.create(tx, self.rules, [job], actor=Actor.CLIENT))[0]

    async def holder_within(self, tx: Tx, lease: Held) -> str:
        """The worker that holds the job of this lease."""
        return await _held.holder_of(tx, self.rules, lease)

    async def hold_within(self, tx: Tx, lease: Held) -> None:
        """Lock the job of this lease until the transaction ends."""
        await _held.hold(tx, self.rules, lease)

    async def complete_within(self, tx: Tx, worker: str, item: Done) -> Settled:
        return _raised(await _complete.complete(tx, self.rules, [item], worker=worker))

    async def cancel_within(
        self, tx: Tx, job_id: str, *, reason: str = "canceled", tenant: str | None = None
    ) -> _cancel.Canceling:
        return await _cancel.cancel(tx, self.rules, job_id, reason=reason, tenant=tenant)

    async def create_all(
        self, jobs: list[NewJob], *, actor: Actor = Actor.CLIENT, connection: Any = None
    ) -> list[Created]:
        """However many there are: all or nothing, in one transaction, a batch at a time."""
        size = self.rules.limits.batch_max
        if len(jobs) <= size:
            return await self.create_many(jobs, actor=actor, connection=connection)

        async def work(tx: Tx) -> list[Created]:
            batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
            return [made for batch in batches for made in await _create.create(tx, self.rules, batch, actor=actor)]

        return await unless_stale(lambda: self._write_through(connection, work))

    async def hand_in(self, jobs: list[NewJob]) -> list[Created]:
        """From outside: created, all or none; then accepted, in a commit of its own where the lifecycle wants that."""
        made: list[Created | Exception] = [*await self.create_many(jobs, accept=None)]
        return [_raised([one]) for one in await _many_callers.accept_each(self.accept_made, made)]

    async def hand_in_each(self, jobs: list[Ready]) -> list[Created | Exception]:
        """The same for requests that only share the way: each has its own answer, and this raises nothing."""
        return await _many_callers.accept_each(self.accept_made, await self.create_each(jobs))

    async def create_each(self, jobs: list[Ready]) -> list[Created | Exception]:
        """What is to be accepted separately is left to whoever accepts it."""
        return await _many_callers.create_in_few_commits(self.store, self.rules, jobs)

    async def accept_made(self, job_ids: list[str]) -> list[str]:
        """Those of them that the API is to accept; nobody has run them before."""
        rows = await self.store.write(lambda tx: _accept.accept_made(tx, self.rules, job_ids))
        return [row["id"] for row in rows]

    async def _write_through(self, connection: Any, work: Callable[[Tx], Awaitable[_Answer]]) -> _Answer:
        if connection is None:
            return await self.store.write(work)
        async with borrow(connection, self.store.dialect, self.rules.clock, self.rules.ids, self.later) as tx:
            await self.store.require_own(tx, connection)
            return await work(tx)

    async def accept(self, *job_ids: str, actor: Actor = Actor.API) -> list[str]:
        rows = await self.store.write(lambda tx: _accept.accept(tx, self.rules, list(job_ids), actor=actor), alone=True)
        return [row["id"] for row in rows]

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
        """Up to `limit` leases. When fewer are found, what is overdue is set free and looked at once more.

        `at_once` is for whoever will claim again soon: what was found need not wait for what is overdue.
        """
        _claim.check_claim(self.rules, worker, instance, queues, types, limit)

        async def take(wanted: int) -> list[Lease]:
            return await self.store.write(
                lambda tx: _claim.claim(
                    tx, self.rules, worker=worker, instance=instance, queues=queues, types=types, limit=wanted
                ),
                alone=True,
            )

        leases = await take(limit)
        if leases and at_once:
            return leases
        try:
            if len(leases) < limit and await self._set_free(worker, queues):
                leases += await take(limit - len(leases))
        except (StoreError, WorkerDisabled):
            if not leases:  # what was claimed is committed: the worker must hear of it
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
        """`claim` at once, for a worker that may have to ask again: the same request gets the same leases, as far as
        they are still held. None: there was nothing to claim, and the request counts as not yet made."""
        _claim.check_claim(self.rules, worker, instance, queues, types, limit)
        check_name(request, "request_id")

        async def take() -> list[Lease] | None:
            wanted: dict[str, Any] = {"queues": queues, "types": types, "limit": limit, "instance": instance}
            return await self.store.write(
                lambda tx: _claims.claim_once(tx, self.rules, request, worker=worker, **wanted)
            )

        found = await take()
        return await take() if found is None and await self._set_free(worker, queues) else found

    async def give_back(self, worker: str, leases: list[Held], *, request: str | None = None) -> bool:
        """Nobody heard the answer to this claim. False: a repeat of it did, so the leases stay."""
        return await self.store.write(
            lambda tx: _claims.give_back(tx, self.rules, leases, worker=worker, request=request)
        )

    async def _set_free(self, worker: str, queues: list[str] | None) -> bool:
        """What is overdue. False when nothing was."""
        if not await self.store.read(lambda tx: _claim.overdue(tx, self.rules, worker, queues)):
            return False
        await self.requeue_due()
        await self.reap(queues=queues)
        return True

    async def openings(self, queues: list[str] | None = None, types: list[str] | None = None) -> _openings.Openings:
        """What there is to claim, asked by one for all who wait."""
        return await self.store.read(lambda tx: _openings.openings(tx, self.rules, queues, types))

    async def claimants(self, workers: list[str]) -> dict[str, _openings.Claimant]:
        return await self.store.read(lambda tx: _openings.claimants(tx, workers))

    async def heartbeat(
        self, worker: str, leases: list[Held], *, liveness: Liveness | None = None, slots: int | None = None
    ) -> Beat:
        return await self.store.write(
            lambda tx: _heartbeat.heartbeat(tx, worker=worker, leases=leases, liveness=liveness, slots=slots),
            alone=not leases,
        )

    async def look(self, worker: str, queues: list[str] | None = None, types: list[str] | None = None) -> _look.Look:
        """What a claim would find, in one query: an idle worker asks this first."""
        return await self.store.read(lambda tx: _look.look(tx, self.rules, worker, queues, types))

    async def stops(self, worker: str, leases: list[Held]) -> list[Held]:
        """Those that should not go on; a heartbeat then tells which are lost and which canceled."""
        return await self.store.read(lambda tx: _look.stops(tx, worker, leases))

    async def held_by(self, worker: str, *instances: str) -> list[Held]:
        """What one process of a worker holds, by its names: asked when the answer to its claim was lost."""
        return await self.store.read(lambda tx: _look.held_by(tx, worker, list(instances)))

    async def leases(self, held: list[Held]) -> list[Lease]:
        """Those of them that are current, in full."""
        return await self.store.read(lambda tx: _look.leases(tx, held))

    async def progress(self, worker: str, report: Progress) -> Advanced:
        return _raised(await self.progress_many(worker, [report]))

    async def progress_many(self, worker: str, reports: list[Progress]) -> list[Advanced | HoldfastError]:
        alone = not any(report.counters or report.parts for report in reports)
        return await self.store.write(
            lambda tx: in_rounds(reports, lambda batch: _progress.progress(tx, self.rules, batch, worker=worker)),
            alone=alone,
        )

    async def complete(self, worker: str, job_id: str, token: str, result: Any = None) -> Settled:
        return _raised(await self.complete_many(worker, [Done(job_id, token, result)]))

    async def complete_many(self, worker: str, items: list[Done]) -> list[Settled | HoldfastError]:
        return await self.store.write(
            lambda tx: in_rounds(items, lambda batch: _complete.complete(tx, self.rules, batch, worker=worker)),
            alone=True,
        )

    async def fail(
        self,
        worker: str,
        job_id: str,
        token: str,
        code: str,
        message: str = "",
        *,
        context: dict[str, Any] | None = None,
        retry_after_seconds: float | None = None,
        permanent: bool = False,
    ) -> Settled:
        failure = Failure(
            id=job_id,
            token=token,
            code=code,
            message=message,
            context=context,
            retry_after_seconds=retry_after_seconds,
            permanent=permanent,
        )
        return _raised(await self.fail_many(worker, [failure]))

    async def fail_many(self, worker: str, failures: list[Failure]) -> list[Settled | HoldfastError]:
        return await self.store.write(
            lambda tx: in_rounds(failures, lambda batch: _fail.fail(tx, self.rules, batch, worker=worker))
        )

    async def release(self, worker: str, job_id: str, token: str, *, delay_seconds: float = 0) -> Settled:
        return _raised(await self.release_many(worker, [Freed(job_id, token, delay_seconds)]))

    async def release_many(self, worker: str, items: list[Freed]) -> list[Settled | HoldfastError]:
        return await self.store.write(
            lambda tx: in_rounds(items, lambda batch: _release.release(tx, self.rules, batch, worker=worker))
        )

    async def reject(
        self,
        worker: str,
        job_id: str,
        token: str,
        code: str,
        message: str = "",
        *,
        context: dict[str, Any] | None = None,
    ) -> Settled:
        verdict = Verdict(id=job_id, token=token, code=code, message=message, context=context)
        return _raised(await self.reject_many(worker, [verdict]))

    async def reject_many(self, worker: str, verdicts: list[Verdict]) -> list[Settled | HoldfastError]:
        return await self.store.write(
            lambda tx: in_rounds(verdicts, lambda batch: _reject.reject(tx, self.rules, batch, worker=worker))
        )

    async def reject_queued(self, *verdicts: Verdict) -> list[str]:
        return await self.store.write(lambda tx: _reject.reject_queued(tx, self.rules, list(verdicts)))

    # -- operating --------------------------------------------------------------------------------------------

    async def cancel(self, job_id: str, **options: Any) -> _cancel.Canceling:
        return _raised(await self.cancel_many([job_id], **options))

    async def cancel_many(
        self, job_ids: list[str], *, actor: Actor = Actor.CLIENT, reason: str = "canceled", tenant: str | None = None
    ) -> list[_cancel.Canceling | HoldfastError]:
        return await self._each(
            job_ids,
            lambda tx, job: _cancel.cancel(tx, self.rules, job, actor=actor, reason=reason, tenant=tenant),
        )

    async def wake(self, job_id: str, *, tenant: str | None = None) -> bool:
        """True: it can be claimed now. False: it runs, and if it is given back it will not wait."""
        return await self.store.write(lambda tx: _wake.wake(tx, self.rules, job_id, tenant=tenant))

    async def wake_within(self, tx: Tx, job_id: str, *, tenant: str | None = None) -> bool:
        return await _wake.wake(tx, self.rules, job_id, tenant=tenant)

    async def requeue(self, job_id: str, **options: Any) -> Job:
        return _raised(await self.requeue_many([job_id], **options))

    async def requeue_many(
        self, job_ids: list[str], *, actor: Actor = Actor.SYSTEM, reason: str = "requeued", tenant: str | None = None
    ) -> list[Job | HoldfastError]:
        return await self._each(
            job_ids,
            lambda tx, job: _requeue.requeue(tx, self.rules, job, actor=actor, reason=reason, tenant=tenant),
        )

    async def discard(self, *job_ids: str, actor: Actor = Actor.SYSTEM, reason: str = "discarded") -> list[str]:
        rows = await self.store.write(
            lambda tx: _fail.discard(tx, self.rules, list(job_ids), actor=actor, reason=reason)
        )
        return [row["id"] for row in rows]

    async def withdraw(self, worker: str, asked: Withdrawal, *, queues: tuple[str, ...] | None = None) -> Withdrawn:
        """Cancel or give up the waiting work of another job, for a job that this worker holds."""
        return await self.store.write(
            lambda tx: _withdraw.withdraw(tx, self.rules, asked, worker=worker, queues=queues)
        )

    async def withdraw_within(self, tx: Tx, worker: str, asked: Withdrawal) -> Withdrawn:
        """The transaction must end with `hold_within` or `complete_within`."""
        return await _withdraw.withdraw_unfenced(tx, self.rules, asked, worker=worker)

    async def redrive(
        self,
        job_id: str,
        *,
        actor: Actor = Actor.API,
        payload: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
        tenant: str | None = None,
    ) -> Created:
        """With a key, a repeat after a lost answer finds the job that the first call made."""
        return await self.store.write(
            lambda tx: _redrive.redrive(
                *(tx, self.rules, job_id), actor=actor, payload=payload, idempotency_key=idempotency_key, tenant=tenant
            )
        )

    async def redrive_many(
        self, job_ids: list[str], *, actor: Actor = Actor.API, tenant: str | None = None
    ) -> list[Created | HoldfastError]:
        return await self._each(
            job_ids, lambda tx, job: _redrive.redrive(tx, self.rules, job, actor=actor, tenant=tenant)
        )

    async def _each(
        self, job_ids: list[str], work: Callable[[Tx, str], Awaitable[_Answer]]
    ) -> list[_Answer | HoldfastError]:
        """An answer or a refusal for each job, in one transaction: a refusal has written nothing, or undone it."""

        async def answers(tx: Tx) -> list[_Answer | HoldfastError]:
            return [await _answer(work(tx, job_id)) for job_id in job_ids]

        return await self.store.write(answers)

    async def pause(self, queue: str, *, tenant: str = "default", by: str | None = None) -> None:
        await self.store.write(lambda tx: _queues.pause(tx, queue, tenant=tenant, by=by))

    async def resume(self, queue: str, *, tenant: str = "default") -> bool:
        resumed = await self.store.write(lambda tx: _queues.resume(tx, queue, tenant=tenant))
        self.rules.hint([Hint(queue)])
        return resumed

    async def queues(self) -> list[_queues.Queue]:
        return await self.store.read(_queues.listed)

    # -- maintaining: bounded steps that any number of processes may run at once ---------------------------------

    async def missing_extensions(self) -> dict[str, int]:
        """Which no live process has, and how many jobs need each of them."""
        return await self.store.read(_missing.missing)

    async def extensions(self) -> list[_extensions.KnownExtension]:
        """Those that this database knows, whether a live process has them or not."""
        return await self.store.read(_extensions.known)

    async def require_forgettable(self, name: str) -> _extensions.KnownExtension:
        """An error while a live process has this extension."""
        return await self.store.read(lambda tx: _extensions.require_forgettable(tx, name))

    async def forget_extension(self, name: str, *, by: str | None = None) -> _extensions.Forgotten:
        """That job types and unfinished jobs need its hooks, as when its app was renamed or is no more."""
        batch = self.rules.limits.sweep_batch
        return await self._by(
            by,
            lambda tx: _extensions.forget(tx, name, batch=batch),
            lambda done: ("extension.forget", name, {"jobTypes": done.job_types, "jobs": done.jobs}),
        )

    async def ask(self, probe: _probes.Probe) -> Any:
        """What an extension says, or `Failed`."""
        return await self.store.read(lambda tx: _probes.asked(tx, probe.hook))

    async def check_extension(self, probe: _probes.Probe) -> _probes.Checked:
        return await self.store.read(lambda tx: _probes.checked(tx, probe))

    async def upkeep(self, tasks: Sequence[_tasks.Task]) -> _tasks.Upkeep:
        """What the extensions of this process want to be done; on the way it says which these are."""
        found = await self.store.read(lambda tx: _tasks.look(tx, self.rules, tasks))
        if found.unseen or found.unknown:
            await self.store.write(lambda tx: _tasks.see(tx, self.rules, found.unknown))
        return found

    async def run_task(self, task: _tasks.Task) -> bool:
        """False: another process has it, or has had it."""
        return await self.store.write(lambda tx: _tasks.run_task(tx, self.rules, task))

    async def chores(self, *, workers_kept: float, claims_kept: float) -> _chores.Chores:
        """Which of these steps may find something to do: asked first, because most of the time none does."""
        return await self.store.read(
            lambda tx: _chores.chores(tx, self.rules, workers_kept=workers_kept, claims_kept=claims_kept)
        )

    async def swept(self) -> None:
        """In place of `reap`, when nothing runs: that a process looked is to be known."""
        if not await self.store.write(lambda tx: _reap.swept(tx, self.rules), alone=True):
            await self._in_grace()

    async def requeue_due(self) -> int:
        return await self.store.write(lambda tx: _requeue.requeue_due(tx, self.rules))

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
        return await self.store.write(lambda tx: _reap.reap(tx, self.rules, in_grace=in_grace, **wanted))

    async def _in_grace(self) -> bool:
        """Does silence prove nothing yet? Where the clock was set back, the times are corrected first."""
        swept = await self.store.write(lambda tx: _reap.last_sweep(tx, self.rules), alone=True)
        if swept.set_back:
            await _set_back.correct_times(self.store, self.rules)
        return swept.in_grace

    async def instances(self) -> list[str]:
        """The processes that hold jobs: of these a watcher asks whether they live, and gives the dead to `reap`."""
        return await self.store.read(_look.instances)

    async def accept_orphans(self) -> int:
        return len(await self.store.write(lambda tx: _accept.accept_orphans(tx, self.rules)))

    async def prune(self, retention: _prune.Retention, *, limit: int | None = None) -> int:
        return await self.store.write(lambda tx: _prune.prune(tx, self.rules, retention, limit=limit))

    async def rebase_event_log(self) -> bool:
        """After a dump was loaded into another server: new events come behind those that were in it."""
        return await _event_log.rebase(self.store)

    async def overdue(self, retention: _prune.Retention) -> _prune.Overdue:
        """What `prune` should have deleted some minutes ago: more than a few means that it does not keep up."""
        return await self.store.read(lambda tx: _prune.overdue(tx, self.rules, retention))

    async def mark_silent_workers(self) -> list[Worker]:
        if await self._in_grace():
            return []
        return await self.store.write(_workers.mark_silent)

    async def prune_claims(self, seconds: float) -> int:
        return await self.store.write(lambda tx: _claims.prune_claims(tx, self.rules, seconds))

    async def forget_workers(self, seconds: float) -> int:
        return await self.store.write(lambda tx: _workers.forget(tx, seconds))

    async def note_workers(self) -> int:
        """Who came, went, or does something else now: a line in the events for each, whoever asks first."""
        if await self.store.read(_worker_log.is_all_said):
            return 0
        return await self.store.write(lambda tx: _worker_log.note_workers(tx, self.rules))

    async def prune_worker_log(self) -> int:
        return await self.store.write(lambda tx: _worker_log.prune_worker_log(tx, self.rules))

    # -- workers ----------------------------------------------------------------------------------------------

    async def register(self, new: _workers.NewWorker | None = None, **fields: Any) -> Worker:
        return await self.store.write(
            lambda tx: _workers.register(tx, self.rules, new or _workers.NewWorker(**fields)), alone=True
        )

    async def enable(self, worker: str, *, by: str | None = None) -> Worker:
        return await self._by(
            by,
            lambda tx: _workers.set_enabled(tx, worker, enabled=True),
            lambda _: ("worker.enable", worker, {}),
        )

    async def disable(self, worker: str, *, by: str | None = None) -> Worker:
        return await self._by(
            by,
            lambda tx: _workers.set_enabled(tx, worker, enabled=False),
            lambda _: ("worker.disable", worker, {}),
        )

    async def worker(self, worker: str) -> Worker:
        """As it is now: its leases say whether it is busy."""

        async def work(tx: Tx) -> Worker:
            return (await _workers.get(tx, worker)).with_holding((await _workers.holds(tx)).get(worker))

        return await self.store.read(work)

    async def note_scope(self, worker: str, types: list[str] | None, queues: list[str] | None) -> None:
        """What a worker's claims over HTTP ask for."""
        _claim.check_claim(self.rules, worker, None, queues, types, 1)
        await self.store.write(lambda tx: _workers.note_scope(tx, worker, types, queues))

    async def workers(self) -> list[Worker]:
        async def work(tx: Tx) -> list[Worker]:
            held = await _workers.holds(tx)
            found = [Worker.from_row(row) for row in await tx.all(q.workers)]
            return [worker.with_holding(held.get(worker.id)) for worker in found]

        return await self.store.read(work)

    async def holds(self) -> dict[str, int]:
        """How many jobs run under each worker that holds any."""
        return {worker: holding.jobs for worker, holding in (await self.store.read(_workers.holds)).items()}

    async def held_jobs(self, worker: str, *, limit: int = 100) -> list[Row]:
        """What a worker runs, the oldest first."""
        return await self.store.read(lambda tx: tx.all(q.jobs_of_worker, worker=worker, limit=limit))

    async def snapshots(self, jobs: list[Job]) -> dict[int, Snapshot]:
        """The lifecycle and the policy that each job was created under, by the number that the job names."""
        policies = {job.policy for job in jobs}
        return await self.store.read(lambda tx: self.rules.registry.snapshots(tx, policies))

    async def policy(self, number: int) -> Policy:
        """The policy that a lease or a job names; it never changes."""
        return (await self.snapshot(number)).policy

    async def snapshot(self, number: int) -> Snapshot:
        """That policy with the lifecycle it belongs to."""
        return await self.store.read(lambda tx: self.rules.registry.snapshot(tx, number))

    async def policies_of_jobs(self, job_ids: list[str]) -> dict[str, int]:
        """The numbers of the policies that jobs were created under."""
        rows = await self.store.read(lambda tx: tx.all(q.policies_of_jobs, ids=job_ids))
        return {row["id"]: row["policy"] for row in rows}

    # -- reading ----------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The time by which the database decides."""
        row = await self.store.read(lambda tx: tx.one(q.clock))
        at: datetime = row["now_at"] if row else self.rules.clock.now()
        return at

    async def get(self, job_id: str, tenant: str | None = None) -> Job:
        return await self.store.read(lambda tx: _read.get(tx, job_id, tenant))

    async def page(
        self, wanted: _read.Filter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> _read.Page:
        return await self.store.read(lambda tx: _read.page(tx, wanted or _read.Filter(), cursor=cursor, limit=limit))

    async def children(self, job_id: str, *, limit: int = 1000) -> list[Job]:
        """The jobs whose parent it is, the oldest first."""
        return await self.store.read(lambda tx: _read.children(tx, job_id, limit=limit))

    async def jobs_beginning(self, text: str, *, limit: int) -> list[str]:
        """The ids that begin with this text."""
        return await self.store.read(lambda tx: _read.beginning(tx, text, limit=limit))

    async def outlines(self, wanted: list[tuple[str, str]]) -> list[Outline | HoldfastError]:
        """Of (job, tenant) each: what clients ask after, many in one query."""
        return await self.store.read(lambda tx: _read.outlines(tx, wanted))

    async def page_outlines(
        self, wanted: _read.Filter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Outline], str | None]:
        return await self.store.read(lambda tx: _read.page_outlines(tx, wanted, cursor=cursor, limit=limit))

    async def secret(self, name: str) -> bytes:
        """The same for all servers before one database, made when one of them first asks."""
        return await self.store.write(lambda tx: _secrets.secret(tx, self.rules, name))

    async def counts(self, wanted: _read.Filter | None = None) -> list[tuple[str, str, Any, int]]:
        return await self.store.read(lambda tx: _read.counts(tx, wanted or _read.Filter()))

    async def history(self, job_id: str, *, after: int = 0, limit: int = _read.HISTORY_MAX) -> list[Event]:
        return await self.store.read(lambda tx: _read.history(tx, job_id, after=after, limit=limit))

    async def feed(self, after: _read.Cursor | None = None, *, limit: int = 1000) -> tuple[list[Event], _read.Cursor]:
        return await self.store.read(lambda tx: _read.feed(tx, after or _read.Cursor(), limit=limit))

    async def log_extent(self) -> _read.Extent:
        """Which part of the log there is to read: to see whether a reader can go on from where it was."""
        return await self.store.read(_read.extent)

    async def feed_end(self) -> _read.Cursor:
        return await self.store.read(_read.feed_end)

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await self.store.read(lambda tx: _read.attempts(tx, job_id))

    async def parts(self, job_id: str) -> list[Part]:
        return (await self.store.read(lambda tx: _read.parts(tx, [job_id])))[job_id]

    async def parts_to_do(self, job_ids: list[str]) -> dict[str, list[Part]]:
        return await self.store.read(lambda tx: _read.unfinished_as_pending(tx, job_ids))

    async def weak_settings(self) -> list[str]:
        """What makes acknowledged jobs less than durable here."""
        return await self.store.read(lambda tx: weak_settings(tx, self.store.dialect))

    async def vitals(self) -> _vitals.Vitals:
        return await self.store.read(lambda tx: _vitals.vitals(tx, self.store.dialect))

    async def depths(self, max_age_seconds: float = 10.0) -> _depths.Depths:
        """How much waits and runs, not older than that (or than a count is worth): one process counts for all."""
        return await _depths.depths(self.store, self.rules, max_age_seconds)

    async def why(self, job_id: str, tenant: str | None = None) -> list[_why.Clause]:
        return await self.store.read(lambda tx: _why.why(tx, self.rules, job_id, tenant))


def _raised(answers: Sequence[_Answer | Exception]) -> _Answer:
    """The one answer of a batch of one; a refusal is raised."""
    [answer] = answers
    if isinstance(answer, Exception):
        raise answer
    return answer


async def _answer(work: Awaitable[_Answer]) -> _Answer | HoldfastError:
    try:
        return await work
    except StoreError:
        raise
    except HoldfastError as refusal:
        return refusal
