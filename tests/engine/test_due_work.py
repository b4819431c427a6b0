"""`polls.due_work`: each kind of maintenance work is reported when it is due, and not before."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, Rejection
from holdfast.engine.polls.due_work import DueWork
from holdfast.model import Liveness, NewJob
from tests.engine.steps import ask, run, sweep

DAY = 86_400.0


async def seen(engine: Engine) -> set[str]:
    found = await engine.polls.due_work(workers_kept=DAY, claims_kept=3600)
    return {name for name in DueWork.__struct_fields__ if getattr(found, name)}


@pytest.fixture(autouse=True)
async def swept(engine: Engine) -> None:
    await engine.maintenance.record_sweep()


async def test_no_work_is_due_when_nothing_has_expired(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.create(NewJob(type="waits"))
    await engine.create(NewJob(type="later", delay_seconds=60))
    await engine.create(NewJob(type="new", lifecycle="orchestration"), accept=False)
    clock.advance(4)
    assert await seen(engine) == set()


async def test_unswept_is_due_after_half_a_sweep_interval(engine: Engine, clock: MovableClock) -> None:
    clock.advance(5)
    assert await seen(engine) == {"unswept"}
    await engine.maintenance.record_sweep()
    assert await seen(engine) == set()
    clock.advance(5)
    await engine.maintenance.reap()
    assert await seen(engine) == set()


async def test_a_sweep_of_another_kind_does_not_count_as_a_reap(engine: Engine, clock: MovableClock) -> None:
    await ask(engine, "UPDATE holdfast_sweeps SET name = 'another' RETURNING name")
    assert await seen(engine) == {"unswept"}
    await engine.maintenance.record_sweep()
    assert await seen(engine) == set()


async def test_a_delayed_job_is_due_work_once_its_delay_is_over(engine: Engine, clock: MovableClock) -> None:
    await engine.create(NewJob(type="soon", delay_seconds=3))
    clock.advance(2.9)
    assert await seen(engine) == set()
    clock.advance(0.1)
    assert await seen(engine) == {"ripe"}
    await engine.maintenance.requeue_due()
    assert await seen(engine) == set()


async def test_a_running_job_is_due_work_even_before_its_lease_expires(engine: Engine, worker: str) -> None:
    """A clock of its policy may be over, or its process be dead."""
    lease = await run(engine, worker)
    assert await seen(engine) == {"running"}
    await engine.complete(worker, lease.id, lease.token)
    assert await seen(engine) == set()


async def test_an_unaccepted_job_is_an_orphan_after_a_minute(engine: Engine, clock: MovableClock) -> None:
    await engine.create(NewJob(type="new", lifecycle="orchestration"), accept=False)
    clock.advance(59)
    await engine.maintenance.record_sweep()
    assert await seen(engine) == set()
    clock.advance(1)
    assert await seen(engine) == {"orphans"}
    await engine.maintenance.accept_orphans()
    assert await seen(engine) == set()


async def test_a_worker_without_heartbeats_is_due_as_silent_and_a_day_later_for_removal(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """A worker that sends heartbeats is neither."""
    other = (await engine.workers.register()).id
    await engine.heartbeat(worker, [])
    await engine.heartbeat(other, [], liveness=Liveness.OFFLINE)
    clock.advance(89)
    await engine.maintenance.record_sweep()
    assert await seen(engine) == set()
    clock.advance(1)
    await engine.maintenance.record_sweep()
    assert await seen(engine) == {"silent"}
    await engine.heartbeat(worker, [])
    assert await seen(engine) == set()
    clock.advance(DAY)
    await engine.heartbeat(worker, [])
    await engine.maintenance.record_sweep()
    assert await seen(engine) == {"forgotten"}
    await engine.maintenance.forget_workers(DAY)
    assert await seen(engine) == set()


async def test_a_silent_worker_is_marked_offline_before_it_is_removed(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    clock.advance(2 * DAY)
    await sweep(engine, clock, 130)
    assert await seen(engine) == {"silent"}
    await engine.maintenance.mark_silent_workers()
    assert await seen(engine) == {"forgotten"}


async def test_remote_and_disabled_workers_are_not_due_for_removal(engine: Engine, clock: MovableClock) -> None:
    remote, switched_off = (await engine.workers.register(kind="remote")).id, (await engine.workers.register()).id
    await engine.workers.disable(switched_off)
    for worker in (remote, switched_off):
        await engine.heartbeat(worker, [], liveness=Liveness.OFFLINE)
    clock.advance(2 * DAY)
    await engine.maintenance.record_sweep()
    assert await seen(engine) == set()


async def test_an_old_claim_request_is_due_for_pruning(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim_once(worker, "r-1") or []
    await engine.complete(worker, lease.id, lease.token)
    clock.advance(3599)
    await engine.heartbeat(worker, [])
    await engine.maintenance.record_sweep()
    await engine.maintenance.drop_claim_batches()
    assert await seen(engine) == set()
    clock.advance(1)
    assert await seen(engine) == {"claims"}
    await engine.maintenance.prune_claim_requests(3600)
    assert await seen(engine) == set()


async def test_an_expired_session_is_due_for_pruning(engine: Engine, clock: MovableClock) -> None:
    await engine.sessions.begin("k", 60)
    await engine.sessions.begin("k", 120)
    assert await seen(engine) == set()
    clock.advance(60)
    await engine.maintenance.record_sweep()
    assert await seen(engine) == {"sessions"}
    assert await engine.sessions.prune() == 1
    assert await seen(engine) == set()


async def note(engine: Engine, worker: str, *, times: int) -> None:
    """Record so many worker events at the same time."""
    for number in range(times):
        await engine.heartbeat(worker, [], liveness=(Liveness.ACTIVE, Liveness.IDLE)[number % 2])
        await engine.maintenance.record_worker_events()
    await engine.maintenance.record_sweep()


async def test_old_worker_events_are_due_for_pruning_except_the_last_one(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await note(engine, worker, times=1)
    clock.advance(DAY)
    await note(engine, worker, times=1)
    assert await seen(engine) == set(), "the next takes its number from it"
    await note(engine, worker, times=2)
    assert await seen(engine) == {"lines"}
    await engine.maintenance.prune_worker_events()
    assert await seen(engine) == set()


async def test_worker_events_are_due_by_the_age_of_that_workers_own_events(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """Neither by those of jobs, which are older, nor by another worker's, of which there are more or earlier ones."""
    job = await engine.create(NewJob(type="waits"))
    clock.advance(DAY)
    await note(engine, worker, times=2)
    assert await seen(engine) == set()
    await engine.reject_queued(Rejection(id=job.id, token="", code="E_OVER"))

    clock.advance(DAY)
    await engine.maintenance.prune_worker_events()
    await engine.heartbeat(worker, [])
    other = (await engine.workers.register()).id
    await note(engine, other, times=1)
    assert await seen(engine) == set()
    await note(engine, other, times=4)
    assert await seen(engine) == set()
