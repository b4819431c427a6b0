"""What Holdfast promises, in plain Python: no database, no concurrency, one dictionary of jobs.

Written from the requirements and the lifecycle tables, not from the engine. A method says what must happen, changes the
model accordingly, and raises `Refused` with the code of the error that must come instead; then nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.lifecycle import FINAL, Actor, Idempotency, Lifecycles, Machine, Move, Policy, Reaping, State, Treatment

MACHINES = {machine.name: machine for machine in Lifecycles()}
# Lifecycles with long leases get short ones, so that the same few steps of the clock matter to all of them.
HURRY: dict[str, dict[str, Any]] = {
    "images": {"lease_seconds": 40},
    "crawl": {"lease_seconds": 40, "max_runtime_seconds": 100},
    "transcode": {"lease_seconds": 40, "offline_seconds": 60, "no_progress_seconds": 90, "backoff_base_seconds": 1},
}
POLICIES = {name: machine.policy.over(HURRY.get(name, {})) for name, machine in MACHINES.items()}

SWEEP_SECONDS, GRACE_SECONDS_MAX, ORPHAN_SECONDS = 10, 120, 60
WITHDRAWN = "withdrawn"  # what the execution of a withdrawn job has said that was released


class Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Request(NamedTuple):
    """What a client sends; equal requests are one intent."""

    lifecycle: str
    queue: str
    priority: int
    delay: float
    max_attempts: int | None
    key: str | None
    payload: int
    requires: tuple[str, ...]

    @property
    def machine(self) -> Machine:
        return MACHINES[self.lifecycle]

    @property
    def policy(self) -> Policy:
        return POLICIES[self.lifecycle]


class Execution(NamedTuple):
    epoch: int
    attempt: int
    worker: str
    token: str
    outcome: str
    to: State
    said: Any  # the result or error it reported: the same words again are a repeat, not a second end


@dataclass
class Worker:
    heard: datetime
    offers: frozenset[str]
    enabled: bool = True


@dataclass(eq=False)
class Job:
    id: str
    request: Request
    created_at: datetime
    run_at: datetime
    state: State
    redrive_of: str | None = None
    due: bool | None = None
    attempt: int = 0
    epoch: int = 0
    failures: int = 0
    lost: int = 0
    worker: str | None = None
    instance: str | None = None
    token: str | None = None
    expires_at: datetime | None = None
    claimed_at: datetime | None = None
    progress_at: datetime | None = None
    cancel_at: datetime | None = None
    finished_at: datetime | None = None
    events: list[tuple[str, State | None, State | None]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)

    @property
    def machine(self) -> Machine:
        return self.request.machine

    @property
    def policy(self) -> Policy:
        return self.request.policy

    @property
    def max_attempts(self) -> int:
        return self.request.max_attempts or self.policy.max_attempts

    @property
    def final(self) -> bool:
        return self.state in FINAL


class Model:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[str, Job] = {}
        self.pruned: dict[str, Job] = {}  # their keys hold, and the record of their attempts stays
        self.workers: dict[str, Worker] = {}
        self.paused: set[str] = set()
        self.keys: dict[str, str] = {}
        self.kept_at: dict[str, datetime] = {}
        self.tokens: set[str] = set()
        self.swept_at: datetime | None = None
        self.grace_until: datetime | None = None
        self.chance = 0.0
        self.taken: set[tuple[str, Move]] = set()

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def ago(self, seconds: float) -> datetime:
        return self.now - timedelta(seconds=seconds)

    def ahead(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    # -- moves: every one is in the lifecycle's table, has one event, and none follows the end (S5, S6, S12) --------

    def move(self, job: Job, verb: str, to: State, *, due: bool | None = None) -> None:
        if (legal := job.machine.move(verb, job.state, to)) is None:
            raise Refused("illegal_move")
        self.taken.add((job.machine.name, legal))
        job.events.append((verb, job.state, to))
        job.state, job.due = to, due
        if job.final:
            job.finished_at = self.now

    def note(self, job: Job, verb: str) -> None:
        job.events.append((verb, None, None))

    def end(self, job: Job, verb: str, to: State, outcome: str, said: Any = None, *, delay: float = 0) -> None:
        """An execution is over: one record, no lease, and a move; two where dead lies behind retrying (C-3)."""
        assert job.worker
        assert job.token
        detour = to is State.DEAD and not job.machine.has(State.RUNNING, State.DEAD)
        first = State.RETRYING if detour else to
        job.executions.append(Execution(job.epoch, job.attempt, job.worker, job.token, outcome, first, said))
        waits = first in (State.QUEUED, State.RETRYING)
        if waits:
            job.run_at = self.ahead(delay)
        claimable = first is State.QUEUED or job.machine.has(State.RETRYING, State.RUNNING)
        self.move(job, verb, first, due=(delay <= 0 and claimable) if waits else None)
        job.worker = job.instance = job.token = job.expires_at = None
        if detour:
            self.move(job, verb, State.DEAD)

    # -- creating ---------------------------------------------------------------------------------------------------

    def holder(self, request: Request, *, accept: bool) -> Job | None:
        """The job that answers this request, if its key is taken (C-18, C-19); its own policy says for how long."""
        job = (self.jobs | self.pruned).get(self.keys.get(request.key or "", ""))
        if job is None or self.key_is_free(job):
            return None
        if job.request != request:
            raise Refused("idempotency_key_reused")
        if accept:  # C-9: a repeat finishes the acceptance that the first request left undone
            self.accept(job)
        return job

    def key_is_free(self, job: Job) -> bool:
        is_over = job.created_at <= self.ago(job.policy.idempotency_window_seconds)
        failed = job.state in (State.DEAD, State.CANCELED)
        match job.policy.idempotency:
            case Idempotency.WINDOW:
                return is_over
            case Idempotency.UNTIL_FAILED:
                return failed
            case Idempotency.WINDOW_UNTIL_FAILED:
                return failed or is_over
            case _:
                return False

    def born(self, job_id: str, request: Request, *, accept: bool = True, redrive_of: str | None = None) -> Job:
        assert job_id not in self.jobs
        separate = request.machine.accept_separately
        initial = request.machine.initial if separate or not accept else State.QUEUED
        job = Job(job_id, request, self.now, self.ahead(request.delay), initial, redrive_of)
        job.events.append(("create", None, initial))
        job.due = job.run_at <= self.now if initial is State.QUEUED else None
        if initial is State.CREATED and accept:
            self.move(job, "accept", State.QUEUED, due=job.run_at <= self.now)
        self.jobs[job_id] = job
        if request.key:
            self.keys[request.key] = job_id
        return job

    def accept(self, job: Job) -> list[str]:
        if job.state is not State.CREATED:
            return []
        self.move(job, "accept", State.QUEUED, due=job.run_at <= self.now)
        return [job.id]

    def accept_orphans(self) -> int:
        return sum(len(self.accept(job)) for job in self.alive() if job.created_at <= self.ago(ORPHAN_SECONDS))

    def redrive(self, job: Job) -> Request:
        if not job.final:
            raise Refused("not_final")
        return job.request._replace(key=None, delay=0, max_attempts=job.max_attempts)

    # -- claiming ---------------------------------------------------------------------------------------------------

    def ready(self, worker: str, queues: Iterable[str] | None) -> list[Job]:
        """What this worker could have now: due, not early (S9), open queue, able and enabled worker."""
        who = self.workers[worker]
        return [
            job
            for job in self.alive()
            if job.due
            and who.enabled
            and job.request.queue not in self.paused
            and (queues is None or job.request.queue in queues)
            and who.offers.issuperset(job.request.requires)
        ]

    def claim(
        self, worker: str, instance: str, limit: int, queues: list[str] | None, leases: list[tuple[str, str]]
    ) -> None:
        """Which of equally urgent jobs come first is the engine's choice; everything else about `leases` is not."""
        if not self.workers[worker].enabled:
            raise Refused("worker_disabled")
        taken = self._take(worker, instance, limit, queues, leases)
        if taken < limit and self._overdue(queues):
            self.requeue_due()
            self.reap(queues)
            taken += self._take(worker, instance, limit - taken, queues, leases[taken:])
        assert len(leases) == taken, f"{len(leases)} leases, but only {taken} jobs were ready"

    def _take(
        self, worker: str, instance: str, limit: int, queues: list[str] | None, leases: list[tuple[str, str]]
    ) -> int:
        ready = {job.id: job for job in self.ready(worker, queues)}
        count = min(limit, len(ready))
        picked = leases[:count]
        assert len(picked) == count, f"{len(picked)} leases of {limit} wanted, {len(ready)} jobs were ready"
        for job_id, token in picked:
            assert job_id in ready, f"job {job_id} was not to be had, or was taken twice"
            assert token not in self.tokens, "a token was issued twice"
            job = ready.pop(job_id)
            self.tokens.add(token)
            self.move(job, "claim", State.RUNNING)
            job.epoch += 1
            job.attempt += 1
            assert job.attempt <= job.max_attempts
            job.worker, job.instance, job.token = worker, instance, token
            job.claimed_at, job.progress_at = self.now, None
            job.expires_at = self.ahead(job.policy.lease_seconds)
        left = max((job.request.priority for job in ready.values()), default=-101)
        assert all(self.jobs[job_id].request.priority >= left for job_id, _ in picked), (
            "a more urgent job was left behind"
        )
        return count

    def _overdue(self, queues: list[str] | None) -> bool:
        return any(
            (job.due is False and job.run_at <= self.now)
            or (job.expires_at and job.expires_at <= self.now and (queues is None or job.request.queue in queues))
            for job in self.alive()
        )

    # -- writing under a lease --------------------------------------------------------------------------------------

    def holds(self, job: Job, token: str, worker: str) -> bool:
        return job.state is State.RUNNING and job.token == token and job.worker == worker

    def in_time(self, job: Job) -> bool:
        """A lease that ran out is still its holder's until it is reaped, where the lifecycle does not say otherwise."""
        return job.policy.late_writes or (job.expires_at is not None and job.expires_at > self.now)

    def repeated(self, job: Job, token: str, worker: str, repeats: dict[str, Any]) -> State:
        """A write that no longer matches: the first answer again if it is the same write; else it is refused (S4).

        `repeats`: what the execution has ended as if it is the same write, and the words it then ended with.
        """
        for done in job.executions:
            same = (done.token, done.worker) == (token, worker) and done.outcome in repeats
            if same and repeats[done.outcome] == done.said:
                buried = done.to is State.RETRYING and job.state is State.DEAD and job.epoch == done.epoch
                return State.DEAD if buried else done.to
        raise Refused("lease_lost")

    def heartbeat(self, worker: str, held: list[tuple[Job, str]]) -> tuple[list[str], list[str], bool]:
        renewed = [job for job, token in held if self.holds(job, token, worker)]
        for job in renewed:
            job.expires_at = self.ahead(job.policy.lease_seconds)
        self.workers[worker].heard = self.now
        lost = [job.id for job, token in held if not self.holds(job, token, worker)]
        return lost, [job.id for job in renewed if job.cancel_at], self.workers[worker].enabled

    def progress(self, job: Job, token: str, worker: str) -> bool:
        if not (self.holds(job, token, worker) and self.in_time(job)):
            raise Refused("lease_lost")
        job.expires_at, job.progress_at = self.ahead(job.policy.lease_seconds), self.now
        self.note(job, "progress")
        return job.cancel_at is not None

    def complete(self, job: Job, token: str, worker: str, result: Any) -> State:
        if not (self.holds(job, token, worker) and self.in_time(job)):
            return self.repeated(job, token, worker, {"succeeded": result})
        self.end(job, "complete", State.SUCCEEDED, "succeeded", result)
        return job.state

    def fail(
        self, job: Job, token: str, worker: str, code: str, *, permanent: bool = False, after: float | None = None
    ) -> State:
        """Canceled if asked for; dead if hopeless (C-15: the attempt that just ran counts); else retrying (C-17)."""
        if not (self.holds(job, token, worker) and self.in_time(job)):
            return self.repeated(job, token, worker, {"failed": code, "canceled": code})
        if job.cancel_at:
            return self._stopped(job, code, code)
        treatment = Treatment.PERMANENT if permanent else job.policy.errors.get(code, job.policy.unknown_errors)
        hopeless = treatment is Treatment.PERMANENT or job.attempt >= job.max_attempts
        job.failures += 1
        delay = self.backoff(job, job.failures, treatment) if after is None else after
        self.end(
            job, "fail", State.DEAD if hopeless else State.RETRYING, "failed", code, delay=0 if hopeless else delay
        )
        return job.state

    def backoff(self, job: Job, failures: int, treatment: Treatment) -> float:
        policy = job.policy
        cap = policy.throttle_cap_seconds if treatment is Treatment.THROTTLED else policy.backoff_cap_seconds
        return self.chance * min(cap, policy.backoff_base_seconds * policy.backoff_factor ** (failures - 1))

    def release(self, job: Job, token: str, worker: str, delay: float) -> State:
        reason = "snoozed" if delay else "released"
        if not self.holds(job, token, worker):
            return self.repeated(job, token, worker, {"released": reason, "canceled": None, "failed": WITHDRAWN})
        if job.cancel_at:
            return self._stopped(job, None, WITHDRAWN)
        self.end(job, "release", State.QUEUED, "released", reason, delay=delay)
        job.attempt -= 1
        return job.state

    def _stopped(self, job: Job, canceled: str | None, failed: str) -> State:
        """As was asked for: canceled; dead where the lifecycle has no cancel, which an expired lease may forbid."""
        if job.machine.has(State.RUNNING, State.CANCELED):
            self.end(job, "cancel", State.CANCELED, "canceled", canceled)
        elif not self.in_time(job):
            raise Refused("lease_lost")
        else:
            job.failures += 1
            self.end(job, "fail", State.DEAD, "failed", failed)
        return job.state

    def reject(self, job: Job, token: str, worker: str, code: str) -> State:
        held = self.holds(job, token, worker)
        if held and job.machine.move("reject", State.RUNNING, State.REJECTED) is None:
            raise Refused("illegal_move")
        if not (held and self.in_time(job)):
            return self.repeated(job, token, worker, {"rejected": code})
        self.end(job, "reject", State.REJECTED, "rejected", code)
        return job.state

    # -- operating --------------------------------------------------------------------------------------------------

    def reject_queued(self, job: Job) -> list[str]:
        if job.state is not State.QUEUED:
            return []
        self.move(job, "reject", State.REJECTED)
        return [job.id]

    def cancel(self, job: Job) -> State:
        """Immediately if it is not running; otherwise a request is stored (C-7)."""
        if job.state is State.CANCELED:
            return job.state
        if job.final:
            raise Refused("already_final")
        if job.state is not State.RUNNING:
            self.move(job, "cancel", State.CANCELED)
            job.cancel_at = self.now
        elif job.machine.move("cancel", State.RUNNING, State.CANCELED) is None:
            raise Refused("illegal_move")
        else:
            self._ask_to_stop(job)
        return job.state

    def _ask_to_stop(self, job: Job) -> None:
        if job.cancel_at is None:
            job.cancel_at = self.now
            self.note(job, "cancel")

    def withdraw(self, control: Job, token: str, worker: str, job: Job) -> State:
        """By the holder of another job; of a running job in every lifecycle (C-7)."""
        if not (self.holds(control, token, worker) and self.in_time(control)):
            raise Refused("lease_lost")
        if job.state is State.RUNNING:
            self._ask_to_stop(job)
        return job.state

    def requeue(self, job: Job, actor: Actor) -> State:
        if job.state is not State.RETRYING:
            raise Refused("not_retrying")
        if job.machine.move("requeue", job.state, State.QUEUED) and not job.machine.allows(
            "requeue", job.state, State.QUEUED, actor
        ):
            raise Refused("actor_not_allowed")
        self.move(job, "requeue", State.QUEUED, due=True)
        job.run_at = self.now
        return job.state

    def discard(self, job: Job) -> list[str]:
        if job.state is not State.RETRYING:
            return []
        self.move(job, "fail", State.DEAD)
        return [job.id]

    # -- maintaining ------------------------------------------------------------------------------------------------

    def alive(self) -> Iterator[Job]:
        return (job for job in list(self.jobs.values()) if not job.final)

    def requeue_due(self) -> int:
        ripe = [job for job in self.alive() if job.due is False and job.run_at <= self.now]
        for job in ripe:
            if job.state is State.QUEUED or job.machine.has(State.RETRYING, State.RUNNING):
                job.due = True
            else:
                self.move(job, "requeue", State.QUEUED, due=True)
        return len(ripe)

    def reap(self, queues: list[str] | None = None, gone: tuple[str, ...] = ()) -> set[str]:
        in_grace = self._in_grace()
        found = {
            job: why
            for job in self.alive()
            if job.state is State.RUNNING
            and (queues is None or job.request.queue in queues)
            and (why := self._over(job, gone, in_grace))
        }
        for job, why in found.items():
            self._lose(job, why)
        return {job.id for job in found}

    def _over(self, job: Job, gone: tuple[str, ...], in_grace: bool) -> str | None:
        """The reason why this execution is lost, if it is (C-11, C-34)."""
        assert job.claimed_at
        assert job.expires_at
        assert job.worker
        policy = job.policy
        if job.instance in gone:
            return "worker_died"
        if policy.max_runtime_seconds is not None and job.claimed_at <= self.ago(policy.max_runtime_seconds):
            return "max_runtime"
        last = job.progress_at or job.claimed_at
        if policy.no_progress_seconds is not None and not in_grace and last <= self.ago(policy.no_progress_seconds):
            return "no_progress"
        if job.cancel_at and job.cancel_at <= self.ago(policy.cancel_grace_seconds):
            return "cancel_not_obeyed"
        patient = policy.reaping is Reaping.EXPIRED_AND_OFFLINE
        silent = self.workers[job.worker].heard <= self.ago(policy.offline_seconds)
        if not in_grace and job.expires_at <= self.now and (silent or not patient):
            return "lease_expired"
        return None

    def _lose(self, job: Job, why: str) -> None:
        """A crash uses up its attempt (C-14): the first is retried at once, `max_lost` of them are poison.

        Running over a clock of its policy uses the attempt up too, but is no crash.
        """
        crash = why not in ("max_runtime", "no_progress")
        first = crash and job.lost == 0
        earlier = max(1, job.lost + job.failures)
        job.lost += int(crash)
        poison = crash and job.lost >= job.policy.max_lost
        if job.cancel_at:
            canceled = job.machine.has(State.RUNNING, State.CANCELED)
            self.end(job, "reap", State.CANCELED if canceled else State.DEAD, "lost")
        elif poison or job.attempt >= job.max_attempts:
            self.end(job, "reap", State.DEAD, "lost")
        else:
            delay = 0 if first else self.backoff(job, earlier, Treatment.TRANSIENT)
            self.end(job, "reap", State.RETRYING, "lost", delay=delay)

    def _in_grace(self) -> bool:
        """After a gap without sweeps there is a grace period, at most as long as the gap (C-28)."""
        if self.swept_at is None:
            self.swept_at = self.now
        gap = (self.now - self.swept_at).total_seconds()
        within = self.grace_until is not None and self.grace_until > self.swept_at
        if gap >= 2 * SWEEP_SECONDS and not within:
            self.grace_until = self.ahead(min(gap, GRACE_SECONDS_MAX))
        if gap >= SWEEP_SECONDS / 2:
            self.swept_at = self.now
        return self.grace_until is not None and self.grace_until > self.now

    def prune(self, keep: float) -> set[str]:
        """Of a job whose key holds, the key is kept first; the job is deleted a minute later at the earliest."""
        done = set()
        for job in [job for job in self.jobs.values() if job.finished_at and job.finished_at <= self.ago(keep)]:
            holds = job.request.key and self.keys[job.request.key] == job.id and not self.key_is_free(job)
            if holds and job.id not in self.kept_at:
                self.kept_at[job.id] = self.now
            elif holds and self.kept_at[job.id] > self.ago(60):
                continue
            else:
                self.pruned[job.id] = self.jobs.pop(job.id)
            done.add(job.id)
        return done
