"""heartbeat and leases: time decides when a job may be reaped, the token decides which worker may write."""

from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, HeldLease, Progress
from holdfast.errors import Invalid, LeaseLost, NotFound
from holdfast.lifecycle import State
from holdfast.model import Liveness, NewJob
from tests.engine.steps import UNKNOWN_ID, held, run, stored, sweep


async def test_a_reaped_job_cannot_be_completed_by_its_old_holder(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    job = await engine.create(NewJob(type="echo"))
    [held] = await engine.claim(worker)
    clock.advance(31)
    await engine.maintenance.reap()

    with pytest.raises(LeaseLost):
        await engine.complete(worker, held.id, held.token)

    assert (await engine.reads.get(job.id)).state is State.RETRYING


async def test_one_heartbeat_renews_every_lease_of_a_worker(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-38, R002-12, R004-14: each by the lease time of its own job; no event is written."""
    short = await run(engine, worker)
    long = await run(engine, worker, lifecycle="images")
    events = [await engine.reads.history(lease.id) for lease in (short, long)]
    clock.advance(20)

    beat = await engine.heartbeat(worker, [held(short), held(long)])

    assert (beat.lost, beat.cancel, beat.enabled) == ([], [], True)
    assert beat.expires_at == {
        short.id: clock.now() + timedelta(seconds=30),
        long.id: clock.now() + timedelta(seconds=600),
    }
    row = await engine.reads.get(short.id)
    assert (row.lease_expires_at, row.updated_at) == (beat.expires_at[short.id], clock.now())
    assert [await engine.reads.history(lease.id) for lease in (short, long)] == events


async def test_a_heartbeat_lists_lost_leases_and_renews_the_rest(engine: Engine, worker: str) -> None:
    """L4: ended, unknown, of another worker, never issued: all are lost, none is an error."""
    kept, done = [await run(engine, worker) for _ in range(2)]
    await engine.complete(worker, done.id, done.token)
    other = (await engine.workers.register()).id
    theirs = await run(engine, other)

    gone = [
        held(done),
        held(theirs),
        HeldLease(kept.id, UNKNOWN_ID),
        HeldLease(UNKNOWN_ID, UNKNOWN_ID),
        HeldLease("no id", "no token"),
    ]
    beat = await engine.heartbeat(worker, [held(kept), *gone])

    assert beat.lost == [lease.id for lease in gone]
    assert list(beat.expires_at) == [kept.id]


async def test_a_report_names_its_lease_in_heartbeats_and_polls(engine: Engine, worker: str) -> None:
    """A report is a lease with further fields, which neither make it lost nor need to be hashable."""
    lease = await run(engine, worker)
    reports = [Progress(lease.id, lease.token), Complete(lease.id, lease.token, {"n": 1})]
    for report in reports:
        assert (await engine.heartbeat(worker, [report])).lost == []
        assert await engine.polls.to_stop(worker, [report]) == []
        assert [found.token for found in await engine.polls.leases([report])] == [lease.token]


async def test_an_expired_lease_that_was_not_reaped_still_belongs_to_its_worker(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-29: a beat renews it, and complete and fail are accepted."""
    renewed, completed, failed = [await run(engine, worker) for _ in range(3)]
    clock.advance(3600)

    assert (await engine.heartbeat(worker, [held(renewed)])).lost == []
    await engine.complete(worker, completed.id, completed.token)
    await engine.fail(worker, failed.id, failed.token, "E_LATE")

    states = [(await engine.reads.get(lease.id)).state for lease in (renewed, completed, failed)]
    assert states == [State.RUNNING, State.SUCCEEDED, State.RETRYING]
    assert await engine.maintenance.reap() == []


async def test_transcode_refuses_late_writes_but_accepts_a_late_heartbeat(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-29, R003-53, R003-59, R003-109, R003-153: progress, complete and fail need a lease that has not run out."""
    lease = await run(engine, worker, lifecycle="transcode")
    clock.advance(1800)
    before = await stored(engine, lease.id)
    for late in (
        engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=1)),
        engine.progress(worker, Progress(id=lease.id, token=lease.token, counters={"n": 1})),
        engine.complete(worker, lease.id, lease.token),
        engine.fail(worker, lease.id, lease.token, "E_LATE"),
        engine.fail(worker, lease.id, lease.token, "E_LATE", permanent=True),
    ):
        with pytest.raises(LeaseLost, match="late writes"):
            await late
        assert await stored(engine, lease.id) == before

    assert (await engine.heartbeat(worker, [held(lease)])).lost == []
    await engine.complete(worker, lease.id, lease.token)
    assert (await engine.reads.get(lease.id)).state is State.SUCCEEDED


async def test_a_write_one_microsecond_before_the_expiry_is_accepted(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    lease = await run(engine, worker, lifecycle="transcode")
    clock.advance(1799.999999)
    await engine.complete(worker, lease.id, lease.token)
    assert (await engine.reads.get(lease.id)).state is State.SUCCEEDED


async def test_lease_lost_reports_whether_the_job_was_reassigned(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R003-109, R003-154: so that a worker abandons what is with another, and discards its result."""
    lease = await run(engine, worker)
    await sweep(engine, clock, 40)
    with pytest.raises(LeaseLost) as lost:
        await engine.complete(worker, lease.id, lease.token)
    assert (lost.value.code, lost.value.fields["reassigned"]) == ("lease_lost", False)

    other = (await engine.workers.register()).id
    assert len(await engine.claim(other)) == 1
    with pytest.raises(LeaseLost) as lost:
        await engine.complete(worker, lease.id, lease.token)
    assert lost.value.fields == {"job_id": lease.id, "reassigned": True}


async def test_heartbeat_and_progress_report_a_cancel_request(engine: Engine, worker: str) -> None:
    """C-7, R002-29: so does progress; asking twice is harmless."""
    lease, other = [await run(engine, worker) for _ in range(2)]
    asked = await engine.cancel(lease.id)
    assert (asked.canceled, asked.state) == (False, State.RUNNING)
    before = await stored(engine, lease.id)
    await engine.cancel(lease.id)
    assert await stored(engine, lease.id) == before

    assert (await engine.heartbeat(worker, [held(lease), held(other)])).cancel == [lease.id]
    assert (await engine.progress(worker, Progress(id=lease.id, token=lease.token))).cancel_requested
    assert not (await engine.progress(worker, Progress(id=other.id, token=other.token))).cancel_requested


async def test_a_heartbeat_of_an_unknown_worker_is_not_found_and_renews_nothing(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    lease = await run(engine, worker)
    clock.advance(5)
    before = await stored(engine, lease.id)
    with pytest.raises(NotFound):
        await engine.heartbeat(UNKNOWN_ID, [held(lease)])
    assert await stored(engine, lease.id) == before


async def test_a_malformed_worker_id_is_rejected_by_every_verb(engine: Engine, worker: str) -> None:
    """Bad input: the same typed error on both stores, and nothing written."""
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for write in (
        lambda: engine.heartbeat("me", [held(lease)]),
        lambda: engine.progress("me", Progress(id=lease.id, token=lease.token)),
        lambda: engine.complete("me", lease.id, lease.token),
        lambda: engine.fail("me", lease.id, lease.token, "E"),
        lambda: engine.release("me", lease.id, lease.token),
        lambda: engine.reject("me", lease.id, lease.token, "E"),
    ):
        with pytest.raises(Invalid) as refused:
            await write()
        assert refused.value.code == "invalid_field"
    assert await stored(engine, lease.id) == before


async def test_a_heartbeat_sets_the_liveness_of_the_worker(engine: Engine, worker: str) -> None:
    """R003-25, R003-29: busy with leases, idle without, or what it says itself."""

    async def liveness() -> Liveness:
        [found] = [w for w in await engine.workers.all() if w.id == worker]
        return found.liveness

    assert await liveness() is Liveness.ACTIVE
    lease = await run(engine, worker)
    await engine.heartbeat(worker, [held(lease)], slots=4)
    assert await liveness() is Liveness.BUSY
    await engine.complete(worker, lease.id, lease.token)
    await engine.heartbeat(worker, [])
    assert await liveness() is Liveness.IDLE
    await engine.heartbeat(worker, [], liveness=Liveness.ACTIVE)
    assert await liveness() is Liveness.ACTIVE
    assert (await engine.workers.all())[0].slots == 4, "kept when a beat does not mention it"
