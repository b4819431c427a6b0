"""cancel, requeue, discard, redrive: what operators and clients do to jobs."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits
from holdfast.errors import Conflict, IllegalMove, Invalid, LeaseLost, NotFound
from holdfast.lifecycle import Actor, Lifecycles, State
from holdfast.model import NewJob
from tests.engine.steps import bring, held, run, stored, sweep

# -- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.CREATED, State.QUEUED, State.RETRYING])
async def test_a_job_that_is_not_running_is_canceled_immediately(
    engine: Engine, worker: str, clock: MovableClock, state: State
) -> None:
    """C-7, R002-8, R002-16, R002-29, S9: also one that waits for a retry; it never runs again."""
    job = await bring(engine, worker, Lifecycles()["default"], state)
    asked = await engine.cancel(job.id, reason="changed my mind")

    assert asked.canceled
    row = await engine.reads.get(job.id)
    assert (row.state, row.reason, row.cancel_requested_at) == (State.CANCELED, "changed my mind", clock.now())
    event = (await engine.reads.history(job.id))[-1]
    assert (event.verb, event.from_state, event.actor) == ("cancel", state, "client")
    assert await engine.accept(job.id) == []
    clock.advance(3600)
    assert await engine.claim(worker) == []
    before = await stored(engine, job.id)
    assert (await engine.cancel(job.id)).canceled, "again is harmless"
    assert await stored(engine, job.id) == before


async def test_a_cancel_request_for_a_running_job_is_stored(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-7, R000-24: an event with the actor, and a mark on the row; the job stays with its worker."""
    lease = await run(engine, worker)
    asked = await engine.cancel(lease.id, actor=Actor.API, reason="too expensive")

    assert not asked.canceled
    row = await engine.reads.get(lease.id)
    assert (row.state, row.cancel_requested_at, row.reason) == (State.RUNNING, clock.now(), "too expensive")
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.actor, event.reason) == ("cancel", "api", "too expensive")
    assert (event.from_state, event.to_state) == (None, None)


@pytest.mark.parametrize("end", ["fail", "fail for good", "release", "snooze"])
async def test_a_running_job_with_a_cancel_request_becomes_canceled_when_its_worker_fails_or_releases_it(
    engine: Engine, worker: str, end: str
) -> None:
    """R002-30, R002-31: canceled, not retried; what it reported on the way out is kept. A repeat says the same."""
    lease = await run(engine, worker)
    await engine.cancel(lease.id, reason="stop")

    async def obey() -> State:
        if end.startswith("fail"):
            permanent = end == "fail for good"
            return (await engine.fail(worker, lease.id, lease.token, "E_STOPPED", "halfway", permanent=permanent)).state
        return (await engine.release(worker, lease.id, lease.token, delay_seconds=5 * (end == "snooze"))).state

    assert await obey() is State.CANCELED
    assert await obey() is State.CANCELED
    row = await engine.reads.get(lease.id)
    assert (row.state, row.reason) == (State.CANCELED, "stop")
    assert (row.error or {}).get("message") == ("halfway" if end.startswith("fail") else None)
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["canceled"]
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.from_state, event.to_state, event.actor) == ("cancel", "running", "canceled", "worker")


async def test_a_canceled_attempt_records_its_own_error_and_repeats_only_its_own_verb(
    engine: Engine, worker: str
) -> None:
    """S14, C-30: not the error of the run before; and what was told as a failure is not a release."""
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_BEFORE", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    await engine.cancel(lease.id)
    await engine.release(worker, lease.id, lease.token)
    assert [attempt.error and attempt.error["code"] for attempt in await engine.reads.attempts(lease.id)] == [
        "E_BEFORE",
        None,
    ]
    with pytest.raises(LeaseLost):
        await engine.fail(worker, lease.id, lease.token, "E_BEFORE")

    failed = await run(engine, worker)
    await engine.cancel(failed.id)
    await engine.fail(worker, failed.id, failed.token, "E_STOPPED")
    with pytest.raises(LeaseLost):
        await engine.release(worker, failed.id, failed.token)


