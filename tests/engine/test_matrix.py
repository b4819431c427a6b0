"""Every state x every verb of every lifecycle, allowed or refused, as its table says; and every move is taken.

The table is the only oracle: R000-11..32, R001-9..22, R002-9..16, R002-29, R003-3, R004-1..7, C-2..C-9, C-23.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from holdfast.engine import Engine, HeldLease, Progress, Rejection
from holdfast.errors import Conflict, IllegalMove, LeaseLost
from holdfast.lifecycle import FINAL, Actor, Lifecycles, Machine, Policy, State
from tests.engine.steps import UNKNOWN_ID, Standing, ask, bring, stored

# Narrower than any built-in one: actors left out, a failure dies through retrying where a loss dies at once.
PRINTING = Machine(
    "printing",
    words={
        "created": "drafted",
        "queued": "waiting",
        "running": "printing",
        "retrying": "jammed",
        "succeeded": "printed",
        "dead": "torn",
        "canceled": "withdrawn",
        "rejected": "refused",
    },
    moves=[
        "accept:   created -> queued            by api",
        "claim:    queued -> running            by worker",
        "complete: running -> succeeded         by worker",
        "fail:     running -> retrying          by worker",
        "fail:     retrying -> dead             by worker",
        "release:  running -> queued            by worker",
        "reject:   running -> rejected          by worker",
        "cancel:   created, queued -> canceled  by api, system",
        "reap:     running -> retrying, dead    by system",
        "requeue:  retrying -> queued           by api, system",
    ],
    policy=Policy(lease_seconds=20, heartbeat_seconds=5),
)
LIFECYCLES = (*Lifecycles(), PRINTING)

Call = Callable[[Engine, str, Standing], Awaitable[Any]]


@dataclass(frozen=True)
class VerbCall:
    """One way to call a verb: its source states, its target and its actor. Its answer is what moved.

    `cancel_requested`: with an earlier cancel request, which turns a release or a loss into the end of the job.
    """

    verb: str
    sources: tuple[State, ...]
    target: State
    actor: Actor
    call: Call
    job: dict[str, Any] = field(default_factory=dict)
    cancel_requested: bool = False

    def path(self, machine: Machine, source: State) -> list[tuple[str, State, State]]:
        """The moves the table allows for it: one, or two where dead is reached only through retrying. None: refused."""
        if source not in self.sources:
            return []
        for steps in ([source, self.target], [source, State.RETRYING, self.target]):
            moves = [(self.verb, a, b) for a, b in pairwise(steps)]
            if all(machine.allows(*move, self.actor) for move in moves):
                return moves
        return []


def as_actor(verb: Callable[..., Awaitable[Any]], actor: Actor) -> Call:
    return lambda engine, _worker, job: verb(engine, job.id, actor=actor)


def verb_calls() -> Iterator[VerbCall]:
    running, waiting = (State.RUNNING,), (State.CREATED, State.QUEUED, State.RETRYING)

    def by_worker(verb: str, sources: tuple[State, ...], target: State, call: Call, **more: Any) -> VerbCall:
        return VerbCall(verb, sources, target, Actor.WORKER, call, **more)

    yield by_worker("claim", (State.QUEUED, State.RETRYING), State.RUNNING, lambda e, w, j: e.claim(w, types=[j.type]))
    yield by_worker("complete", running, State.SUCCEEDED, lambda e, w, j: e.complete(w, j.id, j.token, {"n": 1}))
    yield by_worker("fail", running, State.RETRYING, lambda e, w, j: e.fail(w, j.id, j.token, "E_TRY"))
    yield by_worker("fail", running, State.DEAD, lambda e, w, j: e.fail(w, j.id, j.token, "E_TRY", permanent=True))
    release = lambda e, w, j: e.release(w, j.id, j.token)  # noqa: E731
    yield by_worker("release", running, State.QUEUED, release)
    yield by_worker("cancel", running, State.CANCELED, release, cancel_requested=True)
    yield by_worker("reject", running, State.REJECTED, lambda e, w, j: e.reject(w, j.id, j.token, "E_TRY"))
    for actor in Actor:
        yield VerbCall("accept", (State.CREATED,), State.QUEUED, actor, as_actor(Engine.accept, actor))
        yield VerbCall("cancel", waiting, State.CANCELED, actor, as_actor(Engine.cancel, actor))
        yield VerbCall("requeue", (State.RETRYING,), State.QUEUED, actor, as_actor(Engine.requeue, actor))
        yield VerbCall("fail", (State.RETRYING,), State.DEAD, actor, as_actor(Engine.discard, actor))

    def by_system(verb: str, sources: tuple[State, ...], target: State, call: Call, **more: Any) -> VerbCall:
        return VerbCall(verb, sources, target, Actor.SYSTEM, call, **more)

    verdict = lambda e, w, j: e.reject_queued(Rejection(id=j.id, token="", code="E_TRY"))  # noqa: E731
    died = lambda e, w, j: e.maintenance.reap(gone=[j.instance])  # noqa: E731
    yield by_system("reject", (State.QUEUED,), State.REJECTED, verdict)
    yield by_system("reap", running, State.RETRYING, died)
    yield by_system("reap", running, State.DEAD, died, job={"max_attempts": 1})
    yield by_system("reap", running, State.CANCELED, died, cancel_requested=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("machine", list(LIFECYCLES), ids=lambda machine: machine.name)
async def test_every_verb_in_every_state_does_what_the_lifecycle_says(
    engine: Engine, worker: str, machine: Machine
) -> None:
    """R001-22: any other transition is illegal. C-8: a move is refused to an actor that the lifecycle does not name."""
    if machine is PRINTING:
        engine.ctx.lifecycles.declare(machine)
    for state in machine.words:
        bystander = await bring(engine, worker, machine, state)
        for attempt in verb_calls():
            if path := attempt.path(machine, state):
                job = await bring(engine, worker, machine, state, **attempt.job)
                await _check_accepted(engine, worker, machine, job, attempt, path)
            elif not attempt.cancel_requested and not _requests_cancel_of_running(machine, state, attempt):
                await _check_refused(engine, worker, bystander, state, attempt)
        await _only_the_holder_may_write(engine, worker, bystander, state)
        await _only_final_jobs_are_redriven(engine, bystander, state)

    taken = {
        (row["verb"], row["from_state"], row["to_state"])
        for row in await ask(engine, "SELECT DISTINCT verb, from_state, to_state FROM holdfast_events")
        if row["from_state"] is not None
    }
    assert taken == {move[:3] for move in machine.moves}, "each move at least once, and no other"


def _requests_cancel_of_running(machine: Machine, state: State, attempt: VerbCall) -> bool:
    """Where a running job can be canceled, every actor may request it: a request, not a move."""
    return attempt.verb == "cancel" and state is State.RUNNING and machine.has(state, State.CANCELED)


async def _check_accepted(
    engine: Engine,
    worker: str,
    machine: Machine,
    job: Standing,
    attempt: VerbCall,
    path: list[tuple[str, State, State]],
) -> None:
    if attempt.cancel_requested:
        await engine.cancel(job.id)
    before = (await engine.reads.get(job.id)).version
    assert await attempt.call(engine, worker, job), f"{attempt} moved nothing"
    after = await engine.reads.get(job.id)
    history = await engine.reads.history(job.id)
    moves = [event for event in history if event.seq > before and event.from_state is not None]
    assert [(event.verb, event.from_state, event.to_state) for event in moves] == path
    assert {event.actor for event in moves} == {attempt.actor}
    assert after.state is attempt.target
    assert after.final == (after.finished_at is not None) == (after.state in FINAL)
    assert [event.seq for event in history] == list(range(1, after.version + 1))


async def _check_refused(engine: Engine, worker: str, job: Standing, state: State, attempt: VerbCall) -> None:
    before = await stored(engine, job.id)
    try:
        answer = await attempt.call(engine, worker, job)
    except Conflict:
        answer = []
    assert await stored(engine, job.id) == before, f"{state}: {attempt} was refused, and yet changed something"
    again = attempt.verb == "cancel" and state is State.CANCELED  # asking for what is so already
    assert bool(answer) is again, f"{state}: {attempt} answered {answer}"


async def _only_the_holder_may_write(engine: Engine, worker: str, job: Standing, state: State) -> None:
    """S4: the token and the worker decide, in every state (R003-52, R003-59, R003-72)."""
    other = (await engine.workers.register(name="other")).id
    before = await stored(engine, job.id)
    writers = [(worker, UNKNOWN_ID), (worker, "not a token"), (other, job.token)]
    if state is not State.RUNNING:
        writers.append((worker, job.token))
    for writer, token in writers:
        for write in (
            lambda w, t: engine.complete(w, job.id, t, {"n": 2}),
            lambda w, t: engine.fail(w, job.id, t, "E_STRAY"),
            lambda w, t: engine.fail(w, job.id, t, "E_STRAY", permanent=True),
            lambda w, t: engine.release(w, job.id, t),
            lambda w, t: engine.reject(w, job.id, t, "E_STRAY"),
            lambda w, t: engine.progress(w, Progress(id=job.id, token=t, percent=1, counters={"n": 1})),
        ):
            with pytest.raises(LeaseLost):
                await write(writer, token)
        assert (await engine.heartbeat(writer, [HeldLease(job.id, token)])).lost == [job.id]
        assert await stored(engine, job.id) == before
    if state is State.RUNNING:
        assert (await engine.heartbeat(worker, [HeldLease(job.id, job.token)])).lost == []
        await engine.progress(worker, Progress(id=job.id, token=job.token, percent=1))
        assert (await engine.reads.get(job.id)).percent == 1


async def _only_final_jobs_are_redriven(engine: Engine, job: Standing, state: State) -> None:
    """C-6: terminal rows never move; a redrive is a new job."""
    before = await stored(engine, job.id)
    if state in FINAL:
        assert (await engine.reads.get((await engine.redrive(job.id)).id)).redrive_of == job.id
    else:
        with pytest.raises(Conflict) as refused:
            await engine.redrive(job.id)
        assert refused.value.code == "not_final"
    assert await stored(engine, job.id) == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize("machine", list(Lifecycles()), ids=lambda machine: machine.name)
async def test_the_database_refuses_each_pair_of_states_that_the_lifecycle_lacks(
    engine: Engine, worker: str, machine: Machine
) -> None:
    """S5, R001-27, R000-17..21: also from hand-typed SQL, whatever the engine believes."""
    for source in machine.words:
        job = await bring(engine, worker, machine, source)
        before = await stored(engine, job.id)
        for target in State:
            if source is target or machine.has(source, target):
                continue
            with pytest.raises(IllegalMove):
                await ask(
                    engine,
                    "UPDATE holdfast_jobs SET state = :state WHERE id = :id RETURNING id",
                    state=target,
                    id=job.id,
                )
        assert await stored(engine, job.id) == before
