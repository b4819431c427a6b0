"""create: store a request as a durable job, once per idempotency key.

There are two entry points: `create_all` stores all jobs or none, `store_each` stores each job independently. Both
resolve policies and lanes before the transaction. `create` and `create_each` run inside one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.batching import each
from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.create import create_with_hooks
from holdfast.engine.idempotency import TAKEOVERS_MAX, contended, key_holders, key_locked, owner_of, repeat_of
from holdfast.engine.insert import (
    FINGERPRINT,
    Batch,
    CheckedJob,
    Created,
    all_checked,
    insert,
    insert_plain,
    insert_rows,
    is_plain,
    not_inserted,
    prepare,
    prepare_plain,
)
from holdfast.engine.registry import Resolved, unless_stale
from holdfast.errors import HoldfastError, Locked
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.store import PostgresStore, Row, SqliteStore, Tx

_Stores = PostgresStore | SqliteStore
_Answer = TypeVar("_Answer")


async def create_all(
    store: _Stores, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None
) -> list[Created]:
    """Store all jobs or none: in one statement, unless an idempotency key is taken or a type has hooks."""

    async def write() -> list[Created]:
        if _fits_one_statement(ctx, jobs):
            new = await _store_new(store, ctx, jobs, actor=actor, accept=accept)
            if made := [one for one in new if one is not None]:
                return made
        return await store.write(
            lambda tx: _create_checked(tx, ctx, jobs, actor=actor, accept=accept), retry_locked=False
        )

    try:
        return await unless_stale(write)
    except Locked as error:
        if keys := _keys_of(jobs):
            raise key_locked(keys) from error
        raise


async def create_alike(
    store: _Stores, ctx: EngineContext, one: CheckedJob, payloads: list[str], *, actor: Actor, accept: bool | None
) -> list[Created]:
    """`create_all` for jobs that differ from `one` only in their payloads: most are plain, and then it is cheaper."""
    actor = Actor.named(actor)

    async def write() -> list[Created] | None:
        [resolved] = await _resolved(store, ctx, [one.job])
        return await _store_plain(store, ctx, one.job, payloads, resolved, actor=actor, accept=accept)

    if len(payloads) <= ctx.limits.batch_max and is_plain(one) and (made := await unless_stale(write)) is not None:
        return made
    return await create_all(store, ctx, [one._replace(payload=text) for text in payloads], actor=actor, accept=accept)


def _fits_one_statement(ctx: EngineContext, jobs: list[CheckedJob]) -> bool:
    """Not for several jobs with keys: if one key is taken, the statement would store only the other jobs."""
    if len(jobs) > ctx.limits.batch_max or any(map(ctx.hooks.needs_of, {one.job.type for one in jobs})):
        return False
    return len(jobs) == 1 or all(one.job.idempotency_key is None for one in jobs)


async def _store_new(
    store: _Stores, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None
) -> list[Created | None]:
    """Store the jobs whose key is free, in one statement; None for the others. None of the jobs has hooks."""
    actor = Actor.named(actor)
    resolved = await _resolved(store, ctx, [one.job for one in jobs])
    if resolved.count(resolved[0]) == len(jobs) and all(map(is_plain, jobs)):
        payloads = [one.payload for one in jobs]
        plain = await _store_plain(store, ctx, jobs[0].job, payloads, resolved[0], actor=actor, accept=accept)
        if plain is not None:
            return [*plain]
    batch = prepare(ctx, jobs, resolved, accept=accept)
    work, small = partial(insert, ctx=ctx, batch=batch, actor=actor), len(jobs) == 1
    inserted = await store.write(work, alone=True, small=small, retry_locked=False)
    made = batch.made()
    return [*made] if len(inserted) == len(made) else [one if one.id in inserted else None for one in made]


async def _store_plain(
    store: _Stores,
    ctx: EngineContext,
    job: NewJob,
    payloads: list[str],
    resolved: Resolved,
    *,
    actor: Actor,
    accept: bool | None,
) -> list[Created] | None:
    """Store plain jobs of one kind, all or none. None: the kind needs the other statement."""
    batch = prepare_plain(ctx, job, payloads, resolved, accept=accept)
    if batch is None:
        return None
    work, small = partial(insert_plain, ctx=ctx, batch=batch, actor=actor), len(payloads) == 1
    await store.write(work, alone=True, small=small, retry_locked=False)
    return batch.made()


async def _resolved(store: _Stores, ctx: EngineContext, new: list[NewJob]) -> list[Resolved]:
    if (known := ctx.registry.resolved(new)) is not None:
        return known
    return await store.write(lambda tx: ctx.registry.resolve(tx, new), retry_locked=False)


async def store_each(store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]) -> list[Created | Exception]:
    """Store or refuse each job independently, none twice. An error in a later batch does not hide committed jobs."""
    plain = [one for one in jobs if ctx.hooks.needs_of(one.job.type) is None]
    tried = iter(await each(partial(_create_new, store, ctx), plain) if plain else [])
    new: list[Created | Exception | None] = [
        next(tried) if ctx.hooks.needs_of(one.job.type) is None else None for one in jobs
    ]
    left = [job for job, one in zip(jobs, new, strict=True) if one is None]
    others = iter(
        cast("list[Created | Exception]", await each(partial(_create_each, store, ctx), left) if left else [])
    )
    return [next(others) if one is None else one for one in new]


async def _create_new(
    store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]
) -> Sequence[Created | Exception | None]:
    write = partial(_store_new, store, ctx, jobs, actor=Actor.CLIENT, accept=None)
    return await _result_or_error(write, jobs)


async def _create_each(store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]) -> Sequence[Created | Exception]:
    work = partial(create_each, ctx=ctx, jobs=jobs, actor=Actor.CLIENT, accept=None)
    return await _result_or_error(lambda: store.write(work, retry_locked=False), jobs)


async def _result_or_error(
    write: Callable[[], Awaitable[list[_Answer]]], jobs: list[CheckedJob]
) -> Sequence[_Answer | Exception]:
    """An unexpected error is the answer to these jobs only; other batches may be committed already."""
    try:
        return await unless_stale(write)
    except Locked as error:
        if keys := _keys_of(jobs):
            raise key_locked(keys) from error
        raise
    except HoldfastError:
        raise
    except Exception as error:
        return [error] * len(jobs)


async def create(
    tx: Tx, ctx: EngineContext, jobs: list[NewJob], *, actor: Actor, accept: bool | None = True
) -> list[Created]:
    """Store all jobs or none. A repeated request (same key, same content) returns the job of the first request.

    `accept=False` leaves jobs in `created`, where the lifecycle has that state; None does so only where the lifecycle
    separates acceptance.
    """
    return await _create_checked(tx, ctx, all_checked(jobs), actor=actor, accept=accept)


async def _create_checked(
    tx: Tx, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None
) -> list[Created]:
    size, made = ctx.limits.batch_max, list[Created]()
    for start in range(0, len(jobs), size):
        for answer in await create_each(tx, ctx, jobs[start : start + size], actor=actor, accept=accept):
            if isinstance(answer, HoldfastError):
                answer.fields["place"] = len(made)
                raise answer
            made.append(answer)
    return made


async def create_each(
    tx: Tx, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None = True
) -> list[Created | HoldfastError]:
    """Store each job, or return why it was refused."""
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
    inserted, made = await insert(tx, ctx, batch, actor=actor), batch.made()
    if len(inserted) == len(made):
        return [*made]
    taken = [one.job for one, new in zip(jobs, made, strict=True) if new.id not in inserted]
    holders = await key_holders(tx, taken)
    return [
        new
        if new.id in inserted
        else await _existing(tx, ctx, one.job, new, row, batch, holders, actor=actor, accept=accept)
        for one, new, row in zip(jobs, made, batch.fresh, strict=True)
    ]


async def _existing(
    tx: Tx,
    ctx: EngineContext,
    job: NewJob,
    new: Created,
    row: tuple[Any, ...],
    batch: Batch,
    holders: dict[tuple[str, str | None], Row],
    *,
    actor: Actor,
    accept: bool | None,
) -> Created | HoldfastError:
    """The job that holds the key, or the new job if the key has become free."""
    for _ in range(TAKEOVERS_MAX):
        holder = holders.get(owner_of(job))
        found = await repeat_of(tx, ctx, job, row[FINGERPRINT], holder, actor=actor, accept=accept)
        if found is not None:
            return found
        if await insert_rows(tx, ctx, [row], batch, actor=actor):
            return new
        if not (others := await key_holders(tx, [job])):  # the key was not the reason
            raise await not_inserted(tx, ctx, batch.types())
        holders |= others
    return contended(job)


def _keys_of(jobs: list[CheckedJob]) -> list[str]:
    """Whose lock may have timed out: another open transaction has created a job with the same key. Without keys, the
    lock is on a lane or policy that it interns."""
    return [one.job.idempotency_key for one in jobs if one.job.idempotency_key is not None]