async def test_a_job_completed_after_a_cancel_request_has_succeeded(engine: Engine, worker: str) -> None:
    """Best effort: the work is done and the request came too late; canceling it then is a conflict."""
    lease = await run(engine, worker)
    await engine.cancel(lease.id)
    await engine.complete(worker, lease.id, lease.token, {"n": 1})

    assert (await engine.reads.get(lease.id)).state is State.SUCCEEDED
    with pytest.raises(Conflict) as refused:
        await engine.cancel(lease.id)
    assert refused.value.code == "already_final"


async def test_a_cancel_request_that_the_worker_ignores_is_enforced_after_the_grace_period(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-7: the worker ignores the request and keeps sending heartbeats; after 30 s maintenance takes the job."""
    lease = await run(engine, worker)
    await engine.cancel(lease.id)
    for _ in range(2):
        await sweep(engine, clock, 10)
        assert (await engine.heartbeat(worker, [held(lease)])).cancel == [lease.id]
    await sweep(engine, clock, 9)
    assert (await engine.reads.get(lease.id)).state is State.RUNNING

    await sweep(engine, clock, 1)

    row = await engine.reads.get(lease.id)
    assert (row.state, row.reason) == (State.CANCELED, "cancel_not_obeyed")
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.to_state, event.actor) == ("reap", "canceled", "system")
    assert (await engine.heartbeat(worker, [held(lease)])).lost == [lease.id]
    with pytest.raises(LeaseLost):
        await engine.complete(worker, lease.id, lease.token)


async def test_a_canceled_job_whose_worker_died_ends_canceled(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker, instance="pod", policy={"cancel_grace_seconds": 900})
    await engine.cancel(lease.id)
    await sweep(engine, clock, 30)

    row = await engine.reads.get(lease.id)
    assert (row.state, row.reason, row.lost) == (State.CANCELED, "lease_expired", 1)


@pytest.mark.parametrize("lifecycle", ["images", "transcode", "orchestration"])
async def test_a_lifecycle_without_cancel_refuses_it_in_every_state(
    engine: Engine, worker: str, lifecycle: str
) -> None:
    """R000-24, C-7: there it is asked for by creating a job of another type."""
    machine = Lifecycles()[lifecycle]
    for state in (State.QUEUED, State.RUNNING, State.RETRYING):
        job = await bring(engine, worker, machine, state)
        before = await stored(engine, job.id)
        with pytest.raises(IllegalMove) as refused:
            await engine.cancel(job.id)
        assert refused.value.code == "illegal_move"
        assert await stored(engine, job.id) == before


async def test_a_tenant_cannot_cancel_another_tenants_job(engine: Engine) -> None:
    job = await engine.create(NewJob(type="n", tenant="a"))
    with pytest.raises(NotFound):
        await engine.cancel(job.id, tenant="b")
    assert (await engine.cancel(job.id, tenant="a")).canceled


async def test_a_reason_that_cannot_be_stored_is_refused(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker, lifecycle="default")
    await engine.fail(worker, lease.id, lease.token, "E")
    before = await stored(engine, lease.id)
    for verb in (engine.cancel, engine.requeue, engine.discard):
        with pytest.raises(Invalid):
            await verb(lease.id, reason="\x00")
    assert await stored(engine, lease.id) == before


# -- requeue ----------------------------------------------------------------------------------------------------------


async def test_a_retry_that_is_due_is_queued_again(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-2, R001-14, R001-20, R004-5, R004-22: by the system, when its backoff is over and not before."""
    lease = await run(engine, worker, lifecycle="orchestration")
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=10)
    clock.advance(9)
    assert await engine.maintenance.requeue_due() == 0
    clock.advance(1)

    assert await engine.maintenance.requeue_due() == 1

    assert (await engine.reads.get(lease.id)).state is State.QUEUED
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.from_state, event.to_state, event.actor) == ("requeue", "retrying", "queued", "system")
    assert await engine.maintenance.requeue_due() == 0


