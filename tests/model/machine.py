"""The engine beside the reference model: the same requests to both, and after each the same jobs in both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.engine import HeldLease, Progress, Rejection, Retention
from holdfast.errors import HoldfastError
from holdfast.lifecycle import FINAL, Actor, Move, State
from holdfast.model import NewJob
from holdfast.model.reports import Withdrawal
from holdfast.store.queries import Query
from tests.model.database import ModelDatabase
from tests.model.reference import HURRY, MACHINES, Job, Model, Refused, Request, Worker

T = TypeVar("T")

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
QUEUES = ("mail", "media")

JOBS = Query(
    "model_jobs",
    "SELECT id, state, due, attempt, epoch, failures, lost, version, run_at, "
    "CASE WHEN state = 'running' THEN lease_worker END, CASE WHEN state = 'running' THEN lease_token END, "
    "lease_expires_at, cancel_requested_at, finished_at, redrive_of FROM holdfast_jobs ORDER BY id",
)
EVENTS = Query(
    "model_events", "SELECT job_id, seq, verb, from_state, to_state FROM holdfast_events ORDER BY job_id, seq"
)
ATTEMPTS = Query(
    "model_attempts",
    "SELECT job_id, epoch, attempt, worker_id, token, outcome, to_state FROM holdfast_attempts ORDER BY job_id, epoch",
)

picks = st.integers(0, 1 << 12)
chances = st.sampled_from((0.0, 0.25, 0.75))
# Mostly the lease that is held; else a write that must be refused, or is the repeat of one that was not.
grips = st.sampled_from(("held",) * 5 + ("earlier", "earlier", "another job's", "another worker's", "unknown"))
requests = st.builds(
    Request,
    lifecycle=st.sampled_from(tuple(MACHINES)),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from((0, 0, 5, -5)),
    delay=st.sampled_from((0, 0, 0, 15)),
    max_attempts=st.sampled_from((None, None, 1, 2)),
    key=st.sampled_from((None, None, "a", "b")),
    payload=st.sampled_from((1, 1, 2)),
    requires=st.sampled_from(((), (), ("gpu",))),
)


STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {}


def step(weight: int, **arguments: st.SearchStrategy[Any]) -> Callable[[T], T]:
    """One thing that may happen, and how often. One rule draws them all: with a rule for each, whole runs would go by
    without a claim, because a run leaves out rules at random."""

    def keep(method: T) -> T:
        STEPS[method.__name__] = weight, arguments  # type: ignore[attr-defined]
        return method

    return keep


def any_step() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    simplest_first = sorted(STEPS, key=lambda name: len(STEPS[name][1]))  # what a failing run is reduced to
    names = [name for name in simplest_first for _ in range(STEPS[name][0])]
    calls: dict[str, st.SearchStrategy[tuple[str, dict[str, Any]]]] = {
        name: st.tuples(st.just(name), st.builds(dict, **arguments)) for name, (_, arguments) in STEPS.items()
    }
    return st.sampled_from(names).flatmap(calls.__getitem__)


class EngineBesideModel(RuleBasedStateMachine):
    database: ModelDatabase
    loop: asyncio.AbstractEventLoop
    comparisons = 0
    taken: set[tuple[str, Move]]

    def __init__(self) -> None:
        super().__init__()
        self.run(self.database.restart())
        self.engine = self.database.engine
        self.model = Model(self.database.clock)
        for name, offers in (("plain", {}), ("gpu", {"gpu": True})):
            worker = self.run(self.engine.workers.register(name=name, capabilities=offers))
            self.model.workers[worker.id] = Worker(self.model.now, frozenset(offers))
        self.names = list(self.model.workers)
        self.sound = True

    # -- the two side by side ---------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def both(self, expected: Callable[[], Any], actual: Coroutine[Any, Any, Any]) -> None:
        """The same answer or the same refusal from both, then the same jobs in both."""
        wanted = outcome_of(expected)
        answer = self.run(answered(actual))
        assert answer == wanted, f"the engine says {answer}, the model {wanted}"
        self.compare()

    def compare(self) -> None:
        """Every job's row, with the number of its events. All rows: what a step is not about must not change either."""
        type(self).comparisons += 1
        rows = self.run(self.engine.store.read(lambda tx: tx.all(JOBS)))
        wanted = [row_of(job) for job in self.model.jobs.values()]
        if [tuple(row) for row in rows] != wanted:
            raise AssertionError(difference([tuple(row) for row in rows], wanted))

    def compare_histories(self) -> None:
        """Every event and every execution. They are append-only, so once is enough while their job exists."""
        jobs = self.model.jobs.values()
        events = self.run(self.engine.store.read(lambda tx: tx.all(EVENTS)))
        told = [(job.id, seq, *event) for job in jobs for seq, event in enumerate(job.events, start=1)]
        assert [tuple(row) for row in events] == told, "the engine and the model tell different histories"
        attempts = self.run(self.engine.store.read(lambda tx: tx.all(ATTEMPTS)))
        once = sorted([*jobs, *self.model.pruned.values()], key=lambda job: job.id)
        ended = [(job.id, *done[:-1]) for job in once for done in job.executions]
        assert [tuple(row) for row in attempts] == ended, "the engine and the model saw different executions end"

    def teardown(self) -> None:
        if self.sound:  # else the step that failed has more to say
            self.compare_histories()
            self.taken |= self.model.taken

    # -- the job and worker of a step -------------------------------------------------------------------------------

    def job(self, pick: int, *states: State) -> Job:
        """Mostly one in these states, so that what is asked for is not always impossible."""
        jobs = list(self.model.jobs.values())
        fitting = [job for job in jobs if job.state in states]
        return fitting[pick // 4 % len(fitting)] if pick % 4 and fitting else jobs[pick // 4 % len(jobs)]

    def worker(self, pick: int) -> str:
        return self.names[pick % len(self.names)]

    def grip(self, pick: int, how: str) -> tuple[Job, str, str]:
        """A job, a token and the worker that presents it."""
        running = [job for job in self.model.jobs.values() if job.token]
        ended = [job for job in running if job.executions and pick % 2]  # it runs again: only the token tells
        ended = ended or [job for job in self.model.jobs.values() if job.executions]
        if how == "earlier" and ended:
            job = ended[pick % len(ended)]
            done = job.executions[pick // 7 % len(job.executions)]
            return job, done.token, done.worker
        if how == "unknown" or not running:
            return self.job(pick), (UNKNOWN_ID, "x")[pick % 2], self.worker(pick)
        job = running[pick % len(running)]
        assert job.token
        assert job.worker
        if how == "another job's":
            other = running[pick // 7 % len(running)]
            assert other.token
            return self.job(pick), other.token, job.worker
        if how == "another worker's":
            return job, job.token, next(name for name in self.names if name != job.worker)
        return job, job.token, job.worker

    # -- creating ---------------------------------------------------------------------------------------------------

    @step(12, request=requests, accept=st.booleans())
    def create(self, request: Request, accept: bool) -> None:
        new = NewJob(
            type="gpu" if request.requires else "plain",
            payload={"n": request.payload},
            lifecycle=request.lifecycle,
            policy=HURRY.get(request.lifecycle),
            queue=request.queue,
            priority=request.priority,
            delay_seconds=request.delay or None,
            idempotency_key=request.key,
            max_attempts=request.max_attempts,
            requires=list(request.requires),
        )
        wanted = outcome_of(lambda: self.model.holder(request, accept=accept))
        answer = self.run(answered(self.engine.create(new, accept=accept)))
        if wanted is None:
            assert not answer.existed
            wanted = self.model.born(answer.id, request, accept=accept)
        if isinstance(wanted, Job):
            answer, wanted = (answer.id, answer.state), (wanted.id, wanted.state)
        assert answer == wanted, f"the engine says {answer}, the model {wanted}"
        self.compare()

    @step(3, pick=picks)
    def accept(self, pick: int) -> None:
        job = self.job(pick, State.CREATED)
        self.both(lambda: self.model.accept(job), self.engine.accept(job.id))

    @step(1)
    def accept_orphans(self) -> None:
        self.both(self.model.accept_orphans, self.engine.maintenance.accept_orphans())

    @step(3, pick=picks)
    def redrive(self, pick: int) -> None:
        job = self.job(pick, *FINAL)
        request = outcome_of(lambda: self.model.redrive(job))
        answer = self.run(answered(self.engine.redrive(job.id)))
        if isinstance(request, Request):
            self.model.born(answer.id, request, redrive_of=job.id)
        else:
            assert answer == request
        self.compare()

    # -- working ----------------------------------------------------------------------------------------------------

    @step(
        16,
        pick=picks,
        limit=st.integers(1, 4),
        queues=st.sampled_from((None, None, ["mail"], ["media"])),
        chance=chances,
    )
    def claim(self, pick: int, limit: int, queues: list[str] | None, chance: float) -> None:
        worker = self.worker(pick)
        self.model.chance = self.database.ids.chance = chance
        found = self.run(answered(self.engine.claim(worker, limit=limit, queues=queues, instance=f"of {worker}")))
        leases = [(lease.id, lease.token) for lease in found] if isinstance(found, list) else []
        wanted = outcome_of(lambda: self.model.claim(worker, f"of {worker}", limit, queues, leases))
        if isinstance(wanted, str) or isinstance(found, str):
            assert found == wanted
        self.compare()

    @step(5, pick=picks, how=grips, forgetful=st.booleans())
    def heartbeat(self, pick: int, how: str, forgetful: bool) -> None:
        """All that the worker holds, if it does not forget it, and one thing that it may not hold."""
        job, token, worker = self.grip(pick, how)
        mine = [each for each in self.model.jobs.values() if each.worker == worker and not forgetful]
        held = [(each, each.token) for each in mine if each.token]
        held += [(job, token)] if (job, token) not in held else []
        self.both(
            lambda: self.model.heartbeat(worker, held),
            self._beat(worker, [HeldLease(each.id, shown) for each, shown in held]),
        )

    async def _beat(self, worker: str, leases: list[HeldLease]) -> tuple[list[str], list[str], bool]:
        beat = await self.engine.heartbeat(worker, leases)
        return beat.lost, sorted(beat.cancel), beat.enabled

    @step(4, pick=picks, how=grips)
    def progress(self, pick: int, how: str) -> None:
        job, token, worker = self.grip(pick, how)
        report = Progress(id=job.id, token=token, step="half", percent=50)
        self.both(lambda: self.model.progress(job, token, worker), wish_of(self.engine.progress(worker, report)))

    @step(5, pick=picks, how=grips, result=st.sampled_from((None, "ok")))
    def complete(self, pick: int, how: str, result: str | None) -> None:
        job, token, worker = self.grip(pick, how)
        self.both(
            lambda: self.model.complete(job, token, worker, result),
            state_of(self.engine.complete(worker, job.id, token, result)),
        )

    @step(
        10,
        pick=picks,
        how=grips,
        code=st.sampled_from(("E_ANY", "E_ANY", "captcha", "bad_request")),
        permanent=st.sampled_from((False, False, True)),
        after=st.sampled_from((None, None, 0, 12)),
        chance=chances,
    )
    def fail(self, pick: int, how: str, code: str, permanent: bool, after: float | None, chance: float) -> None:
        job, token, worker = self.grip(pick, how)
        self.model.chance = self.database.ids.chance = chance
        self.both(
            lambda: self.model.fail(job, token, worker, code, permanent=permanent, after=after),
            state_of(self.engine.fail(worker, job.id, token, code, retry_after_seconds=after, permanent=permanent)),
        )

    @step(6, pick=picks, how=grips, delay=st.sampled_from((0, 0, 15)))
    def release_or_snooze(self, pick: int, how: str, delay: float) -> None:
        job, token, worker = self.grip(pick, how)
        self.both(
            lambda: self.model.release(job, token, worker, delay),
            state_of(self.engine.release(worker, job.id, token, delay_seconds=delay)),
        )

    @step(2, pick=picks, how=grips)
    def reject(self, pick: int, how: str) -> None:
        job, token, worker = self.grip(pick, how)
        self.both(
            lambda: self.model.reject(job, token, worker, "E_NO"),
            state_of(self.engine.reject(worker, job.id, token, "E_NO")),
        )

    # -- operating --------------------------------------------------------------------------------------------------

    @step(1, pick=picks)
    def reject_queued(self, pick: int) -> None:
        job = self.job(pick, State.QUEUED)
        self.both(
            lambda: self.model.reject_queued(job),
            self.engine.reject_queued(Rejection(id=job.id, token="", code="E_NO")),
        )

    @step(4, pick=picks)
    def cancel(self, pick: int) -> None:
        job = self.job(pick, State.QUEUED, State.RUNNING, State.RETRYING)
        self.both(lambda: self.model.cancel(job), state_of(self.engine.cancel(job.id)))

    @step(4, pick=picks, how=grips)
    def withdraw(self, pick: int, how: str) -> None:
        """Of a running or a finished job: the model cannot know the token under which a waiting one is failed."""
        control, token, worker = self.grip(pick, how)
        job = self.job(pick // 5, State.RUNNING)
        if job.final or job.state is State.RUNNING:
            self.both(
                lambda: self.model.withdraw(control, token, worker, job),
                state_of(self.engine.withdraw(worker, Withdrawal(id=control.id, token=token, target=job.id))),
            )

    @step(3, pick=picks, actor=st.sampled_from((Actor.SYSTEM, Actor.API)))
    def requeue(self, pick: int, actor: Actor) -> None:
        job = self.job(pick, State.RETRYING)
        self.both(lambda: self.model.requeue(job, actor), state_of(self.engine.requeue(job.id, actor=actor)))

    @step(2, pick=picks)
    def discard(self, pick: int) -> None:
        job = self.job(pick, State.RETRYING)
        self.both(lambda: self.model.discard(job), self.engine.discard(job.id))

    @step(1, queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        self.model.paused.add(queue)
        self.run(self.engine.queues.pause(queue))

    @step(3, queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        self.model.paused.discard(queue)
        self.run(self.engine.queues.resume(queue))

    @step(1, pick=picks)
    def disable(self, pick: int) -> None:
        self.model.workers[self.worker(pick)].enabled = False
        self.run(self.engine.workers.disable(self.worker(pick)))

    @step(3, pick=picks)
    def enable(self, pick: int) -> None:
        self.model.workers[self.worker(pick)].enabled = True
        self.run(self.engine.workers.enable(self.worker(pick)))

    # -- time and maintenance ---------------------------------------------------------------------------------------

    @step(4, seconds=st.sampled_from((1, 9, 31, 45, 130, 90_000)))
    def time_passes_unwatched(self, seconds: float) -> None:
        self.database.clock.advance(seconds)

    @step(8, sweeps=st.integers(1, 3), chance=chances)
    def time_passes_under_watch(self, sweeps: int, chance: float) -> None:
        self.model.chance = self.database.ids.chance = chance
        for _ in range(sweeps):
            self.database.clock.advance(19)  # less than two intervals: no gap in the sweeps
            wanted = self.model.reap()
            assert {row["id"] for row in self.run(self.engine.maintenance.reap())} == wanted
        self.both(self.model.requeue_due, self.engine.maintenance.requeue_due())

    @step(2, pick=picks, chance=chances)
    def a_process_is_seen_to_die(self, pick: int, chance: float) -> None:
        self.model.chance = self.database.ids.chance = chance
        instance = f"of {self.worker(pick)}"
        self.both(lambda: self.model.reap(gone=(instance,)), ids_of(self.engine.maintenance.reap(gone=[instance])))

    @step(2, chance=chances)
    def reap(self, chance: float) -> None:
        self.model.chance = self.database.ids.chance = chance
        self.both(self.model.reap, ids_of(self.engine.maintenance.reap()))

    @step(1, keep=st.sampled_from((0, 60, 86_400)))
    def prune(self, keep: float) -> None:
        self.compare_histories()
        retention = Retention(succeeded=keep, dead=keep, canceled=keep, rejected=keep)
        self.both(lambda: len(self.model.prune(keep)), self.engine.maintenance.prune(retention))

    @initialize(first=st.lists(requests, min_size=3, max_size=6))
    def begin(self, first: list[Request]) -> None:
        for request in first:
            self.next(("create", {"request": request, "accept": True}))

    @rule(drawn=st.deferred(any_step))
    def next(self, drawn: tuple[str, dict[str, Any]]) -> None:
        name, arguments = drawn
        self.sound = False
        if self.model.jobs or "pick" not in arguments:
            getattr(self, name)(**arguments)
        self.sound = True


def row_of(job: Job) -> tuple[Any, ...]:
    return (
        *(job.id, job.state, job.due, job.attempt, job.epoch, job.failures, job.lost, len(job.events), job.run_at),
        *(job.worker, job.token, job.expires_at, job.cancel_at, job.finished_at, job.redrive_of),
    )


def difference(rows: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> str:
    here, there = {row[0]: row for row in rows}, {row[0]: row for row in wanted}
    return "\n".join(
        f"the engine has {here.get(job_id)}\n the model has {there.get(job_id)}"
        for job_id in here | there
        if here.get(job_id) != there.get(job_id)
    )


def outcome_of(expected: Callable[[], Any]) -> Any:
    try:
        return expected()
    except Refused as refusal:
        return refusal.code


async def answered(actual: Awaitable[Any]) -> Any:
    try:
        return await actual
    except HoldfastError as error:
        return error.code


async def state_of(actual: Awaitable[Any]) -> Any:
    return (await actual).state


async def wish_of(actual: Awaitable[Any]) -> bool:
    return bool((await actual).cancel_requested)


async def ids_of(actual: Awaitable[Any]) -> set[str]:
    return {row["id"] for row in await actual}
