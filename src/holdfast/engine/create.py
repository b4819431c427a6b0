"""create: an intent becomes a durable job, once per idempotency key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.accept import accept as accept_jobs
from holdfast.engine.move import move
from holdfast.engine.registry import NeedsTransaction, Resolved
from holdfast.engine.rules import Rules
from holdfast.errors import Conflict, HoldfastError, Invalid, KeyReused, Locked, Refused
from holdfast.lifecycle import FINAL, STATUS, Actor, Idempotency, Policy, State
from holdfast.model import NewJob
from holdfast.model.hint import HINTS_MAX, Hint
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

    @property
    def waits(self) -> bool:
        """Nobody has accepted it yet."""
        return self.state is State.CREATED

    def accepted(self) -> Created:
        return msgspec.structs.replace(self, state=State.QUEUED)


class Ready(NamedTuple):
    """A job that has been checked, with its payload and its trace as they will be stored."""

    job: NewJob
    payload: str
    trace: str | None


def ready(job: NewJob) -> Ready:
    """If it is a job at all."""
    job.check()
    trace = encode(job.trace, "trace", max_bytes=4096) if job.trace else None
    return Ready(job, job.encoded_payload(), trace)


def all_ready(jobs: list[NewJob]) -> list[Ready]:
    """An error says which of them it is about."""
    done: list[Ready] = []
    try:
        for job in jobs:
            done.append(ready(job))  # noqa: PERF401  an error must find how far it came
    except Invalid as error:
        error.fields["place"] = len(done)
        raise
    return done


async def create(
    tx: Tx, rules: Rules, jobs: list[NewJob], *, actor: Actor, accept: bool | None = True, alone: bool = False
) -> list[Created]:
    """Store all jobs, or none. A job whose key is taken by an equal request is that request's job.

    `accept=False` leaves jobs whose lifecycle knows `created` there, until somebody accepts them; None leaves only
    those whose lifecycle makes acceptance a commit of its own.
    """
    if len(jobs) > rules.limits.batch_max:
        raise Invalid(f"{len(jobs)} jobs in one call, the limit is {rules.limits.batch_max}", code="batch_too_large")
    made = []
    answers = await create_each(tx, rules, all_ready(jobs), actor=actor, accept=accept, alone=alone)
    for place, answer in enumerate(answers):
        if isinstance(answer, HoldfastError):
            answer.fields["place"] = place
            raise answer
        made.append(answer)
    return made


async def create_each(
    tx: Tx, rules: Rules, jobs: list[Ready], *, actor: Actor, accept: bool | None = True, alone: bool = False
) -> list[Created | HoldfastError]:
    """The same, but a key that belongs to another request is that job's answer, and no matter of the others."""
    actor = Actor.named(actor)
    batch = await _prepare(tx, rules, jobs, accept=accept, alone=alone)
    inserted = await _insert(tx, rules, batch, actor=actor)
    if len(inserted) < len(jobs) and alone:
        raise NeedsTransaction
    taken = [one.job for one, row in zip(jobs, batch.fresh, strict=True) if row[_ID] not in inserted]
    holders = await key_holders(tx, taken)
    return [
        Created(row[_ID], batch.state(row))
        if row[_ID] in inserted
        else await _existing(tx, rules, one.job, row, batch, holders, actor=actor, accept=accept)
        for one, row in zip(jobs, batch.fresh, strict=True)
    ]


async def create_new(
    tx: Tx, rules: Rules, jobs: list[Ready], *, actor: Actor, accept: bool | None, alone: bool
) -> list[Created | None]:
    """Those whose key nobody holds, each by itself, in one statement; None for the others."""
    batch = await _prepare(tx, rules, jobs, accept=accept, alone=alone)
    inserted = await _insert(tx, rules, batch, actor=actor)
    return [Created(row[_ID], batch.state(row)) if row[_ID] in inserted else None for row in batch.fresh]


