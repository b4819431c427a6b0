"""The two doors of create: all jobs or none, and each job by itself. Policies and lanes are resolved before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, cast

from holdfast.batching import each
from holdfast.engine import create as _create
from holdfast.engine.context import EngineContext
from holdfast.engine.insert import Batch, CheckedJob, Created, all_checked, prepare
from holdfast.engine.registry import unless_stale
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.store import PostgresStore, SqliteStore, Tx

Answers = list[Created | Exception]
_Stores = PostgresStore | SqliteStore
_Answer = TypeVar("_Answer")


async def create_all(
    store: _Stores, ctx: EngineContext, jobs: list[NewJob], *, actor: Actor, accept: bool | None
) -> list[Created]:
    """All or none, in one statement unless a key is taken or hooks have a say."""

    async def write() -> list[Created]:
        if _fits_one_statement(ctx, jobs):
            batch = await _prepared(store, ctx, all_checked(jobs), accept=accept)
            new = await store.write(lambda tx: _create.create_new(tx, ctx, batch, actor=actor), **_ALONE)
            if made := [one for one in new if one is not None]:
                return made
        return await store.write(
            lambda tx: create_in_batches(tx, ctx, jobs, actor=actor, accept=accept), retry_locked=False
        )

    with _create.naming_key(jobs):
        return await unless_stale(write)


def _fits_one_statement(ctx: EngineContext, jobs: list[NewJob]) -> bool:
    """Of several jobs with keys, one whose key is taken would leave the others stored."""
    if len(jobs) > ctx.limits.batch_max or any(ctx.hooks.needs_of(job.type) for job in jobs):
        return False
    return len(jobs) == 1 or all(job.idempotency_key is None for job in jobs)


_ALONE = {"alone": True, "retry_locked": False}


async def _prepared(store: _Stores, ctx: EngineContext, jobs: list[CheckedJob], *, accept: bool | None) -> Batch:
    new = [one.job for one in jobs]
    resolved = ctx.registry.resolved(new)
    if resolved is None:
        resolved = await store.write(lambda tx: ctx.registry.resolve(tx, new), retry_locked=False)
    return prepare(ctx, jobs, resolved, accept=accept)


async def create_in_batches(
    tx: Tx, ctx: EngineContext, jobs: list[NewJob], *, actor: Actor, accept: bool | None
) -> list[Created]:
    """All or none, in this transaction."""
    size, made = ctx.limits.batch_max, list[Created]()
    for start in range(0, len(jobs), size):
        try:
            made += await _create.create(tx, ctx, jobs[start : start + size], actor=actor, accept=accept)
        except HoldfastError as error:
            if "place" in error.fields:
                error.fields["place"] += start
            raise
    return made


async def create_each(store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]) -> Answers:
    """Each is stored or refused by itself, and none is ever stored twice. What was committed is answered as such,
    whatever becomes of the rest."""
    plain = [one for one in jobs if ctx.hooks.needs_of(one.job.type) is None]
    tried = iter(await each(partial(_create_new, store, ctx), plain) if plain else [])
    new: list[Created | Exception | None] = [
        next(tried) if ctx.hooks.needs_of(one.job.type) is None else None for one in jobs
    ]
    left = [job for job, one in zip(jobs, new, strict=True) if one is None]
    others = iter(cast("Answers", await each(partial(_create_each, store, ctx), left) if left else []))
    return [next(others) if one is None else one for one in new]


async def _create_new(
    store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]
) -> Sequence[Created | Exception | None]:
    async def write() -> list[Created | None]:
        batch = await _prepared(store, ctx, jobs, accept=None)
        return await store.write(lambda tx: _create.create_new(tx, ctx, batch, actor=Actor.CLIENT), **_ALONE)

    return await _answered(write, jobs)


async def _create_each(store: _Stores, ctx: EngineContext, jobs: list[CheckedJob]) -> Sequence[Created | Exception]:
    async def work(tx: Tx) -> list[Created | HoldfastError]:
        return await _create.create_each(tx, ctx, jobs, actor=Actor.CLIENT, accept=None)

    return await _answered(lambda: store.write(work, retry_locked=False), jobs)


async def _answered(
    write: Callable[[], Awaitable[list[_Answer]]], jobs: list[CheckedJob]
) -> Sequence[_Answer | Exception]:
    """A mistake of our own is the answer to these jobs, and not to those that are stored already."""
    try:
        with _create.naming_key([one.job for one in jobs]):
            return await unless_stale(write)
    except HoldfastError:
        raise
    except Exception as error:
        return [error] * len(jobs)


async def accept_each(accept: Callable[[list[str]], Awaitable[list[str]]], made: Answers) -> Answers:
    """Accept those that still wait for it. To repeat this is harmless, and creating is over."""
    waiting = [one for one in made if isinstance(one, Created) and one.waits]
    if not waiting:
        return made

    async def accepted(some: list[Created]) -> list[Created]:
        done = await accept([one.id for one in some])
        return [one.accepted() if one.id in done else one for one in some]

    answers: Sequence[Created | Exception]
    try:
        answers = await each(accepted, waiting)
    except Exception as error:
        answers = [error] * len(waiting)
    told = {
        one.id: not_accepted(one.id, answer) if isinstance(answer, Exception) else answer
        for one, answer in zip(waiting, answers, strict=True)
    }
    return [told.get(one.id, one) if isinstance(one, Created) else one for one in made]


def not_accepted(job_id: str, error: Exception) -> OutcomeUnknown:
    """Not a failure of the create: that has happened."""
    told = (
        f"job {job_id} is stored but not yet accepted ({{}}); repeat the request with the same key, or maintenance "
        "accepts the job later"
    )
    why = error.message if isinstance(error, HoldfastError) else type(error).__name__
    unknown = OutcomeUnknown(told.format(why), full=told.format(error), job_id=job_id)
    unknown.__cause__ = error
    return unknown
