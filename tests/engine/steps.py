"""Steps shared by many tests: bring a job to a state, advance time, read the rows of the database."""

from itertools import count
from typing import Any, NamedTuple

from holdfast.clock import MovableClock
from holdfast.engine import Engine, HeldLease, Rejection
from holdfast.lifecycle import Machine, State
from holdfast.model import Lease, NewJob
from holdfast.store import Row
from holdfast.store.queries import Query

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"  # a valid UUID that is no token, job or worker
_numbers = count(1)


async def ask(engine: Engine, sql: str, **params: Any) -> list[Row]:
    """Run any SQL directly; a statement that writes needs RETURNING."""
    return await engine.store.write(lambda tx: tx.all(Query("asked", sql), **params))


async def stored(engine: Engine, job_id: str) -> tuple[Any, ...]:
    """The whole row of a job and how much history it has: equal before and after means that nothing happened."""
    sql = """
        SELECT holdfast_jobs.*,
               (SELECT count(*) FROM holdfast_events WHERE job_id = holdfast_jobs.id),
               (SELECT count(*) FROM holdfast_attempts WHERE job_id = holdfast_jobs.id),
               (SELECT count(*) FROM holdfast_parts WHERE job_id = holdfast_jobs.id)
          FROM holdfast_jobs WHERE id = :id"""
    [row] = await engine.store.read(lambda tx: tx.all(Query("stored", sql), id=job_id))
    return tuple(row)


async def sweep(engine: Engine, clock: MovableClock, seconds: float) -> list[Row]:
    """Advance the clock with a sweep every ten seconds, as in production."""
    reaped = []
    while seconds > 0:
        clock.advance(min(10, seconds))
        seconds -= 10
        reaped += await engine.maintenance.reap()
    return reaped


async def run(engine: Engine, worker: str, *, instance: str | None = None, **job: Any) -> Lease:
    """A new job, claimed."""
    job.setdefault("type", f"type-{next(_numbers)}")
    await engine.create(NewJob(**job))
    [lease] = await engine.claim(worker, types=[job["type"]], instance=instance)
    return lease


def held(lease: Lease) -> HeldLease:
    return HeldLease(lease.id, lease.token)


class Standing(NamedTuple):
    """A job brought to a state, with the last token that was issued for it."""

    id: str
    type: str
    token: str = UNKNOWN_ID

    @property
    def instance(self) -> str:
        return self.type


async def bring(engine: Engine, worker: str, machine: Machine, state: State, **job: Any) -> Standing:
    """A job of this lifecycle in this state, moved there by the engine's own verbs."""
    new = NewJob(type=f"{machine.name}-{state}-{next(_numbers)}", lifecycle=machine.name, **job)
    created = await engine.create(new, accept=state is not State.CREATED)
    start = Standing(created.id, new.type)
    if state in (State.CREATED, State.QUEUED):
        return start
    for waiting in (State.QUEUED, State.RUNNING):
        if state is State.CANCELED and (cancel := machine.move("cancel", waiting, State.CANCELED)):
            await engine.cancel(created.id, actor=min(cancel.actors))
            return start
    [lease] = await engine.claim(worker, types=[new.type], instance=start.instance)
    match state:
        case State.RETRYING:
            wait = 0 if machine.has(State.RETRYING, State.RUNNING) else 3600
            await engine.fail(worker, lease.id, lease.token, "E_BROUGHT", retry_after_seconds=wait)
        case State.SUCCEEDED:
            await engine.complete(worker, lease.id, lease.token)
        case State.DEAD:
            await engine.fail(worker, lease.id, lease.token, "E_BROUGHT", permanent=True)
        case State.REJECTED if machine.move("reject", State.RUNNING, State.REJECTED):
            await engine.reject(worker, lease.id, lease.token, "E_BROUGHT")
        case State.REJECTED:
            await engine.release(worker, lease.id, lease.token)
            await engine.reject_queued(Rejection(id=lease.id, token="", code="E_BROUGHT"))
        case _:
            assert state is State.RUNNING
    return start._replace(token=lease.token)


async def assert_consistent(engine: Engine) -> None:
    """S7, S12: each row agrees with its own history, and each execution that ended has one record."""
    for job in (await engine.reads.page(limit=500)).jobs:
        history = await engine.reads.history(job.id)
        assert [event.seq for event in history] == list(range(1, job.version + 1))
        assert [event.to_state for event in history if event.to_state][-1] == job.state
        assert len(await engine.reads.attempts(job.id)) == job.epoch - (job.state is State.RUNNING)
