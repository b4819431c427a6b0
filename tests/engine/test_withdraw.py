"""withdraw: a running job ends another job, which waits or runs, in each lifecycle."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Progress
from holdfast.errors import IllegalMove, LeaseLost
from holdfast.lifecycle import Lifecycles, Machine, State
from holdfast.model import Lease, NewJob
from holdfast.model.reports import Release, Settled, Withdrawal, Withdrawn
from holdfast.store import q
from tests.engine.steps import UNKNOWN_ID, ask, assert_consistent, held, run, stored, sweep

LIFECYCLES = tuple(Lifecycles())
WITHOUT_CANCEL = [machine for machine in LIFECYCLES if State.CANCELED not in machine.words]
in_every_lifecycle = pytest.mark.parametrize("machine", LIFECYCLES, ids=lambda machine: machine.name)
in_each_without_cancel = pytest.mark.parametrize("machine", WITHOUT_CANCEL, ids=lambda machine: machine.name)


def asked(lease: Lease, target: str) -> Withdrawal:
    return Withdrawal(id=lease.id, token=lease.token, target=target, reason="unwanted")


@in_every_lifecycle
async def test_withdraw_ends_a_waiting_job_in_every_lifecycle(engine: Engine, worker: str, machine: Machine) -> None:
    """R000-24, R000-32, C-7: queued, delayed, and waiting for its retry."""
    mine = await run(engine, worker)
    end = State.CANCELED if State.CANCELED in machine.words else State.DEAD
    policy = {"backoff_base_seconds": 600}
    again = await run(engine, worker, type="again", lifecycle=machine.name, policy=policy)
    await engine.fail(worker, again.id, again.token, "E")
    assert (await engine.reads.get(again.id)).state is State.RETRYING
    waits = [NewJob(type="n", lifecycle=machine.name, delay_seconds=seconds) for seconds in (0, 60)]
    for job_id in (again.id, *(made.id for made in await engine.create_many(waits))):
        assert await engine.withdraw(worker, asked(mine, job_id)) == Withdrawn(job_id, end)
        job = await engine.reads.get(job_id)
        assert (job.state, job.reason, job.lease_worker) == (end, "unwanted", None)
        before = await stored(engine, job_id)
        assert await engine.withdraw(worker, asked(mine, job_id)) == Withdrawn(job_id, end)
        assert await stored(engine, job_id) == before


@in_every_lifecycle
async def test_withdraw_asks_the_worker_of_a_running_job_to_stop_it(
    engine: Engine, worker: str, clock: MovableClock, machine: Machine
) -> None:
    """R000-24, C-7: the request is recorded once, and reaches the worker with its next report; others hear nothing."""
    mine = await run(engine, worker)
    running, other = [await run(engine, worker, lifecycle=machine.name) for _ in range(2)]
    assert await engine.withdraw(worker, asked(mine, running.id)) == Withdrawn(running.id, State.RUNNING, asked=True)
    job = await engine.reads.get(running.id)
    assert (job.state, job.reason, job.cancel_requested_at) == (State.RUNNING, "unwanted", clock.now())
    event = (await engine.reads.history(running.id))[-1]
    assert (event.verb, event.from_state, event.actor) == ("cancel", None, "system")
    assert (event.reason, event.data) == ("unwanted", {"control": "system.cancel"})

    before = await stored(engine, running.id)
    assert await engine.withdraw(worker, asked(mine, running.id)) == Withdrawn(running.id, State.RUNNING, asked=True)
    assert await stored(engine, running.id) == before
    assert (await engine.heartbeat(worker, [held(running), held(other)])).cancel == [running.id]
    report = Progress(id=running.id, token=running.token, percent=5)
    assert (await engine.progress(worker, report)).cancel_requested


async def withdrawn(engine: Engine, worker: str, machine: Machine, **more: Any) -> Lease:
    """A running job that was asked to stop."""
    mine, running = await run(engine, worker), await run(engine, worker, lifecycle=machine.name, **more)
    assert (await engine.withdraw(worker, asked(mine, running.id))).asked
    return running


async def check_dead(engine: Engine, job_id: str, verb: str) -> dict[str, Any]:
    """For the reason of the request, by the usual moves of this verb, and never run again. Returns its error."""
    job = await engine.reads.get(job_id)
    assert (job.state, job.reason, job.error["code"]) == (State.DEAD, "unwanted", "unwanted")
    assert job.error["context"]["control"] == "system.cancel"
    history = await engine.reads.history(job_id)
    moves = history[[event.verb for event in history].index("cancel") + 1 :]
    assert {event.verb for event in moves if event.from_state} == {verb}
    assert (moves[-1].to_state, moves[-1].reason) == (State.DEAD, "unwanted")
    assert await engine.claim((await engine.workers.register()).id, types=[job.type]) == []
    await assert_consistent(engine)
    return dict(job.error)


@in_each_without_cancel
@pytest.mark.parametrize("delay", [0, 5])
async def test_a_withdrawn_job_is_dead_when_its_worker_releases_it(
    engine: Engine, worker: str, machine: Machine, delay: float
) -> None:
    """What an interrupted handler reports, and one that wants to snooze. A repeat gets the same answer."""
    lease = await withdrawn(engine, worker, machine)
    for _ in range(2):
        assert (await engine.release(worker, lease.id, lease.token, delay_seconds=delay)).state is State.DEAD
    error = await check_dead(engine, lease.id, "fail")
    assert error["context"] == {"control": "system.cancel", "attempt": 1, "workerId": worker}
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["failed"]
    with pytest.raises(LeaseLost):
        await engine.fail(worker, lease.id, lease.token, "unwanted")


@in_each_without_cancel
async def test_a_withdrawn_job_is_dead_when_its_worker_fails_it(engine: Engine, worker: str, machine: Machine) -> None:
    """Not retried, although the error is transient; what the handler reported on the way out is kept."""
    lease = await withdrawn(engine, worker, machine)
    for _ in range(2):
        answer = await engine.fail(worker, lease.id, lease.token, "E_STOPPED", "halfway", context={"page": 3})
        assert answer.state is State.DEAD
    context = (await check_dead(engine, lease.id, "fail"))["context"]
    assert (context["reported"], context["page"]) == ({"code": "E_STOPPED", "message": "halfway"}, 3)
    with pytest.raises(LeaseLost):
        await engine.fail(worker, lease.id, lease.token, "E_OTHER", "halfway", context={"page": 3})
    with pytest.raises(LeaseLost):
        await engine.release(worker, lease.id, lease.token)


async def test_the_error_of_a_withdrawn_job_fits_whatever_its_worker_reports(engine: Engine, worker: str) -> None:
    """The longest that can be stored otherwise, with the longest reason."""
    mine, lease = await run(engine, worker), await run(engine, worker, lifecycle="images")
    reason, code = "\N{GRINNING FACE}" * 200, "\N{CAT FACE}" * 200
    await engine.withdraw(worker, Withdrawal(id=mine.id, token=mine.token, target=lease.id, reason=reason))
    message, context = "\N{DOG FACE}" * engine.ctx.limits.error_max_chars, {"n": "x" * (16 * 1024 - 900)}
    assert (await engine.fail(worker, lease.id, lease.token, code, message, context=context)).state is State.DEAD
    error = (await engine.reads.get(lease.id)).error
    assert (error["code"], error["context"]["reported"]) == (reason, {"code": code, "message": message})


@in_each_without_cancel
async def test_a_withdrawn_job_is_dead_when_its_worker_crashes(engine: Engine, worker: str, machine: Machine) -> None:
    lease = await withdrawn(engine, worker, machine, instance="pod")
    [row] = await engine.maintenance.reap(gone=["pod"])
    assert row["id"] == lease.id
    assert (await check_dead(engine, lease.id, "reap"))["message"] == "the worker process crashed"
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["lost"]


@in_each_without_cancel
async def test_a_withdrawn_job_is_dead_when_its_lease_is_lost(
    engine: Engine, worker: str, clock: MovableClock, machine: Machine
) -> None:
    policy = {"lease_seconds": 5, "heartbeat_seconds": 1, "offline_seconds": 5, "cancel_grace_seconds": 900}
    lease = await withdrawn(engine, worker, machine, policy=policy)
    await engine.maintenance.reap()
    await sweep(engine, clock, 20)
    assert (await check_dead(engine, lease.id, "reap"))["message"] == "the lease expired without a heartbeat"


@in_each_without_cancel
async def test_a_withdrawal_that_the_worker_ignores_is_enforced_after_the_grace_period(
    engine: Engine, worker: str, clock: MovableClock, machine: Machine
) -> None:
    """C-7: it keeps sending heartbeats, and never stops."""
    lease = await withdrawn(engine, worker, machine, policy={"cancel_grace_seconds": 30})
    for _ in range(2):
        await sweep(engine, clock, 10)
        assert (await engine.heartbeat(worker, [held(lease)])).cancel == [lease.id]
    await sweep(engine, clock, 9)
    assert (await engine.reads.get(lease.id)).state is State.RUNNING
    await sweep(engine, clock, 1)

    error = await check_dead(engine, lease.id, "reap")
    assert error["message"] == "the worker did not stop the job within the grace period of a cancel"
    assert (await engine.heartbeat(worker, [held(lease)])).lost == [lease.id]
    with pytest.raises(LeaseLost):
        await engine.complete(worker, lease.id, lease.token)


@in_each_without_cancel
async def test_a_withdrawn_job_whose_handler_completes_first_has_succeeded(
    engine: Engine, worker: str, clock: MovableClock, machine: Machine
) -> None:
    lease = await withdrawn(engine, worker, machine)
    assert (await engine.complete(worker, lease.id, lease.token, {"n": 1})).state is State.SUCCEEDED
    await sweep(engine, clock, 60)
    assert (await engine.reads.get(lease.id)).state is State.SUCCEEDED


async def test_one_batch_settles_withdrawn_canceled_and_other_jobs(engine: Engine, worker: str) -> None:
    """Each by its own lifecycle, in one transaction."""
    mine = await run(engine, worker)
    names = ("default", "default", "images", "images", "orchestration")
    leases = [await run(engine, worker, lifecycle=name) for name in names]
    for lease in (leases[0], leases[2], leases[4]):
        await engine.withdraw(worker, asked(mine, lease.id))
    answers = await engine.release_many(worker, [Release(id=each.id, token=each.token) for each in leases])
    states = [State.CANCELED, State.QUEUED, State.DEAD, State.QUEUED, State.DEAD]
    assert [answer.state for answer in answers if isinstance(answer, Settled)] == states
    assert (await engine.reads.get(leases[0].id)).error is None


async def test_withdraw_refuses_a_created_job_that_its_lifecycle_cannot_end(engine: Engine, worker: str) -> None:
    words = {"created": "new", "queued": "q", "running": "r", "succeeded": "s", "dead": "d"}
    moves = [
        "accept: created -> queued by api",
        "claim: queued -> running by worker",
        "complete: running -> succeeded by worker",
        "fail: running -> dead by worker",
        "release: running -> queued by worker",
        "reap: running -> dead by system",
    ]
    engine.ctx.lifecycles.declare(Machine("stubborn", words=words, moves=moves))
    mine = await run(engine, worker)
    made = await engine.create(NewJob(type="n", lifecycle="stubborn"), accept=False)
    with pytest.raises(IllegalMove):
        await engine.withdraw(worker, asked(mine, made.id))


async def test_lock_job_and_claim_found_affect_only_the_named_jobs(engine: Engine, worker: str) -> None:
    first, second, canceled, hooked = await engine.create_many([NewJob(type="n") for _ in range(4)])
    await engine.cancel(canceled.id)
    await ask(engine, "UPDATE holdfast_jobs SET needs = '[\"toy\"]' WHERE id = :id RETURNING id", id=hooked.id)
    assert [row["id"] for row in await engine.store.write(lambda tx: tx.all(q.lock_job, id=first.id))] == [first.id]
    holder: dict[str, Any] = {
        "actor": "worker",
        "worker": worker,
        "instance": None,
        "limited": None,
        "token_prefix": UNKNOWN_ID[:-12],
    }
    ids = [first.id, canceled.id, hooked.id]
    claimed = await engine.store.write(lambda tx: tx.all(q.claim_found, ids=ids, **holder))
    assert [row["id"] for row in claimed] == [first.id]
    assert (await engine.reads.get(second.id)).state is State.QUEUED