async def test_requeue_is_bounded_per_call(engine: Engine, worker: str, clock: MovableClock) -> None:
    engine.ctx.limits = EngineLimits(sweep_batch=3)
    await engine.create_many([NewJob(type="n", delay_seconds=1) for _ in range(7)])
    clock.advance(1)

    assert [await engine.maintenance.requeue_due() for _ in range(4)] == [3, 3, 1, 0]
    assert len(await engine.claim(worker, limit=9)) == 7


async def test_an_operator_can_requeue_a_retry_before_its_backoff_ends(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=3600)
    assert await engine.claim(worker) == []

    job = await engine.requeue(lease.id, actor=Actor.API, reason="fixed the origin")

    assert (job.state, job.reason, job.run_at) == (State.QUEUED, "fixed the origin", clock.now())
    assert [again.id for again in await engine.claim(worker)] == [lease.id]
    with pytest.raises(Conflict) as refused:
        await engine.requeue(lease.id)
    assert refused.value.code == "not_retrying"


# -- discard ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actor", [Actor.WORKER, Actor.SYSTEM])
async def test_a_retrying_job_can_be_discarded(engine: Engine, worker: str, actor: Actor) -> None:
    """R000-16, R000-32, C-23: 'delete' is a change of state, not of rows; by a worker or the system."""
    lease = await run(engine, worker, lifecycle="images")
    await engine.fail(worker, lease.id, lease.token, "E_DISK", "disk full", retry_after_seconds=0)

    assert await engine.discard(lease.id, actor=actor, reason="no longer wanted") == [lease.id]

    job = await engine.reads.get(lease.id)
    assert (job.state, job.reason, job.error["code"]) == (State.DEAD, "no longer wanted", "E_DISK")
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.from_state, event.to_state, event.actor) == ("fail", "retrying", "dead", actor)
    assert await engine.claim(worker) == []
    assert await engine.discard(lease.id) == []


# -- redrive ----------------------------------------------------------------------------------------------------------


async def test_a_redrive_creates_a_new_job_linked_to_the_original(engine: Engine, worker: str) -> None:
    """C-6, R001-15, R004-7: the old row is not touched; the policy and the lane are kept, the counts start again."""
    able = (await engine.workers.register(capabilities={"gpu": True})).id
    first = await run(
        engine,
        able,
        lifecycle="crawl",
        tenant="acme",
        queue="web",
        type="site",
        payload={"url": "x"},
        priority=5,
        max_attempts=2,
        policy={"lease_seconds": 77, "errors": {"E_ODD": "permanent"}},
        requires=["gpu"],
        tags=["t"],
        trace={"id": "1"},
        partition_key="p",
        idempotency_key="k",
    )
    await engine.fail(able, first.id, first.token, "E_ODD")
    before = await stored(engine, first.id)

    second = await engine.redrive(first.id)

    assert await stored(engine, first.id) == before
    job, old = await engine.reads.get(second.id), await engine.reads.get(first.id)
    for same in (
        "type",
        "tenant",
        "queue",
        "lifecycle",
        "payload",
        "priority",
        "max_attempts",
        "tags",
        "trace",
        "lane",
    ):
        assert getattr(job, same) == getattr(old, same), same
    assert (job.redrive_of, job.root_id, job.partition_key) == (first.id, first.id, "p")
    assert (job.attempt, job.failures, job.error, job.idempotency_key) == (0, 0, None, None)
    assert (await engine.reads.history(job.id))[0].actor == "api"
    assert await engine.claim(worker) == []
    [lease] = await engine.claim(able)
    assert (lease.expires_at - lease.claimed_at).total_seconds() == 77
    assert (await engine.fail(able, lease.id, lease.token, "E_ODD")).state is State.DEAD

    third = await engine.reads.get((await engine.redrive(second.id, payload={"url": "y"})).id)
    assert (third.redrive_of, third.root_id, third.payload) == (second.id, first.id, {"url": "y"})