async def _insert(tx: Tx, rules: Rules, batch: _Batch, *, actor: Actor) -> set[str]:
    """In the order of keys, so that two batches with the same keys never wait for each other crosswise."""
    fresh = sorted(batch.fresh, key=lambda row: row[_KEY] or "")
    rows = await _insert_rows(tx, rules, fresh, batch, actor=actor)
    if not rows and any(row[_KEY] is None for row in fresh):  # no key was in the way
        raise rules.registry.stale()
    if rows:
        tx.after_commit(lambda: rules.hint(batch.hints()), hint=True)
    return {row["id"] for row in rows}


async def _insert_rows(tx: Tx, rules: Rules, fresh: list[tuple[Any, ...]], batch: _Batch, *, actor: Actor) -> list[Row]:
    lock_timeout = None if tx.lock_seconds is None else str(round(tx.lock_seconds * 1000))
    tables: dict[str, Any] = {"fresh": fresh, "kind": batch.kinds, "known": batch.known}
    return await move(tx, rules, q.insert_jobs, actor=actor, brief=True, lock_timeout=lock_timeout, **tables)


@contextmanager
def naming_key(jobs: list[NewJob]) -> Iterator[None]:
    """A lock that a create waits for in vain is that of a key in a transaction that has not ended."""
    try:
        yield
    except Locked as error:
        keys = [job.idempotency_key for job in jobs if job.idempotency_key is not None]
        if not keys:  # a lane or a policy that the other transaction is the first to use
            raise
        which = f"idempotency key {keys[0]!r} is" if len(keys) == 1 else f"one of {len(keys)} idempotency keys is"
        raise Locked(
            f"{which} held by a transaction that has not ended yet; nothing was written: try again",
            code="idempotency_key_locked",
        ) from error


class _Batch(NamedTuple):
    """Rows for `insert_jobs`: one per job, and one per distinct kind of job, which says whose ids it uses."""

    fresh: list[tuple[Any, ...]]
    kinds: list[tuple[Any, ...]]
    known: list[tuple[Any, ...]]
    resolved: dict[bytes, Resolved]

    def state(self, row: tuple[Any, ...]) -> State:
        return State(self.kinds[row[_KIND] or 0][_STATE])

    def hints(self) -> list[Hint]:
        """Of many of a kind, a few."""
        left = [HINTS_MAX] * len(self.kinds)
        found: list[Hint] = []
        for row in self.fresh:
            number = row[_KIND] or 0
            if left[number]:
                left[number] -= 1
                kind = self.kinds[number]
                found.append(Hint(kind[_QUEUE], kind[_TYPE], row[_ID], row[_PRIORITY] or 0))
        return found


_ID, _KIND, _PRIORITY, _KEY, _FINGERPRINT = 0, 1, 2, 7, 8  # places in a row of `fresh`
_TYPE, _QUEUE, _STATE = 2, 3, 8  # in one of `kind`


async def _prepare(tx: Tx, rules: Rules, jobs: list[Ready], *, accept: bool | None, alone: bool) -> _Batch:
    """Lanes and policies of all jobs come before the guards: only these wait for locks without a limit."""
    batch = _Batch([], [], [], {})
    kinds: list[Resolved] = []
    numbers: dict[Resolved, int] = {}
    resolved, alike = None, None
    ids = rules.ids.job_ids(rules.clock.now(), len(jobs))
    for (job, payload, trace), job_id in zip(jobs, ids, strict=True):
        kind = (job.tenant, job.type, job.lifecycle, job.queue, job.policy, job.requires, job.prefers)
        if resolved is None or kind != alike:  # jobs of a batch are mostly of one kind
            resolved, alike = await rules.registry.resolve(tx, job, batch.resolved, alone=alone), kind
        number = numbers.setdefault(resolved, len(numbers))
        if number == len(batch.kinds):
            batch.kinds.append((number, job.tenant, job.type, *_kind(resolved, accept=accept)))
            batch.known.append((resolved.lane, resolved.lane_digest, resolved.policy_id, resolved.policy_digest))
        batch.fresh.append((job_id, number or None, *_particulars(job, payload, trace)))
        kinds.append(resolved)
    if rules.hooks.guarded("create"):
        await _ask_guards(tx, rules, [one.job for one in jobs], kinds)
    return batch


def _kind(resolved: Resolved, *, accept: bool | None) -> tuple[Any, ...]:
    machine, policy = resolved.machine, resolved.policy
    if accept is None:
        accept = not machine.accept_separately
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


