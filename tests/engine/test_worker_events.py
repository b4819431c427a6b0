"""Worker events: each status change of a worker is recorded once and kept for a day."""

import asyncio

from holdfast.clock import MovableClock
from holdfast.engine import Cursor, Engine, HeldLease, Progress
from holdfast.model import Liveness, NewJob
from tests.engine.log import settled
from tests.engine.steps import ask, run

DAY = 86_400


async def worker_events(engine: Engine) -> list[tuple[str, int, str, str | None]]:
    """(worker, number, what it is, what it was), in the order of the log."""
    await settled(engine)
    events, _ = await engine.reads.feed(Cursor())
    return [(e.job_id, e.seq, e.reason, e.data["was"]) for e in events if e.verb == "worker"]


async def test_each_status_change_of_a_worker_is_recorded_as_an_event(engine: Engine, clock: MovableClock) -> None:
    """R003-118."""
    await engine.create(NewJob(type="t"))  # whose events are counted by themselves
    worker = (await engine.workers.register(name="w", kind="remote")).id
    said = []
    for step in (
        engine.maintenance.record_worker_events,
        lambda: engine.heartbeat(worker, [], liveness=Liveness.BUSY),
        lambda: engine.heartbeat(worker, [], liveness=Liveness.IDLE),
        lambda: engine.workers.disable(worker),
        lambda: engine.heartbeat(worker, [], liveness=Liveness.BUSY),
        lambda: engine.workers.enable(worker),
        lambda: engine.heartbeat(worker, [], liveness=Liveness.OFFLINE),
    ):
        await step()
        clock.advance(5)
        said.append(await engine.maintenance.record_worker_events())
    assert said == [0, 1, 1, 1, 0, 1, 1], "what a disabled worker does is not of interest"
    assert await worker_events(engine) == [
        (worker, 1, "online", None),
        (worker, 2, "busy", "online"),
        (worker, 3, "idle", "busy"),
        (worker, 4, "disabled", "idle"),
        (worker, 5, "busy", "disabled"),
        (worker, 6, "offline", "busy"),
    ]


async def test_a_claim_and_a_report_change_the_worker_status_without_a_heartbeat(
    engine: Engine, clock: MovableClock
) -> None:
    """R003-29, R003-47, R003-63, R003-77, R003-118: as the worker's own page tells it, too."""
    kinds = ("local", "remote", "local", "remote")
    local, remote, *others = [(await engine.workers.register(kind=kind)).id for kind in kinds]
    await engine.heartbeat(local, [])
    await engine.workers.record_scope(remote, None, None)
    told: dict[str, list[str]] = {}

    async def noted() -> None:
        clock.advance(5)
        await engine.maintenance.record_worker_events()
        for worker in await engine.workers.all():
            told.setdefault(worker.id, []).append(worker.status)

    await noted()
    for worker in (local, remote):
        lease = await run(engine, worker)
        await noted()
        await engine.heartbeat(worker, [HeldLease(lease.id, lease.token)])
        await engine.complete(worker, lease.id, lease.token)
        await noted()
    lost = await run(engine, local)
    await engine.heartbeat(local, [HeldLease(lost.id, lost.token)], liveness=Liveness.OFFLINE)
    await noted()
    said = await worker_events(engine)
    assert [status for worker, _, status, _ in said if worker == local] == ["idle", "busy", "idle", "offline"]
    assert [status for worker, _, status, _ in said if worker == remote] == ["idle", "busy", "idle"]
    assert [(worker, status) for worker, _, status, _ in said if worker in others] == [
        (worker, "online") for worker in sorted(others)
    ]
    assert told[local] == ["idle", "busy", "idle", "idle", "idle", "offline"]
    assert told[remote] == ["idle", "idle", "idle", "busy", "idle", "idle"]


async def test_alternating_busy_and_idle_is_recorded_at_most_every_five_seconds(
    engine: Engine, clock: MovableClock
) -> None:
    worker = (await engine.workers.register(name="w")).id
    await engine.heartbeat(worker, [], liveness=Liveness.IDLE)
    await engine.maintenance.record_worker_events()
    lease = await run(engine, worker)
    assert await engine.maintenance.record_worker_events() == 0
    clock.advance(5)
    assert await engine.maintenance.record_worker_events() == 1
    await engine.release(worker, lease.id, lease.token)
    assert await engine.maintenance.record_worker_events() == 0
    await engine.workers.disable(worker)
    assert await engine.maintenance.record_worker_events() == 1, "of all else at once"
    await engine.workers.enable(worker)
    assert await engine.maintenance.record_worker_events() == 1
    clock.advance(-3600)  # a clock that was set back keeps nothing from being told
    await engine.claim(worker)
    assert await engine.maintenance.record_worker_events() == 1
    assert [line[2] for line in await worker_events(engine)] == ["idle", "busy", "disabled", "idle", "busy"]


