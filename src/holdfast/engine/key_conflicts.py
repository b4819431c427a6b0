"""A create whose idempotency key is taken: a repeated request, a different request, or a key that has become free."""

from __future__ import annotations

from holdfast.engine.accept import accept_or_skip
from holdfast.engine.context import EngineContext
from holdfast.engine.idempotency import is_free
from holdfast.engine.insert import Created
from holdfast.errors import Conflict, HoldfastError, KeyReused
from holdfast.lifecycle import Actor, State
from holdfast.model import NewJob
from holdfast.store import Row, Tx, q

TAKEOVERS_MAX = 5


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
        return KeyReused(
            f"idempotency key {job.idempotency_key!r} belongs to job {holder['id']}, created by a different "
            "request; repeat that request unchanged, or use a new key",
            job_id=str(holder["id"]),
        )
    return await _repeated(tx, ctx, holder, actor=actor, accept=accept)


async def _repeated(tx: Tx, ctx: EngineContext, holder: Row, *, actor: Actor, accept: bool | None) -> Created:
    """The job of the first request; accept it if its creator crashed before that."""
    job_id, state = str(holder["id"]), State(holder["state"])
    if state is State.CREATED and accept and await accept_or_skip(tx, ctx, [job_id], actor=actor):
        state = State.QUEUED
    return Created(job_id, state, existed=True)


def contended(job: NewJob) -> Conflict:
    return Conflict(
        f"idempotency key {job.idempotency_key!r} is used by too many requests at once; try again", code="key_contended"
    )
