"""create: an intent becomes a durable job, once per idempotency key."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.engine.move import move
from holdfast.engine.registry import Resolved
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


class NeedsTransaction(Exception):
    """A key was taken: what follows is more than one statement. Nothing has been written yet."""


async def create(
    tx: Tx, rules: Rules, jobs: list[NewJob], *, actor: Actor, accept: bool = True, alone: bool = False
) -> list[Created]:
    """Store all jobs, or none. A job whose key is taken by an equal request is that request's job.

    `accept=False` leaves the jobs of a lifecycle with a separate acceptance in `created`.
    """
    if len(jobs) > rules.limits.batch_max:
        raise Invalid(f"{len(jobs)} jobs in one call, the limit is {rules.limits.batch_max}", code="batch_too_large")
    batch = await _prepare(tx, rules, jobs, accept=accept)
    rows = await move(tx, rules, q.insert_jobs, actor=actor, fresh=batch.fresh, kind=batch.kinds)
    inserted = {row["id"]: row for row in rows}
    if len(inserted) < len(jobs) and alone:
        raise NeedsTransaction
    tx.after_commit(lambda: rules.wake(row["queue"] for row in rows))
    return [
        Created(row[_ID], State(inserted[row[_ID]]["state"]))
        if row[_ID] in inserted
        else await _existing(tx, rules, job, row, batch, actor)
        for job, row in zip(jobs, batch.fresh, strict=True)
    ]


class _Batch(NamedTuple):
    """Rows for `insert_jobs`: one per job, and one per distinct kind of job."""

    fresh: list[tuple[Any, ...]]
    kinds: list[tuple[Any, ...]]
    resolved: dict[bytes, Resolved]


_ID, _FINGERPRINT = 0, 8


async def _prepare(tx: Tx, rules: Rules, jobs: list[NewJob], *, accept: bool) -> _Batch:
    now, batch = rules.clock.now(), _Batch([], [], {})
    numbers: dict[Resolved, int] = {}
    texts = [_checked(job) for job in jobs]  # all of them before the first is resolved, which may write
    for job, (payload, trace) in zip(jobs, texts, strict=True):
        resolved = await rules.registry.resolve(tx, job, batch.resolved)
        if rules.hooks.guarded("create"):
            await _ask_guards(tx, rules, job, resolved)
        number = numbers.setdefault(resolved, len(numbers))
        if number == len(batch.kinds):
            batch.kinds.append((number, job.tenant, job.type, *_kind(resolved, accept=accept)))
        batch.fresh.append((rules.ids.job_id(now), number, *_particulars(job, resolved, payload, trace)))
    return batch


def _checked(job: NewJob) -> tuple[str, str | None]:
    """Its payload and its trace as text, if it is a job at all."""
    job.check()
    return job.encoded_payload(), encode(job.trace, "trace", max_bytes=4096) if job.trace else None


def _kind(resolved: Resolved, *, accept: bool) -> tuple[Any, ...]:
    machine, policy = resolved.machine, resolved.policy
    accepted = machine.initial is State.CREATED and accept
    state = machine.initial if not accepted else State.QUEUED
    return (
        *(resolved.queue, resolved.lane, machine.name, resolved.policy_id, machine.mask, state.value),
        2 if accepted else 1,  # created and accepted at once are two lines of history
        *(float(policy.lease_seconds), policy.late_writes),
    )


def _particulars(job: NewJob, resolved: Resolved, payload: str, trace: str | None) -> tuple[Any, ...]:
    return (
        job.priority,
        job.max_attempts or resolved.policy.max_attempts,
        job.run_at,
        float(job.delay_seconds or 0),
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
        holder = await _holder(tx, job, resolved)
        if holder is None or _is_free(holder, resolved):
            raise


async def _holder(tx: Tx, job: NewJob, resolved: Resolved) -> Row | None:
    if job.idempotency_key is None:
        return None
    window = float(resolved.policy.idempotency_window_seconds)
    return await tx.one(q.jobs_by_key, tenant=job.tenant, key=job.idempotency_key, window_seconds=window)


async def _existing(tx: Tx, rules: Rules, job: NewJob, row: tuple[Any, ...], batch: _Batch, actor: Actor) -> Created:
    """The job that holds the key, or ours if that key is free to take over."""
    for _ in range(TAKEOVERS_MAX):
        resolved = await rules.registry.resolve(tx, job, batch.resolved)
        holder = await _holder(tx, job, resolved)
        if holder is not None and not _is_free(holder, resolved):
            if holder["fingerprint"] != row[_FINGERPRINT]:
                raise KeyReused(
                    f"idempotency key {job.idempotency_key!r} belongs to job {holder['id']}, created by a different "
                    "request; send the same request again, or choose a new key",
                    job_id=str(holder["id"]),
                )
            return Created(str(holder["id"]), State(holder["state"]), existed=True)
        if holder is not None:
            await tx.one(q.free_key, id=holder["id"])
        if inserted := await move(tx, rules, q.insert_jobs, actor=actor, fresh=[row], kind=batch.kinds):
            return Created(row[_ID], State(inserted[0]["state"]))
    raise Conflict(
        f"idempotency key {job.idempotency_key!r} changes hands too quickly; try again", code="key_contended"
    )


def _is_free(holder: Row, resolved: Resolved) -> bool:
    match resolved.policy.idempotency:
        case Idempotency.FOREVER:
            return False
        case Idempotency.WINDOW:
            return bool(holder["window_over"])
        case Idempotency.UNTIL_FAILED:
            return State(holder["state"]) in FINAL - {State.SUCCEEDED}