async def test_a_worker_event_names_the_worker_and_belongs_to_no_tenant(engine: Engine) -> None:
    worker = (await engine.workers.register(name="w")).id
    await engine.maintenance.record_worker_events()
    [event], _ = await engine.reads.feed(Cursor())
    assert (event.worker_id, event.tenant, event.actor, event.data["name"]) == (worker, "*", "system", "w")
    assert event.from_state is event.to_state is None


async def test_worker_events_record_only_the_workers_that_changed(engine: Engine) -> None:
    busy, disabled, idle = sorted([(await engine.workers.register(name=f"w{n}", kind="remote")).id for n in range(3)])
    await engine.maintenance.record_worker_events()
    await engine.heartbeat(busy, [], liveness=Liveness.BUSY)
    await engine.workers.disable(disabled)
    assert await engine.maintenance.record_worker_events() == 2
    assert {(worker, status) for worker, seq, status, _ in await worker_events(engine) if seq == 2} == {
        (busy, "busy"),
        (disabled, "disabled"),
    }
    assert await engine.maintenance.record_worker_events() == 0
    await engine.heartbeat(idle, [], liveness=Liveness.IDLE)
    assert await engine.maintenance.record_worker_events() == 1


async def test_concurrent_servers_record_each_worker_event_once(engine: Engine) -> None:
    workers = sorted([(await engine.workers.register(name=f"w{n}")).id for n in range(20)])
    await asyncio.gather(*(engine.maintenance.record_worker_events() for _ in range(8)))
    await engine.maintenance.record_worker_events()
    assert sorted(worker for worker, *_ in await worker_events(engine)) == workers


async def test_no_worker_event_is_recorded_without_a_change(engine: Engine, worker: str) -> None:
    assert await engine.maintenance.record_worker_events() == 1
    before = await engine.reads.feed_end()
    await engine.heartbeat(worker, [], liveness=Liveness.ACTIVE)
    assert await engine.maintenance.record_worker_events() == 0
    assert await engine.reads.feed_end() == before


async def test_worker_events_are_kept_for_a_day_and_the_last_one_for_longer(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    busy = await run(engine, worker)
    for percent in range(9):  # a job with higher numbers
        await engine.progress(worker, Progress(id=busy.id, token=busy.token, percent=percent))
    await engine.maintenance.record_worker_events()
    for liveness in (Liveness.OFFLINE, Liveness.BUSY):
        clock.advance(DAY / 2)
        await engine.heartbeat(worker, [], liveness=liveness)
        await engine.maintenance.record_worker_events()
    assert await engine.maintenance.prune_worker_events() == 1, "only the first is a day old"
    assert [line[1] for line in await worker_events(engine)] == [2, 3]
    clock.advance(3 * DAY)
    assert await engine.maintenance.prune_worker_events() == 1
    assert [line[1] for line in await worker_events(engine)] == [3]
    await engine.heartbeat(worker, [], liveness=Liveness.OFFLINE)
    await engine.maintenance.record_worker_events()
    assert [line[1] for line in await worker_events(engine)] == [3, 4]


async def test_old_worker_events_are_pruned_in_batches_and_job_events_stay(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    job = await engine.create(NewJob(type="t"))
    await ask(
        engine,
        """
        INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, attempt, epoch, actor)
        SELECT id, n, '*', registered_at, 'worker', 0, 0, 'system'
          FROM holdfast_workers,
               (WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 250)
                SELECT n FROM counted) AS numbers
        RETURNING job_id""",
    )
    clock.advance(2 * DAY)
    assert [await engine.maintenance.prune_worker_events() for _ in range(4)] == [100, 100, 49, 0]
    assert len(await engine.reads.history(job.id)) == 1


async def test_deleting_a_worker_deletes_its_events(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.maintenance.record_worker_events()
    await engine.heartbeat(worker, [], liveness=Liveness.OFFLINE)
    await engine.maintenance.record_worker_events()
    job = await engine.create(NewJob(type="t"))
    clock.advance(DAY)
    assert await engine.maintenance.forget_workers(DAY) == 1
    assert await worker_events(engine) == []
    assert len(await engine.reads.history(job.id)) == 1
