"""create for job types with hooks: guards run before the insert, effects after it, in one transaction.

A repeated request creates nothing, so its guards do not run: the first request may have used up a quota they check.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.engine.accept import accept_in_create
from holdfast.engine.context import EngineContext
from holdfast.engine.hooks.hooks import Hook
from holdfast.engine.hooks.moves import SomeSettled, blamed_on, each_by_itself, run_hook
from holdfast.engine.idempotency import (
    TAKEOVERS_MAX,
    contended,
    key_holders,
    key_locked,
    owner_of,
    repeat_of,
)
from holdfast.engine.insert import CheckedJob, Created, checked, insert, prepare
from holdfast.engine.reads.read import get
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.model.derived_key import WITHIN_SECONDS, with_derived_key
from holdfast.store import Tx

Answer = Created | HoldfastError


class CreateRequest:
    """The argument of a guard on `create`, which may set the idempotency key, answer with an existing job, or refuse.

    `job_id`: the id of the job, if it is created. `state` is for guards that have something to tell to later ones."""

    __slots__ = ("existing", "job", "job_id", "refusal", "state", "verb")

    def __init__(self, job: NewJob, job_id: str) -> None:
        self.verb = "create"
        self.job, self.job_id = job, job_id
        self.existing: str | None = None
        self.refusal: HoldfastError | None = None
        self.state: Any = None

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

    def refuse(self, error: HoldfastError) -> None:
        """As raising it does, but of a batch only this request is refused. All that guards wrote is rolled back, and
        the others are asked again."""
        self.refusal = error


class _Item(NamedTuple):
    id: str
    one: CheckedJob


class _Asked:
    """A request, and what has become of it. `existing`: the job that a guard answered with; `answer`: that of a repeat;
    `is_second`: an earlier request of the batch has the same key."""

    def __init__(self, item: _Item, job_id: str) -> None:
        self.item, self.request = item, CreateRequest(item.one.job, job_id)
        self.checked = item.one
        self.existing: Created | None = None
        self.answer: Answer | None = None
        self.is_second = False

    @property
    def job(self) -> NewJob:
        return self.checked.job

    @property
    def is_keyed(self) -> bool:
        """A guard has set its key."""
        return self.checked is not self.item.one

    @property
    def is_open(self) -> bool:
        found = (self.existing, self.answer, self.request.refusal)
        return found == (None, None, None) and not self.is_second


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
        self._taken = 0  # times that another transaction took a key meanwhile
        # Keys that guards set, before the next guard. For batches it costs a tenth of their time, and is done after a
        # refusal or a conflict. Guards that take no batches are never asked about repeats.
        self._looks_up = False

    async def create(self, items: list[_Item]) -> dict[str, Answer]:
        """Of one item, or of several together. Raises `SomeSettled` where what the guards wrote has to be undone."""
        ids = self._ctx.ids.job_ids(self._ctx.clock.now(), len(items))
        every = [_Asked(item, job_id) for item, job_id in zip(items, ids, strict=True)]
        await self._find_repeats(every)
        repeats = {asked.item.id: asked.answer for asked in every if asked.answer is not None}
        new = [asked for asked in every if asked.is_open]
        await self._ask(new, by_itself=len(items) == 1)
        refused = [asked for asked in new if asked.request.refusal is not None and not asked.is_second]
        if refused and not self._looks_up and any(asked.is_keyed for asked in new):
            self._looks_up = True  # repeats among them may have used up what the others need
            raise SomeSettled(repeats)
        await self._find_repeats(refused)
        ended = {asked.item.id: asked.answer or asked.request.refusal for asked in new if not asked.is_second}
        settled = {item: answer for item, answer in ended.items() if answer is not None}
        seconds = {asked.item.id for asked in every if asked.is_second}
        if settled or seconds:
            raise SomeSettled({**repeats, **settled}, later=seconds)
        made = await self._insert([asked for asked in new if asked.existing is None])
        return {**repeats, **{asked.item.id: asked.existing or made[asked] for asked in new}}

    async def _find_repeats(self, every: list[_Asked]) -> None:
        """Of requests that have keys: the later ones of the batch with the same key, and repeats of existing jobs.

        Also of refused ones: a repeat is not refused, whatever the first request has used up, perhaps in a transaction
        for which the guard has waited.
        """
        firsts = _find_seconds(every)
        holders = await key_holders(self._tx, [asked.job for asked in firsts.values()]) if firsts else {}
        for owner, holder in holders.items():
            job = firsts[owner].job
            firsts[owner].answer = await repeat_of(
                *(self._tx, self._ctx, job, job.fingerprint(), holder), actor=self._actor, accept=self._accept
            )

    # -- guards ---------------------------------------------------------------------------------------------------

    async def _ask(self, every: list[_Asked], *, by_itself: bool) -> None:
        """Run all guards of these requests."""
        for job_type in dict.fromkeys(asked.job.type for asked in every):
            of_type = [asked for asked in every if asked.job.type == job_type]
            hooks = self._ctx.hooks.guards("create", job_type)
            looks_up = self._looks_up or by_itself or not all(hook.batch for hook in hooks)
            for hook in hooks:
                is_open = [asked for asked in of_type if asked.is_open]
                await self._run(hook, is_open, by_itself=by_itself)
                keyed = [asked for asked in is_open if await self._apply(hook, asked)]
                if keyed and looks_up:
                    await self._find_repeats(keyed)
                else:
                    _find_seconds(keyed)

    async def _run(self, hook: Hook, every: list[_Asked], *, by_itself: bool) -> None:
        requests = [asked.request for asked in every]
        for argument in [requests] if hook.batch and requests else requests:
            called = hook.function(self._tx, argument)
            await run_hook(self._tx, self._ctx, hook, called, guard=True, by_itself=by_itself)

    async def _apply(self, hook: Hook, asked: _Asked) -> bool:
        """Whether the guard has set a key, or changed the job otherwise."""
        request = asked.request
        with blamed_on(hook):
            if request.existing is not None:
                job = await get(self._tx, request.existing, asked.job.tenant)
                asked.existing = Created(job.id, job.state, existed=True)
                return False
            if request.job is asked.job:
                return False
            asked.checked = checked(request.job)
        return True

    # -- the insert -----------------------------------------------------------------------------------------------

    async def _insert(self, new: list[_Asked]) -> dict[_Asked, Created]:
        if not new:
            return {}
        resolved = await self._ctx.registry.resolve(self._tx, [asked.job for asked in new])
        ids = [asked.request.job_id for asked in new]
        batch = prepare(self._ctx, [asked.checked for asked in new], resolved, accept=self._accept, ids=ids)
        try:
            inserted = await insert(self._tx, self._ctx, batch, actor=self._actor, which=self._ctx.mine)
        except self._tx.lock_errors:
            if len(new) > 1:
                raise
            raise SomeSettled({new[0].item.id: key_locked([new[0].job.idempotency_key])}) from None
        if len(inserted) < len(new):
            raise self._another_took_a_key(new)
        made = batch.made()
        if self._accept and (waiting := [one.id for one in made if one.waits]):
            await accept_in_create(self._tx, self._ctx, waiting, actor=self._actor)
            made = [one.accepted() for one in made]
        return dict(zip(new, made, strict=True))

    def _another_took_a_key(self, new: list[_Asked]) -> SomeSettled:
        """Its job is there now: all are tried again."""
        self._taken, self._looks_up = self._taken + 1, True
        keyed = [asked for asked in new if asked.job.idempotency_key is not None]
        return SomeSettled({asked.item.id: contended(asked.job) for asked in keyed if self._taken >= TAKEOVERS_MAX})


def _find_seconds(every: list[_Asked]) -> dict[tuple[str, str | None], _Asked]:
    """The first request of each key."""
    firsts: dict[tuple[str, str | None], _Asked] = {}
    for asked in every:
        if asked.job.idempotency_key is not None:
            asked.is_second = firsts.setdefault(owner_of(asked.job), asked) is not asked
    return firsts
