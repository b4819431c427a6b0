"""why: explain why a job does not run, by checking the conditions of a claim one by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.context import EngineContext
from holdfast.engine.reads.extension_checks import CheckFailed, run_probe
from holdfast.engine.reads.missing_extensions import stale
from holdfast.engine.reads.read import get
from holdfast.engine.reads.why_limits import limit_states
from holdfast.lifecycle import Machine, State
from holdfast.model import Job, WorkerRecord
from holdfast.model.json import decode
from holdfast.model.reports import WAITING_FOR_CHILDREN
from holdfast.store import Row, Tx, q

AHEAD_MAX = 10_000
LANES_MAX = 10_000


class Clause(msgspec.Struct, frozen=True):
    """One condition of a claim: whether it holds, and an explanation."""

    name: str
    holds: bool
    says: str


async def why(tx: Tx, ctx: EngineContext, job_id: str, tenant: str | None = None) -> list[Clause]:
    """All conditions for this job to run now; the first that does not hold is the answer."""
    job = await get(tx, job_id, tenant)
    machine = (await ctx.registry.snapshot(tx, job.policy)).machine
    now = (await tx.one(q.clock) or {"now_at": ctx.clock.now()})["now_at"]
    clauses = [_state(job, machine.words[job.state]), *await of_extensions(tx, ctx, job, machine, now)]
    if not clauses[0].holds:
        return clauses
    if job.state is State.QUEUED and job.reason == WAITING_FOR_CHILDREN and not job.due:
        return [*clauses, await _children(tx, job)]
    waits = (job.run_at - now).total_seconds()
    because = f" ({job.reason})" if job.reason and not job.attempt else ""  # of a retry, the state clause says it
    clauses.append(
        Clause("time", waits <= 0, f"it may run since {job.run_at:%Y-%m-%d %H:%M:%S} UTC")
        if waits <= 0
        else Clause("time", False, f"it waits {waits:.0f} s more, until {job.run_at:%Y-%m-%d %H:%M:%S} UTC{because}")
    )
    if waits <= 0 and not job.due:
        clauses.append(Clause("due", False, "it is due; the next claim or maintenance run makes it claimable"))
    clauses.append(await _queue(tx, job))
    clauses += await _workers(tx, job, -waits)
    clauses += [Clause("limit", *state) for state in await limit_states(tx, job)]
    row = await tx.one(
        q.ahead_in_lane, lane=job.key_lane or job.lane, priority=job.priority, id=job.id, limit=AHEAD_MAX
    )
    ahead = row["ahead"] if row else 0
    more = "or more " if ahead == AHEAD_MAX else ""
    others = "1 job like it is" if ahead == 1 else f"{ahead} {more}jobs like it are"
    clauses.append(Clause("turn", ahead == 0, f"{others} ahead" if ahead else "it is next"))
    return clauses


def in_short(clauses: list[Clause]) -> str:
    """The first condition that does not hold, as a sentence."""
    broken = next((clause for clause in clauses if not clause.holds), None)
    if broken is None:
        return "Nothing blocks it: the next free worker claims it."
    return f"{broken.says[0].upper()}{broken.says[1:]}."


def _state(job: Job, word: str) -> Clause:
    if job.state in (State.QUEUED, State.RETRYING):
        tried = f", attempt {job.attempt} of {job.max_attempts} is over ({job.reason})" if job.attempt else ""
        return Clause("state", True, f"it is {word}{tried}")
    if job.state is State.RUNNING:
        cancel = "; a cancel was requested" if job.cancel_requested_at else ""
        return Clause(
            "state",
            False,
            f"it is {word}: attempt {job.attempt} is with worker {job.lease_worker} until "
            f"{job.lease_expires_at:%H:%M:%S} UTC{cancel}",
        )
    if job.state is State.CREATED:
        return Clause("state", False, f"it is {word}: it has not been accepted yet")
    return Clause("state", False, f"it is {word}, which is final ({job.reason or 'done'})")


async def of_extensions(tx: Tx, ctx: EngineContext, job: Job, machine: Machine, now: datetime) -> list[Clause]:
    """The extensions that the job needs, failures and deferrals of their hooks, and their own explanations."""
    absent = await stale(tx) if job.needs else []
    clauses = [_extension(ctx, name, absent) for name in job.needs or ()]
    verbs = {"prune"} if job.final else {move.verb for move in machine.moves if move.source is job.state}
    rows = await tx.all(q.hook_failures, id=job.id)
    clauses += [_hook(row, now) for row in rows if row["verb"] in verbs]
    for hook in ctx.hooks.explanations(job.type):
        clauses += _explained(hook.extension, await run_probe(tx, hook, job))
    return clauses


def _extension(ctx: EngineContext, name: str, absent: list[str]) -> Clause:
    if name in absent:
        return Clause("extension", False, f"it needs extension {name}, which no live process has")
    here = "" if name in ctx.hooks.extensions else ", and this process does not"
    return Clause("extension", True, f"it needs extension {name}, which a live process has{here}")


def _hook(row: Row, now: datetime) -> Clause:
    """It holds once the next try is due: from then on another condition blocks the job."""
    is_over, at = row["next_at"] <= now, f"{row['next_at']:%H:%M:%S} UTC"
    if not row["failures"]:
        until = f"extension {row['extension']} has deferred its {row['verb']} until {at}"
        return Clause("hook", is_over, f"{until}: {row['error']}" if row["error"] else until)
    often = "once" if row["failures"] == 1 else f"{row['failures']} times"
    says = f"extension {row['extension']} has failed its {row['verb']} {often}: {row['error']}"
    return Clause("hook", is_over, f"{says}; {'it may be tried again since' if is_over else 'the next try is at'} {at}")


def _explained(extension: str, answer: Any) -> list[Clause]:
    """A plain text is a clause that holds."""
    if isinstance(answer, CheckFailed):
        return [Clause(extension, True, f"extension {extension} could not explain it: {answer.says}")]
    found = [answer] if isinstance(answer, str | Clause) else answer or []
    if not isinstance(found, list | tuple) or not all(isinstance(each, str | Clause) for each in found):
        wrong = f"extension {extension} explained it by {type(answer).__name__}; it must return text or clauses"
        return [Clause(extension, True, wrong)]
    return [each if isinstance(each, Clause) else Clause(extension, True, each) for each in found]


async def _children(tx: Tx, job: Job) -> Clause:
    row = await tx.one(q.unfinished_children, id=job.id)
    number = row["jobs"] if row else 0
    if not number:
        return Clause(
            "children", False, "all its child jobs have ended; the next claim or maintenance run makes it claimable"
        )
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
    """What the jobs of a lane require of a worker."""

    tenant: str
    queue: str
    type: str
    requires: list[str]

    @classmethod
    def of_lane(cls, lane: Row) -> LaneRequirements:
        return cls(lane["tenant"], lane["queue"], lane["type"], decode(lane["requires"]))


async def unserved(tx: Tx) -> list[tuple[LaneRequirements, Clause]]:
    """Lanes with waiting jobs in open queues that no live worker can claim, each with the condition that fails."""
    workers = [WorkerRecord.from_row(row) for row in await tx.all(q.workers)]
    waiting = [LaneRequirements.of_lane(lane) for lane in await tx.all(q.waiting_lanes, limit=LANES_MAX)]
    judged = ((wanted, *_narrowed(workers, wanted)) for wanted in waiting)
    return [(wanted, clauses[0]) for wanted, able, clauses in judged if not able]


def _narrowed(workers: list[WorkerRecord], wanted: LaneRequirements) -> tuple[list[WorkerRecord], list[Clause]]:
    """The workers that can claim from the lane; if there are none, the first condition that no worker meets."""
    left = live = [worker for worker in workers if worker.enabled and worker.liveness != "offline"]
    if not live:
        none = (
            "the 1 registered worker is not" if len(workers) == 1 else f"none of {len(workers)} registered workers is"
        )
        return [], [Clause("workers", False, f"{none} enabled and alive")]
    if not any(worker.scopes for worker in live):
        one = len(live) == 1
        none = "the 1 live worker has not" if one else f"none of {len(live)} live workers has"
        return [], [Clause("workers", False, f"{none} claimed yet")]
    for fits, otherwise in _conditions(wanted):
        left = [worker for worker in left if fits(worker)]
        if not left:
            return [], [otherwise]
    return left, [Clause("workers", True, f"{len(left)} of {len(live)} live workers may take it")]


def _conditions(wanted: LaneRequirements) -> list[tuple[Callable[[WorkerRecord], bool], Clause]]:
    """The conditions for a worker, each with the clause for the case that no worker is left."""
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
