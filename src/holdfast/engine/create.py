"""create: an intent becomes a durable job, once per idempotency key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.create import create_with_hooks
from holdfast.engine.idempotency import key_holders, key_locked, owner_of
from holdfast.engine.insert import (
    FINGERPRINT,
    ID,
    Batch,
    CheckedJob,
    Created,
    all_checked,
    insert,
    insert_rows,
    not_inserted,
    prepare,
)
from holdfast.engine.key_conflicts import TAKEOVERS_MAX, contended, repeat_of
from holdfast.errors import HoldfastError, Locked
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.store import Row, Tx


async def create(
    tx: Tx, ctx: EngineContext, jobs: list[NewJob], *, actor: Actor, accept: bool | None = True
) -> list[Created]:
    """Store all jobs, or none. A job whose key is taken by an equal request is that request's job.

    `accept=False` leaves jobs whose lifecycle knows `created` in that state until they are accepted; None leaves only
    those whose lifecycle makes acceptance a commit of its own.
    """
    made = []
    for place, answer in enumerate(await create_each(tx, ctx, all_checked(jobs), actor=actor, accept=accept)):
        if isinstance(answer, HoldfastError):
            answer.fields["place"] = place
            raise answer
        made.append(answer)
    return made


async def create_each(
    tx: Tx, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None = True
) -> list[Created | HoldfastError]:
    """The same, but a refusal, or a key that belongs to another request, is the answer for that job alone."""
    actor = Actor.named(actor)
    hooked = [ctx.hooks.needs_of(one.job.type) is not None for one in jobs]
    if not any(hooked):
        return await _create_plain(tx, ctx, jobs, actor=actor, accept=accept)
    plain = [one for one, is_hooked in zip(jobs, hooked, strict=True) if not is_hooked]
    others = [one for one, is_hooked in zip(jobs, hooked, strict=True) if is_hooked]
    by_plain = iter(await _create_plain(tx, ctx, plain, actor=actor, accept=accept) if plain else [])
    by_hooks = iter(await create_with_hooks(tx, ctx, others, actor=actor, accept=accept))
    return [next(by_hooks if is_hooked else by_plain) for is_hooked in hooked]


async def _create_plain(
    tx: Tx, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None
) -> list[Created | HoldfastError]:
    resolved = await ctx.registry.resolve(tx, [one.job for one in jobs])
    batch = prepare(ctx, jobs, resolved, accept=accept)
    inserted = await insert(tx, ctx, batch, actor=actor)
    taken = [one.job for one, row in zip(jobs, batch.fresh, strict=True) if row[ID] not in inserted]
    holders = await key_holders(tx, taken)
    return [
        batch.made(row)
        if row[ID] in inserted
        else await _existing(tx, ctx, one.job, row, batch, holders, actor=actor, accept=accept)
        for one, row in zip(jobs, batch.fresh, strict=True)
    ]


async def create_new(tx: Tx, ctx: EngineContext, batch: Batch, *, actor: Actor) -> list[Created | None]:
    """In one statement: the jobs whose key is free; None for the others. No job of the batch needs hooks."""
    inserted = await insert(tx, ctx, batch, actor=Actor.named(actor))
    return [batch.made(row) if row[ID] in inserted else None for row in batch.fresh]


@contextmanager
def naming_key(jobs: list[NewJob]) -> Iterator[None]:
    """A lock that a create waits for in vain is that of a key in a transaction that has not ended."""
    try:
        yield
    except Locked as error:
        keys = [job.idempotency_key for job in jobs if job.idempotency_key is not None]
        if not keys:  # a lane or a policy that the other transaction is the first to use
            raise
        raise key_locked(keys) from error


async def _existing(
    tx: Tx,
    ctx: EngineContext,
    job: NewJob,
    row: tuple[Any, ...],
    batch: Batch,
    holders: dict[tuple[str, str | None], Row],
    *,
    actor: Actor,
    accept: bool | None,
) -> Created | HoldfastError:
    """The job that holds the key, or ours if that key is free to take over."""
    for _ in range(TAKEOVERS_MAX):
        holder = holders.get(owner_of(job))
        found = await repeat_of(tx, ctx, job, row[FINGERPRINT], holder, actor=actor, accept=accept)
        if found is not None:
            return found
        if await insert_rows(tx, ctx, [row], batch, actor=actor):
            return batch.made(row)
        if not (others := await key_holders(tx, [job])):  # so it was not the key
            raise await not_inserted(tx, ctx, batch)
        holders |= others
    return contended(job)
