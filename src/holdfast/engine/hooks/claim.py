"""claim for job types with hooks: guards decide on each job before it is leased, effects run afterwards."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.context import GIVEN_MAX, EngineContext
from holdfast.engine.fail import check_words, stored_error
from holdfast.engine.hooks.hooks import Hook
from holdfast.engine.hooks.moves import (
    Found,
    LockWaits,
    PutOff,
    blamed_on,
    defer_refused,
    each_by_itself,
    jobs_of,
    record_deferrals,
    run_hook,
)
from holdfast.engine.move import move
from holdfast.engine.preconditions import require_move
from holdfast.errors import HoldfastError
from holdfast.lifecycle import Actor, State
from holdfast.model import Job
from holdfast.model.names import check_name
from holdfast.model.numbers import check_number
from holdfast.store import Row, Tx, q
from holdfast.store.queries import Query


class Allow(msgspec.Struct, frozen=True):
    """The worker may run the job. Returning None means the same."""


class Defer(msgspec.Struct, frozen=True):
    """Not now: ask again after this many seconds."""

    seconds: float
    reason: str = "deferred"  # shown by `jobs why`


class RejectJob(msgspec.Struct, frozen=True):
    """Reject the job before it runs, if its lifecycle allows that."""

    code: str
    message: str = ""


class CancelJob(msgspec.Struct, frozen=True):
    """Cancel the job, if its lifecycle allows that."""

    reason: str = "canceled"


ROUNDS_MAX = 8  # of a claim in one lane; each reads twice as many jobs as the one before

Verdict = Allow | Defer | RejectJob | CancelJob
_VERDICTS = (Allow, Defer, RejectJob, CancelJob)


# Lane, least and highest priority, seconds that a job must have waited, number of jobs.
Wanted = tuple[int, int, int, float, int]


async def claim_plain(
    tx: Tx,
    ctx: EngineContext,
    query: Query,
    wanted: list[Wanted],
    holder: dict[str, Any],
    *,
    unread: bool = False,
    only: int | None = None,
    after: str | None = None,
) -> list[Row]:
    """Lease jobs from several lanes in one statement, without asking hooks. `unread`: if the lanes are still open;
    `only`: if this is the only lane; `after`: those behind this job."""
    most, limit = sum(share[-1] for share in wanted), ctx.limits.claim_max
    params = {
        "wanted": wanted,
        "most": most,
        "token_prefix": token_prefix(ctx),
        "unread": unread,
        "only": only,
        **holder,
    }
    if after is not None:
        query, params = query.behind_last, {**params, "after": after}
    return await move(tx, ctx, query, actor=Actor.WORKER, brief=True, limit=limit, **params)


def token_prefix(ctx: EngineContext) -> str:
    """The random part of the tokens of one claim; the database adds a part for each job."""
    return ctx.ids.token()[:-12]


async def claim_with_hooks(
    tx: Tx, ctx: EngineContext, job_type: str, wanted: Wanted, holder: dict[str, Any]
) -> list[Row]:
    """Lease jobs from one lane of a type with hooks."""
    if not ctx.hooks.have("claim", job_type):
        leases = await claim_plain(tx, ctx, ctx.mine(q.claim_jobs), [wanted], holder)
    else:
        leases = await _claim_in_rounds(tx, ctx, wanted, holder)
    given = ctx.given_with_hooks
    if len(given) > GIVEN_MAX:  # jobs reported to another process, or never
        given.clear()
    given.update(row["id"] for row in leases)
    return leases


async def _claim_in_rounds(tx: Tx, ctx: EngineContext, wanted: Wanted, holder: dict[str, Any]) -> list[Row]:
    """Each round reads further, so that jobs that guards defer or end do not block the jobs behind them."""
    leases: list[Row] = []
    lane, floor, ceiling, waits, most = wanted
    claiming = _Claiming(tx, ctx, holder)
    for doubled in range(ROUNDS_MAX):
        left = most - len(leases)
        look = min(left << doubled, ctx.limits.claim_max)
        async with tx.savepoint():
            rows = await tx.all(
                ctx.mine(q.claimable_jobs), most=look, lane=lane, floor=floor, ceiling=ceiling, waits=waits
            )
            found = [Found(row["id"], row) for row in rows]
            answers = await claiming.claim_some(found, left) if found else {}
        leases += [answer for answer in answers.values() if not isinstance(answer, HoldfastError | None)]
        if len(leases) == most or len(rows) < look or claiming.lock_waits.is_over:
            break
    return leases


class _Claiming:
    def __init__(self, tx: Tx, ctx: EngineContext, holder: dict[str, Any]) -> None:
        self._tx, self._ctx, self._holder = tx, ctx, holder
        self.lock_waits = LockWaits(ctx)

    async def claim_some(self, found: list[Found], left: int) -> dict[str, Row | HoldfastError | None]:
        """A job whose hook fails is deferred, so that it does not block the others."""
        answers: dict[str, Row | HoldfastError | None] = {}
        while found and left and not self.lock_waits.is_over:
            some, found = found[:left], found[left:]
            settled = await each_by_itself(self._tx, self._ctx, "claim", some, self.claim, self.lock_waits)
            left -= sum(not isinstance(answer, HoldfastError | None) for answer in settled.values())
            answers |= settled
        await defer_refused(self._tx, self._ctx, answers)
        return answers

    async def claim(self, found: list[Found]) -> dict[str, Row | None]:
        """A lease for each job that the guards allow; None for jobs that they defer or end."""
        allowed: list[str] = []
        deferred: list[PutOff] = []
        by_itself = len(found) == 1
        for job in await jobs_of(self._tx, "claim", [one.id for one in found]):
            refusal = await self._ask(job, by_itself=by_itself)
            if refusal is None:
                allowed.append(job.id)
                continue
            hook, verdict = refusal
            with blamed_on(hook):
                if isinstance(verdict, Defer):
                    deferred.append(_deferral(job.id, hook, verdict))
                else:
                    await self._carry_out(job, verdict)
        if deferred:
            rows = [(one.job_id, one.seconds, one.reason) for one in deferred]
            await self._tx.all(self._ctx.mine(q.defer_jobs), deferred=rows)
            await record_deferrals(self._tx, self._ctx, "claim", deferred)
        query = self._ctx.mine(q.claim_found)
        moved = []
        if allowed:
            claimed = {"ids": allowed, "token_prefix": token_prefix(self._ctx), **self._holder}
            moved = await move(self._tx, self._ctx, query, actor=Actor.WORKER, brief=True, **claimed)
        return dict.fromkeys((one.id for one in found), None) | {row["id"]: row for row in moved}

    async def _ask(self, job: Job, *, by_itself: bool) -> tuple[Hook, Defer | RejectJob | CancelJob] | None:
        """The first verdict other than `Allow`, with its hook."""
        request = ClaimRequest(job=job, worker=self._holder["worker"])
        for hook in self._ctx.hooks.guards("claim", job.type):
            called = hook.function(self._tx, request)
            answer: Verdict | None = await run_hook(
                *(self._tx, self._ctx, hook, called), guard=True, by_itself=by_itself, answers=_VERDICTS
            )
            if answer is not None and not isinstance(answer, Allow):
                return hook, answer
        return None

    async def _carry_out(self, job: Job, verdict: RejectJob | CancelJob) -> None:
        tx, ctx = self._tx, self._ctx
        machine = (await ctx.registry.snapshot(tx, job.policy)).machine
        if isinstance(verdict, RejectJob):
            check_words(verdict.code, verdict.message, None)
            require_move(machine, "reject", job.id, job.state, State.REJECTED, Actor.SYSTEM)
            error = stored_error(ctx, verdict.code, verdict.message, None)
            rows = [(job.id, verdict.code, error)]
            await move(tx, ctx, ctx.mine(q.reject_queued), actor=Actor.SYSTEM, verdict=rows)
        else:
            check_name(verdict.reason, "reason")
            require_move(machine, "cancel", job.id, job.state, State.CANCELED, Actor.SYSTEM)
            query = ctx.mine(q.cancel_waiting)
            await move(tx, ctx, query, actor=Actor.SYSTEM, ids=[job.id], reason=verdict.reason)


def _deferral(job_id: str, hook: Hook, verdict: Defer) -> PutOff:
    check_number(verdict.seconds, "seconds")
    check_name(verdict.reason, "reason")
    return PutOff(job_id, hook.extension, verdict.reason, float(verdict.seconds))


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    job: Job
    worker: str
    verb: str = "claim"
