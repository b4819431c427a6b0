"""Idempotency keys: which job holds a key, until when, and the answer to a create whose key is taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.engine.accept import accept_or_skip
from holdfast.engine.context import EngineContext
from holdfast.engine.insert import Created
from holdfast.errors import Conflict, HoldfastError, KeyReused, Locked
from holdfast.lifecycle import Actor, Idempotency, Policy, State
from holdfast.model import NewJob
from holdfast.store import Row, Tx, q

TAKEOVERS_MAX = 5

# A client that repeats a request after its job failed wants a new job. A rejected one would only be rejected again.
FAILED = frozenset({State.DEAD, State.CANCELED})
_WINDOWS = frozenset({Idempotency.WINDOW, Idempotency.WINDOW_UNTIL_FAILED})
_FREED_BY_FAILURE = frozenset({Idempotency.UNTIL_FAILED, Idempotency.WINDOW_UNTIL_FAILED})


async def is_repeat(tx: Tx, ctx: EngineContext, job: NewJob) -> bool:
    """Whether an existing job holds the key of this one, and the key is not free."""
    holder = (await key_holders(tx, [job])).get(owner_of(job))
    return holder is not None and not await is_free(tx, ctx, holder)


def key_locked(keys: Sequence[str | None]) -> Locked:
    which = f"idempotency key {keys[0]!r} is" if len(keys) == 1 else f"one of {len(keys)} idempotency keys is"
    return Locked(
        f"{which} held by a transaction that is still open; nothing was written: try again",
        code="idempotency_key_locked",
    )


def owner_of(job: NewJob) -> tuple[str, str | None]:
    return job.tenant, job.idempotency_key


async def key_holders(tx: Tx, jobs: list[NewJob]) -> dict[tuple[str, str | None], Row]:
    """The rows of the jobs that hold the keys of these requests."""
    keys = {owner_of(job) for job in jobs if job.idempotency_key is not None}
    rows = await tx.all(q.jobs_by_key, asked=sorted(keys)) if keys else []
    return {(row["whose"], row["key"]): row for row in rows}


async def is_free(tx: Tx, ctx: EngineContext, holder: Row) -> bool:
    """Whether the key may be taken over, by the policy of the job that holds it."""
    policy = (await ctx.registry.snapshot(tx, holder["policy"])).policy
    if policy.idempotency in _FREED_BY_FAILURE and State(holder["state"]) in FAILED:
        return True
    ends_at = _end_of_window(policy, holder)
    return ends_at is not None and bool(holder["now_at"] >= ends_at)


async def held_until(tx: Tx, ctx: EngineContext, holder: Row) -> datetime | None:
    """When the key of a finished job becomes free; None: never."""
    policy = (await ctx.registry.snapshot(tx, holder["policy"])).policy
    return _end_of_window(policy, holder)


def _end_of_window(policy: Policy, holder: Row) -> datetime | None:
    created_at: datetime = holder["created_at"]
    return created_at + timedelta(seconds=policy.idempotency_window_seconds) if policy.idempotency in _WINDOWS else None


async def repeat_of(
    tx: Tx,
    ctx: EngineContext,
    job: NewJob,
    fingerprint: str | None,
    holder: Row | None,
    *,
    actor: Actor,
    accept: bool | None,
) -> Created | HoldfastError | None:
    """The answer to a request whose key is taken. None: no job holds the key, or not any more."""
    if holder is None:
        return None
    if await is_free(tx, ctx, holder):
        await tx.one(q.free_key, id=holder["id"])
        await tx.one(q.drop_kept_key, id=holder["id"])
        return None
    if holder["fingerprint"] != fingerprint:
        return key_reused(job, str(holder["id"]))
    return await _repeated(tx, ctx, holder, actor=actor, accept=accept)


async def _repeated(tx: Tx, ctx: EngineContext, holder: Row, *, actor: Actor, accept: bool | None) -> Created:
    """The job of the first request; accept it if its creator crashed before that."""
    job_id, state = str(holder["id"]), State(holder["state"])
    if state is State.CREATED and accept and await accept_or_skip(tx, ctx, [job_id], actor=actor):
        state = State.QUEUED
    return Created(job_id, state, existed=True)


def key_reused(job: NewJob, holder: str) -> KeyReused:
    return KeyReused(
        f"idempotency key {job.idempotency_key!r} belongs to job {holder}, created by a different request; repeat that "
        "request unchanged, or use a new key",
        job_id=holder,
    )


def contended(job: NewJob) -> Conflict:
    return Conflict(
        f"idempotency key {job.idempotency_key!r} is used by too many requests at once; try again", code="key_contended"
    )
