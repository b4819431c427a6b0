"""What a worker says it holds, and why its write was refused when it does not (any more)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from holdfast.engine.context import EngineContext
from holdfast.engine.preconditions import extension_missing
from holdfast.errors import HoldfastError, InvalidField, LeaseLost
from holdfast.ids import is_uuid
from holdfast.lifecycle import State
from holdfast.model import Attempt, Job
from holdfast.model.names import quoted
from holdfast.model.reports import HeldLease, Settled
from holdfast.store import Tx, q


class _Named(Protocol):
    @property
    def id(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)
_Answer = TypeVar("_Answer")


def check_worker(worker: str) -> None:
    if not is_uuid(worker):
        raise InvalidField(f"a worker id is a UUID, got {quoted(worker)}; register the worker first", field="worker_id")


def token_rows(leases: list[HeldLease]) -> list[tuple[str, str]]:
    """In the order of ids, so that two batches never wait for each other crosswise."""
    return sorted((lease.id, lease.token) for lease in leases if lease.plausible)


async def in_rounds(items: Sequence[_Item], settle: Callable[[list[_Item]], Awaitable[list[_Answer]]]) -> list[_Answer]:
    """Settle a batch so that no job is named twice at once: two words about one job count in the order they came.

    A worker that lost a job and claimed it again may report both runs together, and only one of them holds it.
    """
    if len({item.id for item in items}) == len(items):
        return await settle(list(items))
    answers: dict[int, _Answer] = {}
    waiting = dict(enumerate(items))
    while waiting:
        first: dict[str, int] = {}
        for place, item in waiting.items():
            first.setdefault(item.id, place)
        places = list(first.values())
        settled = await settle([waiting.pop(place) for place in places])
        answers.update(zip(places, settled, strict=True))
    return [answers[place] for place in range(len(items))]


async def holder_of(tx: Tx, ctx: EngineContext, lease: HeldLease) -> str:
    """The worker that holds the job under this lease; `LeaseLost` if none does. A look, without a lock."""
    job = await tx.one(q.job, id=lease.id) if lease.plausible else None
    if job is not None and job["state"] == State.RUNNING and job["lease_token"] == lease.token:
        worker: str = job["lease_worker"]
        return worker
    raise await _not_held(tx, ctx, lease)


async def hold(tx: Tx, ctx: EngineContext, lease: HeldLease) -> None:
    """Lock the job until the transaction ends; `LeaseLost` if this lease does not hold it."""
    if not lease.plausible or await tx.one(q.hold_job, id=lease.id, token=lease.token) is None:
        raise await _not_held(tx, ctx, lease)


async def _not_held(tx: Tx, ctx: EngineContext, lease: HeldLease) -> HoldfastError:
    job = await tx.one(q.job, id=lease.id) if lease.plausible else None
    refusal = await settle_or_refuse(tx, ctx, lease, (job["lease_worker"] if job else None) or "", {})
    assert isinstance(refusal, HoldfastError)  # noqa: S101  nothing can be a repeat of this
    return refusal


ErrorOf = Callable[[int], str]  # the error that an attempt of this number is stored with
Same = dict[str, str | ErrorOf | None]  # what a repeat must say again, by column
Refusal = HoldfastError  # a lost lease, a guard that refuses, a hook that failed, an extension that is missing here


async def settle_or_refuse(
    tx: Tx, ctx: EngineContext, lease: HeldLease, worker: str, repeats: dict[str, Same]
) -> Settled | Refusal:
    """A write that matched no row: the repeat of one that did (same token, same words), or a lease that is lost.

    `repeats` says how the execution has ended if this is a repeat, and what must then be the same text as before.
    """
    if not lease.plausible:
        return _lost(lease, "it is unknown here", reassigned=False)
    row = await tx.one(q.attempt_by_token, id=lease.id, token=lease.token)
    job_row = await tx.one(q.job, id=lease.id)
    if job_row is None:
        return _lost(lease, "the job is unknown", reassigned=False)
    job = Job.from_row(job_row)
    if row is not None:
        attempt = Attempt.from_row(row)
        result = job_row["result"] if job.epoch == attempt.epoch else None
        said = {"result": result, "error": row["error"], "reason": row["reason"]}
        same = repeats.get(attempt.outcome)
        if attempt.worker_id == worker and same is not None and _says(said, same, attempt.attempt):
            return Settled(job.id, _went_to(attempt, job))
        return _lost(
            lease, f"that execution ended as {attempt.outcome} at {attempt.ended_at:%H:%M:%S}", reassigned=_again(job)
        )
    if job.state is State.RUNNING and job.lease_token == lease.token:
        if job.lease_worker != worker:
            return _lost(lease, "it belongs to another worker", reassigned=False)
        if missing := ctx.hooks.missing(job.needs):
            return extension_missing(job.id, job.type, missing)
        return _lost(lease, "it ran out, and this lifecycle refuses late writes", reassigned=False)
    return _lost(lease, f"the job is {job.state}", reassigned=_again(job))


def _says(said: dict[str, str | None], same: Same, attempt: int) -> bool:
    return all(said[name] == (wanted(attempt) if callable(wanted) else wanted) for name, wanted in same.items())


def _went_to(attempt: Attempt, job: Job) -> State:
    """The first answer again, whatever became of the job since. Some lifecycles reach dead through retrying."""
    to = State(attempt.to_state)
    buried = to is State.RETRYING and job.state is State.DEAD and job.epoch == attempt.epoch
    return job.state if buried else to


def _again(job: Job) -> bool:
    return job.state is State.RUNNING


def _lost(lease: HeldLease, why: str, *, reassigned: bool) -> LeaseLost:
    whose = " and the job is with another worker" if reassigned else ""
    return LeaseLost(
        f"job {lease.id}: lease {str(lease.token)[:8]} is not current: {why}{whose}. Stop, and discard the result.",
        job_id=lease.id,
        reassigned=reassigned,
    )


def the_only(answers: Sequence[_Answer | Exception]) -> _Answer:
    """The one answer of a batch of one; a refusal is raised."""
    [answer] = answers
    if isinstance(answer, Exception):
        raise answer
    return answer