async def _ask_guards(tx: Tx, rules: Rules, jobs: list[NewJob], kinds: list[Resolved]) -> None:
    """A repeat makes nothing new: it gets its job, though the first request may have used up what a guard watches."""
    async with tx.app_code():
        for job, resolved in zip(jobs, kinds, strict=True):
            try:
                await rules.hooks.check(tx, "create", job, resolved.machine.name, job.type)
            except Refused:
                if not await is_repeat(tx, rules, job):
                    raise


async def is_repeat(tx: Tx, rules: Rules, job: NewJob) -> bool:
    """Does another job hold its key, and is that key not free to take over?"""
    holder = (await key_holders(tx, [job])).get(_owned(job))
    return holder is not None and not await is_free(tx, rules, holder)


def _owned(job: NewJob) -> tuple[str, str | None]:
    return job.tenant, job.idempotency_key


async def key_holders(tx: Tx, jobs: list[NewJob]) -> dict[tuple[str, str | None], Row]:
    """Who holds the keys of these requests."""
    keys = {_owned(job) for job in jobs if job.idempotency_key is not None}
    rows = await tx.all(q.jobs_by_key, asked=sorted(keys)) if keys else []
    return {(row["whose"], row["key"]): row for row in rows}


async def _existing(
    tx: Tx,
    rules: Rules,
    job: NewJob,
    row: tuple[Any, ...],
    batch: _Batch,
    holders: dict[tuple[str, str | None], Row],
    *,
    actor: Actor,
    accept: bool | None,
) -> Created | HoldfastError:
    """The job that holds the key, or ours if that key is free to take over."""
    for _ in range(TAKEOVERS_MAX):
        holder = holders.get(_owned(job))
        if holder is not None and not await is_free(tx, rules, holder):
            if holder["fingerprint"] != row[_FINGERPRINT]:
                return KeyReused(
                    f"idempotency key {job.idempotency_key!r} belongs to job {holder['id']}, created by a different "
                    "request; send the same request again, or choose a new key",
                    job_id=str(holder["id"]),
                )
            return await _repeated(tx, rules, holder, actor=actor, accept=accept)
        if holder is not None:
            await tx.one(q.free_key, id=holder["id"])
            await tx.one(q.drop_kept_key, id=holder["id"])
        if await _insert_rows(tx, rules, [row], batch, actor=actor):
            return Created(row[_ID], batch.state(row))
        if not (found := await key_holders(tx, [job])):  # so it was not the key
            raise rules.registry.stale()
        holders |= found
    return Conflict(
        f"idempotency key {job.idempotency_key!r} changes hands too quickly; try again", code="key_contended"
    )


async def _repeated(tx: Tx, rules: Rules, holder: Row, *, actor: Actor, accept: bool | None) -> Created:
    """The first job again. If its creator died before accepting it, the repeat finishes that."""
    job_id, state = str(holder["id"]), State(holder["state"])
    if state is State.CREATED and accept and await accept_jobs(tx, rules, [job_id], actor=actor):
        state = State.QUEUED
    return Created(job_id, state, existed=True)


async def is_free(tx: Tx, rules: Rules, holder: Row) -> bool:
    """The holder's own policy says how long its key is its own."""
    policy = (await rules.registry.snapshot(tx, holder["policy"])).policy
    match policy.idempotency:
        case Idempotency.FOREVER:
            return False
        case Idempotency.WINDOW:
            return bool(holder["now_at"] >= holder["created_at"] + _window(policy))
        case Idempotency.UNTIL_FAILED:
            return State(holder["state"]) in FINAL - {State.SUCCEEDED}


async def held_until(tx: Tx, rules: Rules, holder: Row) -> datetime | None:
    """When the key of a finished job will be free by itself; None: never."""
    policy = (await rules.registry.snapshot(tx, holder["policy"])).policy
    return holder["created_at"] + _window(policy) if policy.idempotency is Idempotency.WINDOW else None


def _window(policy: Policy) -> timedelta:
    return timedelta(seconds=policy.idempotency_window_seconds)
