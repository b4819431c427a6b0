"""why: the claim's conditions, one by one, for one job. Answers the question asked at night."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.reads.extension_checks import CheckFailed, asked
from holdfast.engine.reads.missing_extensions import stale
from holdfast.engine.reads.read import get
from holdfast.lifecycle import Machine, State
from holdfast.model import Job, WorkerRecord
from holdfast.model.json import decode
from holdfast.model.reports import WAITING_FOR_CHILDREN
from holdfast.store import Row, Tx, q

AHEAD_MAX = 10_000
LANES_MAX = 10_000


class Clause(msgspec.Struct, frozen=True):
    """One condition of the claim: does it hold, and what stands behind it."""

    name: str
    holds: bool
    says: str


async def why(tx: Tx, ctx: EngineContext, job_id: str, tenant: str | None = None) -> list[Clause]:
    """Every clause that decides whether this job can run now; the first that does not hold is the answer."""
    job = await get(tx, job_id, tenant)
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    now = (await tx.one(q.clock) or {"now_at": ctx.clock.now()})["now_at"]
    clauses = [_state(job, machine.words[job.state]), *await of_extensions(tx, ctx, job, machine, now)]
    if not clauses[0].holds:
        return clauses
    if job.state is State.QUEUED and job.reason == WAITING_FOR_CHILDREN and not job.due:
        return [*clauses, await _children(tx, job)]
    waits = (job.run_at - now).total_seconds()
    clauses.append(
        Clause("time", waits <= 0, f"it may run since {job.run_at:%Y-%m-%d %H:%M:%S} UTC")
        if waits <= 0
        else Clause(
            "time", False, f"it waits {waits:.0f} s more, until {job.run_at:%Y-%m-%d %H:%M:%S} UTC{_because(job)}"
        )
    )
    if waits <= 0 and not job.due:
        clauses.append(Clause("due", False, "its time has come; the next claim or sweep makes it claimable"))
    clauses.append(await _queue(tx, job))
    clauses += await _workers(tx, job, -waits)
    row = await tx.one(q.ahead_in_lane, lane=job.lane, priority=job.priority, id=job.id, limit=AHEAD_MAX)
    ahead = row["ahead"] if row else 0
    more = "or more " if ahead == AHEAD_MAX else ""
    others = "1 job like it is" if ahead == 1 else f"{ahead} {more}jobs like it are"
    clauses.append(Clause("turn", ahead == 0, f"{others} ahead" if ahead else "it is next"))
    return clauses


def in_short(clauses: list[Clause]) -> str:
    """The first condition that does not hold, as a sentence."""
    broken = next((clause for clause in clauses if not clause.holds), None)
    if broken is None:
        return "Nothing stands in its way: the next free worker takes it."
    return f"{broken.says[0].upper()}{broken.says[1:]}."


def _because(job: Job) -> str:
    """Of a retry, the state has told it."""
    return f" ({job.reason})" if job.reason and not job.attempt else ""


def _state(job: Job, word: str) -> Clause:
    if job.state in (State.QUEUED, State.RETRYING):
        tried = f", attempt {job.attempt} of {job.max_attempts} is over ({job.reason})" if job.attempt else ""
        return Clause("state", True, f"it is {word}{tried}")
    if job.state is State.RUNNING:
        wish = "; cancel was asked for" if job.cancel_requested_at else ""
        return Clause(
            "state",
            False,
            f"it is {word}: attempt {job.attempt} is with worker {job.lease_worker} until "
            f"{job.lease_expires_at:%H:%M:%S} UTC{wish}",
        )
    if job.state is State.CREATED:
        return Clause("state", False, f"it is {word}: nobody has accepted it yet")
    return Clause("state", False, f"it is {word}, which is final ({job.reason or 'done'})")


async def of_extensions(tx: Tx, ctx: EngineContext, job: Job, machine: Machine, now: datetime) -> list[Clause]:
    """The extensions whose hooks its moves run, what these hooks have failed or put off, and what extensions say
    themselves."""
    absent = await stale(tx) if job.needs else []
    clauses = [_extension(ctx, name, absent) for name in job.needs or ()]
    verbs = {"prune"} if job.final else {move.verb for move in machine.moves if move.source is job.state}
    rows = await tx.all(q.hook_failures, id=job.id)
    clauses += [_hook(row, now) for row in rows if row["verb"] in verbs]
    for hook in ctx.hooks.explanations(job.type):
        clauses += _explained(hook.extension, await asked(tx, hook, job))
    return clauses


def _extension(ctx: EngineContext, name: str, absent: list[str]) -> Clause:
    if name in absent:
        return Clause("extension", False, f"it needs extension {name}, which no live process has")
    here = "" if name in ctx.hooks.extensions else ", and this process does not"
    return Clause("extension", True, f"it needs extension {name}, which a live process has{here}")


def _hook(row: Row, now: datetime) -> Clause:
    """It holds once the time of the next try has come: from then on it is something else that keeps the job."""
    is_over, at = row["next_at"] <= now, f"{row['next_at']:%H:%M:%S} UTC"
    if not row["failures"]:
        until = f"extension {row['extension']} has put off its {row['verb']} until {at}"
        return Clause("hook", is_over, f"{until}: {row['error']}" if row["error"] else until)
    often = "once" if row["failures"] == 1 else f"{row['failures']} times"
    says = f"extension {row['extension']} has failed its {row['verb']} {often}: {row['error']}"
    return Clause("hook", is_over, f"{says}; {'it may be tried again since' if is_over else 'the next try is at'} {at}")


def _explained(extension: str, answer: Any) -> list[Clause]:
    """A text says something and stands in the way of nothing."""
    if isinstance(answer, CheckFailed):
        return [Clause(extension, True, f"extension {extension} could not explain it: {answer.says}")]
    found = [answer] if isinstance(answer, str | Clause) else answer or []
    if not isinstance(found, list | tuple) or not all(isinstance(each, str | Clause) for each in found):
        wrong = f"extension {extension} explained it by {type(answer).__name__}; that is text, or a list of clauses"
        return [Clause(extension, True, wrong)]
    return [each if isinstance(each, Clause) else Clause(extension, True, each) for each in found]


async def _children(tx: Tx, job: Job) -> Clause:
    row = await tx.one(q.unfinished_children, id=job.id)
    number = row["jobs"] if row else 0
    if not number:
        return Clause("children", False, "all its child jobs have ended; the next claim or sweep makes it claimable")
    return Clause(
        "children", False, f"it waits until {'1 child job has' if number == 1 else f'{number} child jobs have'} ended"
    )


async def _queue(tx: Tx, job: Job) -> Clause:
    for row in await tx.all(q.paused_queues):
        if (row["tenant"], row["name"]) == (job.tenant, job.queue):
            by = f" by {row['paused_by']}" if row["paused_by"] else ""
            return Clause("queue", False, f"queue {job.queue!r} is paused since {row['paused_at']:%H:%M:%S} UTC{by}")
    return Clause("queue", True, f"queue {job.queue!r} is open")


async def _workers(tx: Tx, job: Job, waited: float) -> list[Clause]:
    lane = await tx.one(q.lane, id=job.lane)
    assert lane is not None, f"lane {job.lane} is interned and never deleted"  # noqa: S101
    workers = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
    able, clauses = _narrowed(workers, LaneRequirements.of_lane(lane))
    if not able:
        return clauses
    if prefers := decode(lane["prefers"]):
        better = [worker for worker in able if set(prefers) <= set(worker.offers)]
        patience = lane["defer_seconds"] - waited
        alive = "1 such worker is alive" if len(better) == 1 else f"{len(better)} such workers are alive"
        says = f"it prefers {', '.join(prefers)}: {alive}"
        if better and patience > 0:
            says += f", and others leave it to {'it' if len(better) == 1 else 'them'} for {patience:.0f} s more"
        clauses.append(Clause("preference", not better or patience <= 0, says))
    return clauses


class LaneRequirements(msgspec.Struct, frozen=True):
    """What the jobs of a lane ask of a worker."""

    tenant: str
    queue: str
    type: str
    requires: list[str]

    @classmethod
    def of_lane(cls, lane: Row) -> LaneRequirements:
        return cls(lane["tenant"], lane["queue"], lane["type"], decode(lane["requires"]))


async def unserved(tx: Tx) -> list[tuple[LaneRequirements, Clause]]:
    """What waits in open queues though no live worker may take it, each with what stands in its way."""
    workers = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
    waiting = [LaneRequirements.of_lane(lane) for lane in await tx.all(q.waiting_lanes, limit=LANES_MAX)]
    judged = ((wanted, *_narrowed(workers, wanted)) for wanted in waiting)
    return [(wanted, clauses[0]) for wanted, able, clauses in judged if not able]


def _narrowed(workers: list[WorkerRecord], wanted: LaneRequirements) -> tuple[list[WorkerRecord], list[Clause]]:
    """Those who may take it; where there are none, the first condition that nobody meets."""
    left = live = [worker for worker in workers if worker.enabled and worker.liveness != "offline"]
    if not live:
        whom = (
            "the 1 registered worker is not" if len(workers) == 1 else f"none of {len(workers)} registered workers is"
        )
        return [], [Clause("workers", False, f"{whom} enabled and alive")]
    if not any(worker.scopes for worker in live):
        one = len(live) == 1
        who = "the 1 live worker has not asked" if one else f"none of {len(live)} live workers has asked"
        return [], [Clause("workers", False, f"{who} for a job yet")]
    for fits, otherwise in _conditions(wanted):
        left = [worker for worker in left if fits(worker)]
        if not left:
            return [], [otherwise]
    return left, [Clause("workers", True, f"{len(left)} of {len(live)} live workers may take it")]


def _conditions(wanted: LaneRequirements) -> list[tuple[Callable[[WorkerRecord], bool], Clause]]:
    """What a worker must meet, and what is said where none of those left does."""
    return [
        (
            lambda worker: any(scope.covers(wanted.type) for scope in worker.scopes),
            Clause("type", False, f"no live worker runs jobs of type {wanted.type!r}"),
        ),
        (
            lambda worker: any(scope.covers(wanted.type) and scope.includes(wanted.queue) for scope in worker.scopes),
            Clause("scope", False, f"no live worker that runs {wanted.type!r} claims from queue {wanted.queue!r}"),
        ),
        (
            lambda worker: worker.tenants is None or wanted.tenant in worker.tenants,
            Clause("tenant", False, f"no live worker is for tenant {wanted.tenant!r}"),
        ),
        (
            lambda worker: set(wanted.requires) <= set(worker.offers),
            Clause("capabilities", False, f"no live worker offers {', '.join(wanted.requires)}"),
        ),
    ]
