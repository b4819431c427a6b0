"""Insert new jobs: check them, build their rows, and insert the whole batch in one statement."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.context import EngineContext, Which
from holdfast.engine.job_keys import stored_keys
from holdfast.engine.move import move
from holdfast.engine.preconditions import type_needs
from holdfast.engine.registry import Resolved
from holdfast.errors import Invalid
from holdfast.lifecycle import STATUS, Actor, State
from holdfast.model import NewJob
from holdfast.model.hint import HINTS_MAX, Hint
from holdfast.model.job import PAYLOAD_BYTES_MAX
from holdfast.model.json import encode, encode_objects, encode_or_none
from holdfast.store import Row, Tx, q


class Created(msgspec.Struct, frozen=True, gc=False):
    """The result of a create. A repeated request returns the same job, with `existed`."""

    id: str
    state: State
    existed: bool = False

    @property
    def status(self) -> str:
        return STATUS[self.state]

    @property
    def waits(self) -> bool:
        """It is not accepted yet."""
        return self.state is State.CREATED

    def accepted(self) -> Created:
        return msgspec.structs.replace(self, state=State.QUEUED)


class CheckedJob(NamedTuple):
    """A valid job, with its payload and trace as they are stored. Jobs that are alike share `job`: its payload counts
    for none of them."""

    job: NewJob
    payload: str
    trace: str | None


def checked(job: NewJob) -> CheckedJob:
    """Raise `Invalid` if a field is not valid."""
    job.check()
    trace = encode(job.trace, "trace", max_bytes=4096) if job.trace else None
    return CheckedJob(job, job.encoded_payload(), trace)


def all_checked(jobs: list[NewJob]) -> list[CheckedJob]:
    """Check all; the error names the place of the first invalid job."""
    done: list[CheckedJob] = []
    try:
        for job in jobs:
            done.append(checked(job))  # noqa: PERF401  `len(done)` is the place of the invalid job
    except Invalid as error:
        error.fields["place"] = len(done)
        raise
    return done


def all_alike(job: NewJob, payloads: list[Any]) -> tuple[CheckedJob, list[str]]:
    """Jobs that differ only in their payloads: all else is checked once. The error names the place of a payload."""
    return checked(job), encode_objects(payloads, "payload", max_bytes=PAYLOAD_BYTES_MAX)


class Batch(NamedTuple):
    """Rows for `insert_jobs`: one per job, and one per kind (type, lane and policy), with the ids it refers to."""

    fresh: list[tuple[Any, ...]]
    kinds: list[tuple[Any, ...]]
    known: list[tuple[Any, ...]]

    def made(self) -> list[Created]:
        """The answer to each row of `fresh`, if it is inserted."""
        states = [_STATES[kind[_STATE]] for kind in self.kinds]
        return [Created(row[ID], states[row[_KIND] or 0]) for row in self.fresh]

    def types(self) -> list[str]:
        return sorted({kind[_TYPE] for kind in self.kinds})

    def hints(self) -> list[Hint]:
        """At most `HINTS_MAX` of each kind."""
        left = [HINTS_MAX] * len(self.kinds)
        found: list[Hint] = []
        for row in self.fresh:
            number = row[_KIND] or 0
            if left[number]:
                left[number] -= 1
                kind = self.kinds[number]
                found.append(Hint(kind[_QUEUE], kind[_TYPE], row[ID], row[_PRIORITY] or 0))
        return found


class PlainBatch(NamedTuple):
    """Rows for `insert_plain_jobs`, which inserts all or none: id and payload of each job, and what they share."""

    fresh: list[tuple[str, str]]
    kind: dict[str, Any]

    def made(self) -> list[Created]:
        return [Created(job_id, State.QUEUED) for job_id, _ in self.fresh]

    def hints(self) -> list[Hint]:
        queue, job_type = self.kind["queue"], self.kind["type"]
        return [Hint(queue, job_type, job_id) for job_id, _ in self.fresh[:HINTS_MAX]]


ID, _KIND, _PRIORITY, _KEY, FINGERPRINT = 0, 1, 2, 7, 8  # columns of `fresh`
_TYPE, _QUEUE, _STATE = 2, 3, 8  # columns of `kinds`
_STATES = {state.value: state for state in State}


def prepare(
    ctx: EngineContext, jobs: list[CheckedJob], resolved: list[Resolved], accept: bool | None, ids: Iterable[str] = ()
) -> Batch:
    """`ids`: those that guards were told; else new ones."""
    batch = Batch([], [], [])
    numbers: dict[Resolved, int] = {}
    ids = [*ids] or ctx.ids.job_ids(ctx.clock.now(), len(jobs))
    last: NewJob | None = None
    before: tuple[Any, ...] = ()  # the columns before and after the payload: for jobs that are alike, made once
    after: tuple[Any, ...] = ()
    keyed = False
    for (job, payload, trace), kind, job_id in zip(jobs, resolved, ids, strict=True):
        if job is last:
            keys = stored_keys(ctx.registry, job, kind, payload) if keyed else _NO_KEYS
            batch.fresh.append((job_id, *before, payload, *after, *keys))
            continue
        number = numbers.setdefault(kind, len(numbers))
        if number == len(batch.kinds):
            needs = encode_or_none(ctx.hooks.needs_of(job.type))
            hooked = ctx.hooks.have("accept", job.type)
            batch.kinds.append((number, job.tenant, job.type, *_kind(kind, accept=accept, hooked=hooked), needs))
            ids_of = (kind.lane, kind.lane_digest, kind.policy_id, kind.policy_digest)
            batch.known.append((*ids_of, job.type, needs))
        before, after, last = (number or None, *_before_payload(job)), _after_payload(job, trace), job
        keyed = kind.limits.keyed or job.limit_key is not None or job.fairness_key is not None
        keys = stored_keys(ctx.registry, job, kind, payload) if keyed else _NO_KEYS
        batch.fresh.append((job_id, *before, payload, *after, *keys))
    return batch


_NO_KEYS = (None, None, None)


def is_plain(one: CheckedJob) -> bool:
    """It has none of the columns that `insert_plain_jobs` leaves out."""
    keys = (one.job.limit_key, one.job.fairness_key)
    optional = (*_before_payload(one.job), *_after_payload(one.job, one.trace), *keys)
    return optional.count(None) == len(optional)


def prepare_plain(
    ctx: EngineContext, job: NewJob, payloads: list[str], resolved: Resolved, *, accept: bool | None
) -> PlainBatch | None:
    """The rows of plain jobs that differ from `job` only in their payloads. None: their kind needs `insert_jobs`."""
    if ctx.hooks.needs_of(job.type) is not None:
        return None
    kind = _plain_kind(resolved, job.tenant, job.type, accept=accept)
    if kind is None:
        return None
    ids = ctx.ids.job_ids(ctx.clock.now(), len(payloads))
    return PlainBatch(list(zip(ids, payloads, strict=True)), kind)


@lru_cache(maxsize=1024)
def _plain_kind(resolved: Resolved, tenant: str, job_type: str, *, accept: bool | None) -> dict[str, Any] | None:
    machine, policy = resolved.machine, resolved.policy
    if machine.accept_separately or accept is False or resolved.limits.keyed:
        return None
    return {
        "tenant": tenant,
        "type": job_type,
        "queue": resolved.queue,
        "lane": resolved.lane,
        "lane_digest": resolved.lane_digest,
        "lifecycle": machine.name,
        "policy": resolved.policy_id,
        "policy_digest": resolved.policy_digest,
        "moves": machine.mask,
        "lease_seconds": float(policy.lease_seconds),
        "late_writes": policy.late_writes,
        "max_attempts": policy.max_attempts,
    }


@lru_cache(maxsize=1024)
def _kind(resolved: Resolved, *, accept: bool | None, hooked: bool) -> tuple[Any, ...]:
    """`hooked`: `accept` of this type has hooks."""
    machine, policy = resolved.machine, resolved.policy
    if machine.accept_separately and (accept is None or hooked):
        accept = False
    elif accept is None:
        accept = True
    state = State.QUEUED if accept else machine.initial
    both = machine.accept_separately and accept  # two events, created and accepted; otherwise one
    return (
        *(resolved.queue, resolved.lane, machine.name, resolved.policy_id, machine.mask, state.value),
        *(2 if both else 1, float(policy.lease_seconds), policy.late_writes, policy.max_attempts),
    )


def _before_payload(job: NewJob) -> tuple[Any, ...]:
    return (
        job.priority or None,  # a column in which all values are None is not sent
        job.max_attempts,
        job.run_at,
        float(job.delay_seconds) if job.delay_seconds else None,
    )


def _after_payload(job: NewJob, trace: str | None) -> tuple[Any, ...]:
    return (
        job.idempotency_key,
        job.fingerprint() if job.idempotency_key is not None else None,
        msgspec.json.encode(sorted(set(job.tags))).decode() if job.tags else None,
        trace,
        job.partition_key,
        job.subject,
        job.redrive_of,
        job.root_id,
        job.parent_id,
    )


async def insert(
    tx: Tx, ctx: EngineContext, batch: Batch, *, actor: Actor, which: Which = EngineContext.plain
) -> set[str]:
    """Insert in the order of keys, so that two batches with the same keys cannot deadlock. Returns the stored ids."""
    fresh = batch.fresh if len(batch.fresh) == 1 else sorted(batch.fresh, key=lambda row: row[_KEY] or "")
    rows = await insert_rows(tx, ctx, fresh, batch, actor=actor, which=which)
    if not rows and any(row[_KEY] is None for row in fresh):  # a taken key cannot be the reason
        raise await not_inserted(tx, ctx, batch.types())
    if rows:
        tx.after_commit(lambda: ctx.hint(batch.hints()), hint=True)
    return {row["id"] for row in rows}


async def insert_plain(tx: Tx, ctx: EngineContext, batch: PlainBatch, *, actor: Actor) -> None:
    if tx.one_writer and len(batch.fresh) == 1 and not ctx.observes(q.insert_plain_job):
        [(job_id, payload)] = batch.fresh
        rows = await tx.all(q.insert_plain_job, actor=actor.value, id=job_id, payload=payload, **batch.kind)
    else:
        rows = await move(tx, ctx, q.insert_plain_jobs, actor=actor, brief=True, fresh=batch.fresh, **batch.kind)
    if not rows:
        raise await not_inserted(tx, ctx, [batch.kind["type"]])
    tx.after_commit(lambda: ctx.hint(batch.hints()), hint=True)


async def insert_rows(
    tx: Tx,
    ctx: EngineContext,
    fresh: list[tuple[Any, ...]],
    batch: Batch,
    *,
    actor: Actor,
    which: Which = EngineContext.plain,
) -> list[Row]:
    lock_timeout = None if tx.lock_seconds is None else _milliseconds(tx.lock_seconds)
    tables: dict[str, Any] = {"fresh": fresh, "kind": batch.kinds, "known": batch.known}
    return await move(tx, ctx, which(q.insert_jobs), actor=actor, brief=True, lock_timeout=lock_timeout, **tables)


@lru_cache(maxsize=8)
def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


async def not_inserted(tx: Tx, ctx: EngineContext, types: list[str]) -> Exception:
    """Why nothing was inserted, other than a taken key: a missing extension, or ids of a replaced database."""
    for row in await tx.all(q.needs_of_types, names=types):
        known = ctx.hooks.needs_of(row["name"]) or ()
        if missing := [name for name in msgspec.json.decode(row["needs"]) if name not in known]:
            return type_needs(row["name"], missing)
    return ctx.registry.stale()
