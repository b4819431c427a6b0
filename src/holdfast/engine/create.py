"""create: an intent becomes a durable job, once per idempotency key."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.engine.accept import accept as accept_jobs
from holdfast.engine.move import move
from holdfast.engine.registry import NeedsTransaction, Resolved
from holdfast.engine.rules import Rules
from holdfast.errors import Conflict, Invalid, KeyReused, Refused
from holdfast.lifecycle import FINAL, STATUS, Actor, Idempotency, State
from holdfast.model import NewJob
from holdfast.model.json import encode
from holdfast.store import Row, Tx, q

TAKEOVERS_MAX = 5


class Created(msgspec.Struct, frozen=True):
    """The answer to a create: the first time and every time after."""

    id: str
    state: State
    existed: bool = False

    @property
    def status(self) -> str:
        return STATUS[self.state]


async def create(
    tx: Tx, rules: Rules, jobs: list[NewJob], *, actor: Actor, accept: bool = True, alone: bool = False
) -> list[Created]:
    """Store all jobs, or none. A job whose key is taken by an equal request is that request's job.

    `accept=False` leaves jobs whose lifecycle knows `created` there, until somebody accepts them.
    """
    actor = Actor.named(actor)
    if len(jobs) > rules.limits.batch_max:
        raise Invalid(f"{len(jobs)} jobs in one call, the limit is {rules.limits.batch_max}", code="batch_too_large")
    batch = await _prepare(tx, rules, jobs, accept=accept, alone=alone)
    # In the order of keys, so that two batches with the same keys never wait for each other crosswise.
    fresh = sorted(batch.fresh, key=lambda row: row[_KEY] or "")
    rows = await move(tx, rules, q.insert_jobs, actor=actor, brief=True, fresh=fresh, kind=batch.kinds)
    inserted = {row["id"] for row in rows}
    if len(inserted) < len(jobs) and alone:
        raise NeedsTransaction
    if inserted:
        tx.after_commit(lambda: rules.wake(kind[_QUEUE] for kind in batch.kinds))
    return [
        Created(row[_ID], batch.state(row))
        if row[_ID] in inserted
        else await _existing(tx, rules, job, row, batch, actor=actor, accept=accept)
        for job, row in zip(jobs, batch.fresh, strict=True)
    ]


class _Batch(NamedTuple):
    """Rows for `insert_jobs`: one per job, and one per distinct kind of job."""

    fresh: list[tuple[Any, ...]]
    kinds: list[tuple[Any, ...]]
    resolved: dict[bytes, Resolved]

    def state(self, row: tuple[Any, ...]) -> State:
        return State(self.kinds[row[_KIND] or 0][_STATE])


_ID, _KIND, _KEY, _FINGERPRINT = 0, 1, 7, 8  # places in a row of `fresh`
_QUEUE, _STATE = 3, 8  # in one of `kind`


async def _prepare(tx: Tx, rules: Rules, jobs: list[NewJob], *, accept: bool, alone: bool) -> _Batch:
    batch = _Batch([], [], {})
    numbers: dict[Resolved, int] = {}
    resolved, alike = None, None
    texts = [_checked(job) for job in jobs]  # all of them before the first is resolved, which may write
    ids = rules.ids.job_ids(rules.clock.now(), len(jobs))
    for job, job_id, (payload, trace) in zip(jobs, ids, texts, strict=True):
        kind = (job.tenant, job.type, job.lifecycle, job.queue, job.policy, job.requires, job.prefers)
        if resolved is None or kind != alike:  # jobs of a batch are mostly of one kind
            resolved, alike = await rules.registry.resolve(tx, job, batch.resolved, alone=alone), kind
        if rules.hooks.guarded("create"):
            await _ask_guards(tx, rules, job, resolved)
        number = numbers.setdefault(resolved, len(numbers))
        if number == len(batch.kinds):
            batch.kinds.append((number, job.tenant, job.type, *_kind(resolved, accept=accept)))
        batch.fresh.append((job_id, number or None, *_particulars(job, payload, trace)))
    return batch


def _checked(job: NewJob) -> tuple[str, str | None]:
    """Its payload and its trace as text, if it is a job at all."""
    job.check()
    return job.encoded_payload(), encode(job.trace, "trace", max_bytes=4096) if job.trace else None


def _kind(resolved: Resolved, *, accept: bool) -> tuple[Any, ...]:
    machine, policy = resolved.machine, resolved.policy
    state = State.QUEUED if accept else machine.initial
    both = machine.accept_separately and accept  # two lines of history; elsewhere an accepted job is born queued
    return (
        *(resolved.queue, resolved.lane, machine.name, resolved.policy_id, machine.mask, state.value),
        *(2 if both else 1, float(policy.lease_seconds), policy.late_writes, policy.max_attempts),
    )


def _particulars(job: NewJob, payload: str, trace: str | None) -> tuple[Any, ...]:
    return (
        job.priority or None,  # a column of nothing is not sent at all
        job.max_attempts,
        job.run_at,
        float(job.delay_seconds) if job.delay_seconds else None,
        payload,
        job.idempotency_key,
        job.fingerprint() if job.idempotency_key is not None else None,
        msgspec.json.encode(sorted(set(job.tags))).decode() if job.tags else None,
        trace,
        job.partition_key,
        job.redrive_of,
        job.root_id,
        job.parent_id,
    )


async def _ask_guards(tx: Tx, rules: Rules, job: NewJob, resolved: Resolved) -> None:
    """A repeat makes nothing new: it gets its job, though the first request may have used up what a guard watches."""
    try:
        await rules.hooks.check(tx, "create", job, resolved.machine.name, job.type)
    except Refused:
        holder = await _holder(tx, job)
        if holder is None or await _is_free(tx, rules, holder):
            raise


async def _holder(tx: Tx, job: NewJob) -> Row | None:
    """Who holds the key of this request."""
    if job.idempotency_key is None:
        return None
    return await tx.one(q.jobs_by_key, tenant=job.tenant, key=job.idempotency_key)


async def _existing(
    tx: Tx, rules: Rules, job: NewJob, row: tuple[Any, ...], batch: _Batch, *, actor: Actor, accept: bool
) -> Created:
    """The job that holds the key, or ours if that key is free to take over."""
    for _ in range(TAKEOVERS_MAX):
        holder = await _holder(tx, job)
        if holder is not None and not await _is_free(tx, rules, holder):
            if holder["fingerprint"] != row[_FINGERPRINT]:
                raise KeyReused(
                    f"idempotency key {job.idempotency_key!r} belongs to job {holder['id']}, created by a different "
                    "request; send the same request again, or choose a new key",
                    job_id=str(holder["id"]),
                )
            return await _repeated(tx, rules, holder, actor=actor, accept=accept)
        if holder is not None:
            await tx.one(q.free_key, id=holder["id"])
        if await move(tx, rules, q.insert_jobs, actor=actor, brief=True, fresh=[row], kind=batch.kinds):
            return Created(row[_ID], batch.state(row))
    raise Conflict(
        f"idempotency key {job.idempotency_key!r} changes hands too quickly; try again", code="key_contended"
    )


async def _repeated(tx: Tx, rules: Rules, holder: Row, *, actor: Actor, accept: bool) -> Created:
    """The first job again. If its creator died before accepting it, the repeat finishes that."""
    job_id, state = str(holder["id"]), State(holder["state"])
    if state is State.CREATED and accept and await accept_jobs(tx, rules, [job_id], actor=actor):
        state = State.QUEUED
    return Created(job_id, state, existed=True)


async def _is_free(tx: Tx, rules: Rules, holder: Row) -> bool:
    """The holder's own policy says how long its key is its own."""
    policy = (await rules.registry.snapshot(tx, holder["policy"])).policy
    match policy.idempotency:
        case Idempotency.FOREVER:
            return False
        case Idempotency.WINDOW:
            age = holder["now_at"] - holder["created_at"]
            return bool(age.total_seconds() >= policy.idempotency_window_seconds)
        case Idempotency.UNTIL_FAILED:
            return State(holder["state"]) in FINAL - {State.SUCCEEDED}
