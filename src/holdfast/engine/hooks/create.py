"""create for job types with hooks: guards run before the insert, effects after it, in one transaction.

A repeated request creates nothing, so its guards do not run: the first request may have used up a quota they check.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.engine.accept import accept_in_create
from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.moves import blamed_on, each_by_itself, run_hook
from holdfast.engine.idempotency import TAKEOVERS_MAX, contended, key_holders, key_locked, owner_of, repeat_of
from holdfast.engine.insert import CheckedJob, Created, checked, insert, prepare
from holdfast.engine.reads.read import get
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.model.derived_key import WITHIN_SECONDS, with_derived_key
from holdfast.store import Tx

Answer = Created | HoldfastError


class CreateRequest:
    """The argument of a guard on `create`, which may set the idempotency key or answer with an existing job."""

    __slots__ = ("existing", "job", "verb")

    def __init__(self, job: NewJob) -> None:
        self.verb = "create"
        self.job = job
        self.existing: str | None = None

    def set_key(self, key: str) -> None:
        self.job = msgspec.structs.replace(self.job, idempotency_key=key)

    def derive_key(self, subject: str, *request: Any, within_seconds: float = WITHIN_SECONDS) -> None:
        """Set a key made of the subject and the request: a repeat within that time gets the same job, unless it failed.

        A key that the client sent stays.
        """
        self.job = with_derived_key(self.job, subject, *request, within_seconds=within_seconds)

    def answer_with(self, job_id: str) -> None:
        """Create nothing; answer with this job."""
        self.existing = job_id


class _Item(NamedTuple):
    id: str
    one: CheckedJob


class _Asked(NamedTuple):
    """A request after its guards. `existing`: the job that a guard answered with."""

    checked: CheckedJob
    existing: Created | None = None


class _NotTogether(Exception):
    """A key of the batch is taken: the jobs must be created one by one."""


class _Settled(Exception):
    """Roll back what the guards have written, and answer with this."""

    def __init__(self, answer: Answer | None) -> None:
        self.answer = answer


async def create_with_hooks(
    tx: Tx, ctx: EngineContext, jobs: list[CheckedJob], *, actor: Actor, accept: bool | None
) -> list[Answer]:
    await tx.wait_for_locks()
    creation = _Creation(tx, ctx, actor, accept)
    items = [_Item(str(place), one) for place, one in enumerate(jobs)]
    answers = await each_by_itself(tx, ctx, "create", items, creation.create)
    return [answers[item.id] for item in items]


class _Creation:
    def __init__(self, tx: Tx, ctx: EngineContext, actor: Actor, accept: bool | None) -> None:
        self._tx, self._ctx, self._actor, self._accept = tx, ctx, actor, accept

    async def create(self, items: list[_Item]) -> dict[str, Answer]:
        if len(items) == 1:
            return {items[0].id: await self._one(items[0].one)}
        await self._require_free([item.one.job for item in items])
        asked = [await self._ask(item.one) for item in items]
        keyed = [one.checked.job for one, item in zip(asked, items, strict=True) if one.checked is not item.one]
        await self._require_free(keyed)
        made = await self._insert(asked)
        return {item.id: answer for item, answer in zip(items, made, strict=True)}

    async def _require_free(self, jobs: list[NewJob]) -> None:
        if await key_holders(self._tx, jobs):
            raise _NotTogether

    async def _insert(self, asked: list[_Asked]) -> list[Answer]:
        new = [one.checked for one in asked if one.existing is None]
        resolved = await self._ctx.registry.resolve(self._tx, [one.job for one in new])
        batch = prepare(self._ctx, new, resolved, accept=self._accept)
        inserted = await insert(self._tx, self._ctx, batch, actor=self._actor, which=self._ctx.mine) if new else ()
        if len(inserted) < len(new):
            raise _NotTogether
        made = batch.made()
        if self._accept and (waiting := [one.id for one in made if one.waits]):
            await accept_in_create(self._tx, self._ctx, waiting, actor=self._actor)
            made = [one.accepted() for one in made]
        rows = iter(made)
        return [one.existing or next(rows) for one in asked]

    async def _ask(self, one: CheckedJob, *, repeats: bool = False) -> _Asked:
        """Run all guards of one request. `repeats`: when a guard sets a key, check whether it is taken."""
        request = CreateRequest(one.job)
        for hook in self._ctx.hooks.guards("create", one.job.type):
            called = hook.function(self._tx, request)
            await run_hook(self._tx, self._ctx, hook, called, guard=True, by_itself=repeats)
            with blamed_on(hook):
                if request.existing is not None:
                    job = await get(self._tx, request.existing, one.job.tenant)
                    return _Asked(one, Created(job.id, job.state, existed=True))
                if request.job is one.job:
                    continue
                one = checked(request.job)
            if repeats and (found := await self._repeat(one.job)) is not None:
                raise _Settled(found)
        return _Asked(one)

    async def _one(self, one: CheckedJob) -> Answer:
        for _ in range(TAKEOVERS_MAX):
            if (found := await self._repeat(one.job)) is not None:
                return found
            try:
                async with self._tx.savepoint():
                    return (await self._insert([await self._ask(one, repeats=True)]))[0]
            except _Settled as settled:
                return settled.answer or contended(one.job)
            except _NotTogether:  # another transaction has just taken the key
                continue
            except self._tx.lock_errors:
                return key_locked([one.job.idempotency_key])
        return contended(one.job)

    async def _repeat(self, job: NewJob) -> Answer | None:
        holder = (await key_holders(self._tx, [job])).get(owner_of(job))
        fingerprint = job.fingerprint() if holder is not None else None
        return await repeat_of(*(self._tx, self._ctx, job, fingerprint, holder), actor=self._actor, accept=self._accept)
