"""reap: attempts that ended without a report. Bounded, without a leader, and with a grace period after an outage."""

import asyncio
from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Progress
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob
from holdfast.store import open_store
from tests.engine.steps import held, run, stored, sweep


async def test_the_first_lost_lease_is_retried_without_backoff(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-12, C-14, C-28, C-41, R001-23, R001-72, R002-43, R003-104, R003-155: counted, recorded, without backoff."""
    lease = await run(engine, worker, instance="pod-1")
    assert await sweep(engine, clock, 29.999) == []
    [row] = await sweep(engine, clock, 0.001)

    assert (row["id"], row["state"]) == (lease.id, "retrying")
    job = await engine.reads.get(lease.id)
    assert (job.state, job.reason, job.lost, job.failures) == (State.RETRYING, "lease_expired", 1, 0)
    assert (job.run_at, job.error["code"]) == (clock.now(), "timeout_soft")
    assert (job.lease_token, job.lease_worker) == (None, None)
    [attempt] = await engine.reads.attempts(lease.id)
    assert (attempt.outcome, attempt.worker_id, attempt.instance, attempt.token) == (
        "lost",
        worker,
        "pod-1",
        lease.token,
    )
    event = (await engine.reads.history(lease.id))[-1]
    assert (event.verb, event.from_state, event.to_state, event.actor) == ("reap", "running", "retrying", "system")
    [again] = await engine.claim(worker)
    assert (again.attempt, again.lost) == (2, 1)


async def test_the_second_loss_backs_off_and_the_third_marks_the_job_as_poison(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-14, H1, K18: a job that kills its workers cannot loop for ever, whatever its attempts."""
    lease = await run(engine, worker, max_attempts=100)
    await sweep(engine, clock, 30)
    [lease] = await engine.claim(worker)
    await sweep(engine, clock, 30)
    waits = (await engine.reads.get(lease.id)).run_at - clock.now()
    assert timedelta(0) < waits <= timedelta(seconds=2), "the first loss was free; this one backs off"
    await sweep(engine, clock, 10)
    [lease] = await engine.claim(worker)
    [row] = await sweep(engine, clock, 30)

    assert (row["state"], row["reason"]) == ("dead", "poison")
    job = await engine.reads.get(lease.id)
    assert (job.lost, job.error["code"], job.attempt) == (3, "poison", 3)
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["lost"] * 3


async def test_losses_are_counted_across_good_attempts(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-14, C-28: a failure in between does not forgive them, nor does it make the first loss wait."""
    lease = await run(engine, worker, max_attempts=100, policy={"max_lost": 2})
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    await sweep(engine, clock, 30)
    assert (await engine.reads.get(lease.id)).run_at == clock.now()
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    [row] = await sweep(engine, clock, 30)
    assert (row["state"], row["reason"]) == ("dead", "poison")


async def test_exceeding_the_maximum_runtime_does_not_count_as_a_loss(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-14, C-34: a slow job is not a deadly one, however often; only lost leases make poison."""
    await engine.create(NewJob(type="slow", max_attempts=10, policy={"max_runtime_seconds": 20, "lease_seconds": 600}))
    for _ in range(4):
        await sweep(engine, clock, 10)
        [lease] = await engine.claim(worker)
        [row] = await sweep(engine, clock, 20)
        assert (row["state"], row["reason"]) == ("retrying", "max_runtime")
    assert (await engine.reads.get(lease.id)).lost == 0


@pytest.mark.parametrize("lifecycle", ["default", "crawl", "orchestration"])
async def test_a_loss_on_the_last_attempt_ends_with_e_timeout(
    engine: Engine, worker: str, clock: MovableClock, lifecycle: str
) -> None:
    """C-41, R002-12: attempts used up is dead with E_TIMEOUT; in orchestration by way of RETRY."""
    lease = await run(engine, worker, lifecycle=lifecycle, max_attempts=1)
    [row] = await sweep(engine, clock, 90)

    job = await engine.reads.get(lease.id)
    assert (row["state"], job.state, job.reason) == ("dead", State.DEAD, "E_TIMEOUT")
    assert job.error["code"] == "E_TIMEOUT"
    path = [
        (event.from_state, event.to_state) for event in await engine.reads.history(lease.id) if event.verb == "reap"
    ]
    through = [("running", "retrying"), ("retrying", "dead")]
    assert path == (through if lifecycle == "orchestration" else [("running", "dead")])
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["lost"]


async def test_an_images_job_is_reaped_after_ten_minutes(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R000-39..41, R000-47, C-10."""
    lease = await run(engine, worker, lifecycle="images")
    assert await sweep(engine, clock, 590) == []
    assert [row["id"] for row in await sweep(engine, clock, 10)] == [lease.id]


async def test_a_job_with_timely_heartbeats_is_not_reaped(engine: Engine, worker: str, clock: MovableClock) -> None:
    """L3."""
    lease = await run(engine, worker)
    for _ in range(30):
        assert await sweep(engine, clock, 29) == []
        assert (await engine.heartbeat(worker, [held(lease)])).lost == []
    assert (await engine.reads.get(lease.id)).attempt == 1


# -- grace periods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "grace"), [(19, 0), (20, 20), (45, 45), (120, 120), (86_400, 120)])
async def test_after_a_gap_in_sweeps_expired_leases_get_a_grace_period(
    engine: Engine, worker: str, clock: MovableClock, gap: float, grace: float
) -> None:
    """C-28, H6, R003-84, R003-108, R003-156: as long as the gap was, at most 120 s; a short one gives none."""
    await engine.maintenance.reap()
    lease = await run(engine, worker, policy={"lease_seconds": 10, "heartbeat_seconds": 5})
    clock.advance(gap)
    freed = await engine.maintenance.reap()
    if not grace:
        assert [row["id"] for row in freed] == [lease.id]
        return
    assert freed == []
    assert await sweep(engine, clock, grace - 0.001) == []
    assert await engine.claim(worker) == [], "a claim does not reap either"
    assert [row["id"] for row in await sweep(engine, clock, 0.001)] == [lease.id]


@pytest.mark.parametrize("apart", [20, 30, 60, 121, 600])
async def test_sweeps_far_apart_still_recover_the_job_of_a_lost_worker(
    engine: Engine, worker: str, clock: MovableClock, apart: float
) -> None:
    """No grace begins within a grace: the first sweep after it finds the lease over, and it lasts 120 s at most."""
    await engine.maintenance.reap()
    lease = await run(engine, worker)
    freed = []
    for _ in range(2 + int(120 // apart)):
        clock.advance(apart)
        freed += await engine.maintenance.reap()
    assert [row["id"] for row in freed] == [lease.id]


async def test_a_process_start_does_not_begin_a_grace_period(
    engine: Engine, worker: str, clock: MovableClock, store_url: str
) -> None:
    """C-28: the time of the last sweep is in the database; only a gap in which no process swept counts."""
    lease = await run(engine, worker)
    await sweep(engine, clock, 25)
    second = Engine(await open_store(store_url, clock, SeededIds(8)), clock=clock, ids=SeededIds(8))
    clock.advance(5)

    assert [row["id"] for row in await second.maintenance.reap()] == [lease.id]
    await second.close()


async def test_a_heartbeat_during_the_grace_saves_the_job(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R003-108: after an outage of an hour, a live worker renews its lease before the grace period ends."""
    await engine.maintenance.reap()
    alive, dead = [await run(engine, worker) for _ in range(2)]
    clock.advance(3600)
    assert await engine.maintenance.reap() == []
    assert (await engine.heartbeat(worker, [held(alive)])).lost == []
    for _ in range(12):
        await sweep(engine, clock, 10)
        await engine.heartbeat(worker, [held(alive)])

    states = [(await engine.reads.get(lease.id)).state for lease in (alive, dead)]
    assert states == [State.RUNNING, State.RETRYING]


async def test_jobs_of_an_instance_reported_as_gone_are_reaped_immediately(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-28: no waiting for the lease, the grace, or an offline worker in transcode; others are not touched."""
    await engine.maintenance.reap()
    plain = await run(engine, worker, instance="dead")
    video = await run(engine, worker, instance="dead", lifecycle="transcode")
    other = await run(engine, worker, instance="alive")
    nameless = await run(engine, worker)
    clock.advance(25)

    rows = await engine.maintenance.reap(gone=["dead", "unheard of"])

    assert {row["id"] for row in rows} == {plain.id, video.id}
    assert (await engine.reads.get(video.id)).reason == "worker_died"
    for lease in (other, nameless):
        assert (await engine.reads.get(lease.id)).state is State.RUNNING


# -- transcode --------------------------------------------------------------------------------------------------------


async def reporting(engine: Engine, worker: str, clock: MovableClock, lease: Lease, seconds: float) -> None:
    """Time passes; the job reports, so its lease and its progress are fresh."""
    await sweep(engine, clock, seconds)
    await engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=1))


async def test_transcode_needs_an_expired_lease_and_a_silent_worker(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-11, R003-87, R003-90, R003-105, R003-147: each alone frees nothing; both together do."""
    policy = {"lease_seconds": 60, "no_progress_seconds": 100_000}
    lease = await run(engine, worker, lifecycle="transcode", policy=policy)
    await engine.heartbeat(worker, [])
    await sweep(engine, clock, 290)
    assert (await engine.reads.get(lease.id)).state is State.RUNNING, "the lease ran out, the worker was heard of"
    await engine.heartbeat(worker, [])
    await sweep(engine, clock, 290)
    assert (await engine.reads.get(lease.id)).state is State.RUNNING
    await engine.heartbeat(worker, [held(lease)])

    long = await run(engine, worker, lifecycle="transcode", policy={"lease_seconds": 1000})
    assert await sweep(engine, clock, 290) == []
    rows = await sweep(engine, clock, 10)
    assert [row["id"] for row in rows] == [lease.id], "silent for 300 s; only the other one's lease ran out"
    assert (await engine.reads.get(long.id)).state is State.RUNNING


async def test_a_worker_without_heartbeats_counts_from_its_registration(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R003-111, C-11: null heartbeat."""
    lease = await run(engine, worker, lifecycle="transcode", policy={"lease_seconds": 60})
    assert await sweep(engine, clock, 290) == []
    assert [row["id"] for row in await sweep(engine, clock, 10)] == [lease.id]


async def test_a_job_without_progress_is_reaped_despite_heartbeats(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-11, C-34, H2, R003-49, R003-139: without progress for 1800 s the job is freed, whatever the heartbeats say."""
    lease = await run(engine, worker, lifecycle="transcode")
    await reporting(engine, worker, clock, lease, 900)
    for _ in range(179):
        await sweep(engine, clock, 10)
        await engine.heartbeat(worker, [held(lease)])
    assert (await engine.reads.get(lease.id)).state is State.RUNNING
    [row] = await sweep(engine, clock, 10)

    assert (row["id"], row["reason"]) == (lease.id, "no_progress")


async def test_a_job_over_its_maximum_runtime_is_reaped_despite_progress(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-34, R002-44: 300 s wall clock in crawl, counted from the claim, also while progress comes."""
    lease = await run(engine, worker, lifecycle="crawl", max_attempts=2)
    for _ in range(29):
        await reporting(engine, worker, clock, lease, 10)
    [row] = await sweep(engine, clock, 10)
    assert (row["state"], row["reason"]) == ("retrying", "max_runtime")

    await sweep(engine, clock, 10)
    [lease] = await engine.claim(worker)
    for _ in range(29):
        await reporting(engine, worker, clock, lease, 10)
    [row] = await sweep(engine, clock, 10)
    assert (row["state"], row["reason"]) == ("dead", "E_TIMEOUT"), "no poison: nothing was killed"


# -- many -------------------------------------------------------------------------------------------------------------


async def test_reap_finds_an_expired_lease_behind_a_full_batch_of_valid_ones(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """K2 (river#1318): ineligible rows before an eligible one, more of them than a batch holds."""
    engine.ctx.limits = EngineLimits(sweep_batch=10)
    await engine.create_many([NewJob(type="n") for _ in range(101)])
    leases = sorted(await engine.claim(worker, limit=101), key=lambda lease: lease.id)
    clock.advance(29)
    await engine.heartbeat(worker, [held(lease) for lease in leases[:100]])
    clock.advance(1)

    assert [row["id"] for row in await engine.maintenance.reap()] == [leases[100].id]


async def test_reaping_is_bounded_per_call(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.create_many([NewJob(type="n") for _ in range(7)])
    await engine.claim(worker, limit=7)
    clock.advance(30)

    assert [len(await engine.maintenance.reap(limit=3)) for _ in range(4)] == [3, 3, 1, 0]


async def test_concurrent_reapers_reap_each_job_once(engine: Engine, worker: str, clock: MovableClock) -> None:
    """K6: together they do the work of one."""
    await engine.create_many([NewJob(type="n") for _ in range(60)])
    leases = await engine.claim(worker, limit=60)
    clock.advance(30)

    reaped = [
        row["id"] for rows in await asyncio.gather(*(engine.maintenance.reap() for _ in range(6))) for row in rows
    ]

    assert sorted(reaped) == sorted(lease.id for lease in leases)
    assert {(await engine.reads.get(job_id)).lost for job_id in reaped} == {1}


async def test_a_sweep_of_some_queues_leaves_the_others_alone(engine: Engine, worker: str, clock: MovableClock) -> None:
    one, other = await run(engine, worker, queue="a"), await run(engine, worker, queue="b")
    clock.advance(30)
    before = await stored(engine, other.id)

    assert [row["id"] for row in await engine.maintenance.reap(queues=["a", "c"])] == [one.id]
    assert await stored(engine, other.id) == before


async def test_a_process_that_renewed_after_it_was_reported_gone_keeps_its_other_jobs(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    policy = {"max_runtime_seconds": 20}
    slow, other = await run(engine, worker, instance="a", policy=policy), await run(engine, worker, instance="a")
    clock.advance(20)
    await engine.heartbeat(worker, [held(slow), held(other)])
    clock.advance(3)
    assert [(row["id"], row["reason"]) for row in await engine.maintenance.reap(gone=["a"], unheard_seconds=4)] == [
        (slow.id, "max_runtime")
    ]
    assert [row["id"] for row in await engine.maintenance.reap(gone=["a"], unheard_seconds=3)] == [other.id]
