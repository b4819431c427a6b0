"""Leases that workers present: who holds a job, and why a report with a lost lease is rejected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from holdfast.engine.context import EngineContext
from holdfast.engine.preconditions import extension_missing
from holdfast.errors import HoldfastError, InvalidField, LeaseLost
from holdfast.ids import are_uuids, is_uuid
from holdfast.lifecycle import State
from holdfast.model import Attempt, Job, Lease
from holdfast.model.job import LEASE_COLUMNS, UnreadableJob
from holdfast.model.names import check_name, quoted
from holdfast.model.numbers import check_limit
from holdfast.model.reports import HeldLease, Settled
from holdfast.store import Tx, q

_Item = TypeVar("_Item", bound=HeldLease)
_Answer = TypeVar("_Answer")


def check_worker(worker: str) -> None:
    if not is_uuid(worker):
        raise InvalidField(f"a worker id is a UUID, got {quoted(worker)}; register the worker first", field="worker_id")


def check_claim(
    ctx: EngineContext, worker: str, instance: str | None, queues: list[str] | None, types: list[str] | None, limit: int
) -> None:
    check_worker(worker)
    check_limit(limit, "jobs", most=ctx.limits.claim_max)
    if instance is not None:
        check_name(instance, "instance_id")
    check_list(queues, "queues")
    check_list(types, "job_types")


def check_list(names: list[str] | None, field: str) -> None:
    if names is not None and not isinstance(names, list | tuple):
        raise InvalidField(f"{field} must be a list of names, got {quoted(names)}", field=field)
    for name in names or ():
        check_name(name, field, "each of ")


def token_rows(leases: Sequence[HeldLease]) -> list[tuple[str, str]]:
    """In the order of ids, so that two batches cannot deadlock."""
    return sorted([(lease.id, lease.token) for lease in plausible(leases)])


def plausible(leases: Sequence[_Item]) -> Sequence[_Item]:
    """Those that a claim can have issued."""
    if are_uuids([text for lease in leases for text in (lease.id, lease.token)]):
        return leases
    return [lease for lease in leases if lease.plausible]


def in_rounds(
    verb: Callable[[Tx, EngineContext, str, list[_Item]], Awaitable[list[_Answer]]],
) -> Callable[[Tx, EngineContext, str, list[_Item]], Coroutine[Any, Any, list[_Answer]]]:
    """A verb that applies a batch of reports in rounds, each with at most one report per job, in order.

    A worker that lost a job and claimed it again may report both attempts together; only one holds the lease.
    """

    @wraps(verb)
    async def apply(tx: Tx, ctx: EngineContext, worker: str, items: list[_Item]) -> list[_Answer]:
        if len({item.id for item in items}) == len(items):
            return await verb(tx, ctx, worker, items)
        answers: dict[int, _Answer] = {}
        waiting = dict(enumerate(items))
        while waiting:
            first: dict[str, int] = {}
            for place, item in waiting.items():
                first.setdefault(item.id, place)
            places = list(first.values())
            settled = await verb(tx, ctx, worker, [waiting.pop(place) for place in places])
            answers.update(zip(places, settled, strict=True))
        return [answers[place] for place in range(len(items))]

    return apply


async def leases_of(tx: Tx, held: list[HeldLease]) -> list[Lease]:
    """The leases that are current, in full, as the claim returned them."""
    found: dict[tuple[str, str], Lease] = {}
    for row in await tx.all(q.jobs_by_id, ids=sorted({one.id for one in held})) if held else []:
        with suppress(UnreadableJob):  # damaged since the claim; its lease expires
            found[row["id"], row["lease_token"]] = Lease.from_row(row[name] for name in LEASE_COLUMNS)
    return [found[one.id, one.token] for one in held if (one.id, one.token) in found]


async def holder_of(tx: Tx, ctx: EngineContext, lease: HeldLease) -> str:
    """The worker that holds the job under this lease, read without a lock; raises `LeaseLost` if none does."""
    job = await tx.one(q.job, id=lease.id) if lease.plausible else None
    if job is not None and job["state"] == State.RUNNING and job["lease_token"] == lease.token:
        worker: str = job["lease_worker"]
        return worker
    raise await _not_held(tx, ctx, lease)


async def hold(tx: Tx, ctx: EngineContext, lease: HeldLease) -> None:
    """Lock the job until the transaction ends; raises `LeaseLost` if the lease is not current."""
    if not lease.plausible or await tx.one(q.hold_job, id=lease.id, token=lease.token) is None:
        raise await _not_held(tx, ctx, lease)


async def _not_held(tx: Tx, ctx: EngineContext, lease: HeldLease) -> HoldfastError:
    job = await tx.one(q.job, id=lease.id) if lease.plausible else None
    return await refusal_of(tx, ctx, lease, (job["lease_worker"] if job else None) or "")


async def refusal_of(tx: Tx, ctx: EngineContext, lease: HeldLease, worker: str) -> HoldfastError:
    """Why a report matched no row, if it cannot be a repeat."""
    refusal = await settle_or_refuse(tx, ctx, lease, worker, {})
    assert isinstance(refusal, HoldfastError)  # noqa: S101  without `repeats` there is no other answer
    return refusal


ErrorOf = Callable[[int, str | None], str | None]  # attempt number and reason -> the error as it is stored
Same = dict[str, str | ErrorOf | None]  # column -> the value that a repeat must have
Refusal = HoldfastError  # lease lost, refused by a guard, hook failed, or extension missing in this process


async def settle_or_refuse(
    tx: Tx, ctx: EngineContext, lease: HeldLease, worker: str, repeats: dict[str, Same]
) -> Settled | Refusal:
    """Answer a report that matched no row: a repeat (same token, same content) gets the first answer, others a refusal.

    `repeats`: the outcomes that the attempt has if this is a repeat, each with the values that must be the same.
    """
    if not lease.plausible:
        return _lost(lease, "it is not a valid lease", reassigned=False)
    row = await tx.one(q.attempt_by_token, id=lease.id, token=lease.token)
    job_row = await tx.one(q.job, id=lease.id)
    if job_row is None:
        return _lost(lease, "the job does not exist", reassigned=False)
    job = Job.from_row(job_row)
    if row is not None:
        attempt = Attempt.from_row(row)
        result = job_row["result"] if job.epoch == attempt.epoch else None
        stored = {"result": result, "error": row["error"], "reason": row["reason"]}
        same = repeats.get(attempt.outcome)
        if attempt.worker_id == worker and same is not None and _is_same(stored, same, attempt):
            return Settled(job.id, _first_answer(attempt, job))
        why = f"its attempt ended as {attempt.outcome} at {attempt.ended_at:%H:%M:%S}"
        return _lost(lease, why, reassigned=job.state is State.RUNNING)
    if job.state is State.RUNNING and job.lease_token == lease.token:
        if job.lease_worker != worker:
            return _lost(lease, "another worker holds it", reassigned=False)
        if missing := ctx.hooks.missing(job.needs):
            return extension_missing(job.id, job.type, missing)
        return _lost(lease, "it expired, and the policy of the job rejects late writes", reassigned=False)
    return _lost(lease, f"the job is {job.state}", reassigned=job.state is State.RUNNING)


def _is_same(stored: dict[str, str | None], same: Same, attempt: Attempt) -> bool:
    return all(
        stored[name] == (wanted(attempt.attempt, attempt.reason) if callable(wanted) else wanted)
        for name, wanted in same.items()
    )


def _first_answer(attempt: Attempt, job: Job) -> State:
    """The state that the first report led to. Some lifecycles reach dead through retrying."""
    to = State(attempt.to_state)
    via_retrying = to is State.RETRYING and job.state is State.DEAD and job.epoch == attempt.epoch
    return job.state if via_retrying else to


def _lost(lease: HeldLease, why: str, *, reassigned: bool) -> LeaseLost:
    elsewhere = " and the job is with another worker" if reassigned else ""
    return LeaseLost(
        f"job {lease.id}: lease {str(lease.token)[:8]} is not current: {why}{elsewhere}. Stop, and discard the result.",
        job_id=lease.id,
        reassigned=reassigned,
    )


def the_only(answers: Sequence[_Answer | Exception]) -> _Answer:
    """The answer of a batch of one; raises a refusal."""
    [answer] = answers
    if isinstance(answer, Exception):
        raise answer
    return answer
