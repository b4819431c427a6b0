"""The registry of workers, and pausing queues: settings of an operator and heartbeats never overwrite each other."""

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, HeldLease
from holdfast.errors import Invalid, NotFound
from holdfast.model import Liveness, NewJob, WorkerRecord
from holdfast.store import Tx
from holdfast.store.queries import q
from tests.engine.steps import UNKNOWN_ID, run


async def find(engine: Engine, worker: str) -> WorkerRecord:
    [found] = [w for w in await engine.workers.all() if w.id == worker]
    return found


async def test_a_registered_worker_is_stored_with_all_fields(engine: Engine, clock: MovableClock) -> None:
    """R003-24..28, R003-29: active, enabled, never heard from."""
    worker = await engine.workers.register(
        name="gpu-1",
        kind="remote",
        tenants=["b", "a"],
        capabilities={"gpu": True, "codecs": ["h264", "vp9"], "cuda": 12, "none": None},
        metadata={"pod": "x-1"},
        slots=4,
        heartbeat_seconds=30,
        offline_seconds=300,
    )
    assert (worker.name, worker.kind, worker.tenants, worker.slots) == ("gpu-1", "remote", ["a", "b"], 4)
    assert worker.offers == ["codecs", "codecs:h264", "codecs:vp9", "cuda", "cuda:12", "gpu"]
    assert (worker.metadata, worker.registered_at) == ({"pod": "x-1"}, clock.now())
    assert (worker.enabled, worker.liveness, worker.last_heartbeat_at) == (True, Liveness.ACTIVE, None)
    assert await engine.workers.all() == [worker]


async def test_an_invalid_worker_registration_is_rejected(engine: Engine) -> None:
    """R003-95: also capabilities or metadata over 10 KB."""
    for wrong in (
        {"id": "me"},
        {"name": "\n"},
        {"kind": ""},
        {"tenants": [""]},
        {"capabilities": {"x": "y" * 10_240}},
        {"metadata": {"x": "y" * 10_240}},
        {"metadata": {"x": float("nan")}},
        {"capabilities": {"": True}},
        {"slots": 2**40},
        {"slots": -1},
        {"heartbeat_seconds": float("nan")},
        {"offline_seconds": -5},
    ):
        with pytest.raises(Invalid):
            await engine.workers.register(**wrong)
    assert await engine.workers.all() == []


async def test_a_silent_worker_goes_offline_by_its_own_threshold_and_comes_back(
    engine: Engine, clock: MovableClock
) -> None:
    """R003-85, R003-86, R003-100, R003-102, R003-148."""
    quick = (await engine.workers.register(offline_seconds=60)).id
    slow = (await engine.workers.register(offline_seconds=300)).id
    for worker in (quick, slow):
        await engine.heartbeat(worker, [])
    clock.advance(59.999)
    assert await engine.maintenance.mark_silent_workers() == []
    clock.advance(0.001)

    assert [worker.id for worker in await engine.maintenance.mark_silent_workers()] == [quick]
    assert await engine.maintenance.mark_silent_workers() == [], "told once"
    assert (await find(engine, quick)).liveness is Liveness.OFFLINE
    await engine.heartbeat(quick, [])
    assert (await find(engine, quick)).liveness is Liveness.IDLE
    assert (await find(engine, slow)).liveness is Liveness.IDLE


async def test_a_worker_without_heartbeats_goes_offline_counted_from_its_registration(
    engine: Engine, clock: MovableClock
) -> None:
    """R003-111, R003-163 (#273): null heartbeat."""
    worker = (await engine.workers.register(offline_seconds=60)).id
    clock.advance(60)
    assert [found.id for found in await engine.maintenance.mark_silent_workers()] == [worker]


async def test_a_heartbeat_just_before_the_offline_update_keeps_the_worker_online(
    engine: Engine, clock: MovableClock
) -> None:
    """R003-106, R003-152: the silence is judged again in the update itself, so there is no gap to fall into."""
    worker = (await engine.workers.register(offline_seconds=60)).id
    clock.advance(60)

    async def beat_then_mark(tx: Tx) -> list[object]:
        await tx.one(q.beat_worker, worker=worker, liveness="idle", slots=None)
        return [*await tx.all(q.silent_workers)]

    assert await engine.store.write(beat_then_mark) == []
    assert (await find(engine, worker)).liveness is Liveness.IDLE


async def test_heartbeats_and_registrations_do_not_enable_a_disabled_worker(
    engine: Engine, clock: MovableClock
) -> None:
    """C-32, R003-30: neither silence nor a beat nor a new registration switches a disabled worker on."""
    worker = (await engine.workers.register(offline_seconds=60)).id
    disabled = await engine.workers.disable(worker)
    assert (disabled.status, disabled.liveness) == ("disabled", Liveness.ACTIVE)
    clock.advance(60)
    await engine.maintenance.mark_silent_workers()
    assert (await find(engine, worker)).status == "disabled"
    assert (await engine.heartbeat(worker, [])).enabled is False
    assert (await find(engine, worker)).enabled is False
    again = await engine.workers.register(id=worker, name="again", capabilities={"gpu": True})
    assert (again.enabled, again.name, again.offers) == (False, "again", ["gpu"])

    enabled = await engine.workers.enable(worker)
    assert (enabled.enabled, enabled.status) == (True, "idle")


async def test_registering_again_keeps_liveness_and_last_heartbeat(engine: Engine, clock: MovableClock) -> None:
    worker = (await engine.workers.register(id=UNKNOWN_ID)).id
    await engine.heartbeat(worker, [])
    first = await find(engine, worker)
    clock.advance(10)
    again = await engine.workers.register(id=worker, slots=2)

    assert (again.registered_at, again.last_heartbeat_at) == (first.registered_at, first.last_heartbeat_at)
    assert (again.liveness, again.slots) == (Liveness.IDLE, 2)


async def test_an_unknown_worker_can_be_neither_enabled_nor_disabled(engine: Engine) -> None:
    for worker in (UNKNOWN_ID, "no id at all"):
        for verb in (engine.workers.enable, engine.workers.disable):
            with pytest.raises(NotFound):
                await verb(worker)


async def test_a_queue_paused_twice_keeps_the_first_operator_and_time(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await engine.queues.pause("q", by="ann")
    since = clock.now()
    clock.advance(60)
    await engine.queues.pause("q", by="bob")
    job = await engine.create(NewJob(type="n", queue="q"))

    [clause] = [clause for clause in await engine.reads.why(job.id) if clause.name == "queue"]
    assert clause.says == f"queue 'q' is paused since {since:%H:%M:%S} UTC by ann"
    await engine.queues.resume("q")
    assert len(await engine.claim(worker)) == 1


async def test_an_invalid_queue_name_cannot_be_paused(engine: Engine) -> None:
    for wrong in ("", "\x00", "a\nb", "x" * 201):
        with pytest.raises(Invalid):
            await engine.queues.pause(wrong)
        with pytest.raises(Invalid):
            await engine.queues.resume(wrong)
        with pytest.raises(Invalid):
            await engine.queues.pause("q", by=wrong)
        with pytest.raises(Invalid):
            await engine.queues.resume("q", tenant=wrong)


async def test_workers_offline_for_long_are_deleted(engine: Engine, clock: MovableClock) -> None:
    """Each start of a worker registers a new id; the rows must not pile up. Nothing else is forgotten."""
    gone = (await engine.workers.register(name="gone")).id
    holding = (await engine.workers.register(name="holding")).id
    disabled = (await engine.workers.register(name="disabled")).id
    remote = (await engine.workers.register(name="remote", kind="remote")).id
    await engine.create(NewJob(type="n"))
    await engine.claim(holding)
    await engine.workers.disable(disabled)
    clock.advance(1000)
    await engine.maintenance.mark_silent_workers()
    alive = (await engine.workers.register(name="alive")).id
    silent = (await engine.workers.register(name="not yet marked")).id
    assert await engine.maintenance.forget_workers(1001) == 0
    clock.advance(1)
    assert await engine.maintenance.forget_workers(1001) == 1
    left = {worker.id for worker in await engine.workers.all()}
    assert gone not in left
    assert left == {holding, disabled, remote, alive, silent}
    clock.advance(2000)
    assert await engine.maintenance.forget_workers(1) == 0, "silent, but not yet marked offline"


async def test_forget_workers_rejects_a_negative_age(engine: Engine) -> None:
    with pytest.raises(Invalid):
        await engine.maintenance.forget_workers(-1)


async def test_a_worker_is_busy_from_its_claim_and_idle_from_its_report(engine: Engine) -> None:
    """R003-26, R003-29, R003-47, R003-63, R003-77, C-27: no heartbeat is needed for either; of several jobs the current
    one is the one it has had for longest."""
    worker = (await engine.workers.register(name="encoder-1", slots=2)).id
    await engine.heartbeat(worker, [])

    async def seen() -> tuple[str, str | None]:
        found, [listed] = await engine.workers.get(worker), await engine.workers.all()
        assert found == listed
        return found.status, found.current_job_id

    assert await seen() == ("idle", None)
    first, second = await run(engine, worker), await run(engine, worker)
    assert await seen() == ("busy", first.id)
    assert await engine.workers.holds() == {worker: 2}
    await engine.complete(worker, first.id, first.token)
    assert await seen() == ("busy", second.id)
    await engine.heartbeat(worker, [HeldLease(second.id, second.token)])
    await engine.fail(worker, second.id, second.token, "E", permanent=True)
    assert await seen() == ("idle", None)

    third = await run(engine, worker)
    await engine.workers.disable(worker)
    assert await seen() == ("disabled", third.id), "it may finish what it has"


async def test_a_worker_that_went_offline_has_no_current_job(engine: Engine, clock: MovableClock) -> None:
    """R003-101."""
    worker = (await engine.workers.register(offline_seconds=60)).id
    lease = await run(engine, worker, lifecycle="transcode")
    assert (await engine.workers.get(worker)).current_job_id == lease.id
    clock.advance(61)
    [gone] = await engine.maintenance.mark_silent_workers()
    found = await engine.workers.get(worker)
    assert (gone.id, found.status, found.current_job_id) == (worker, "offline", None)
    await engine.heartbeat(worker, [HeldLease(lease.id, lease.token)])
    assert (await engine.workers.get(worker)).current_job_id == lease.id


async def test_each_worker_has_its_own_current_job(engine: Engine) -> None:
    """R003-26, C-27."""
    one, other = [(await engine.workers.register()).id for _ in range(2)]
    held = {worker: (await run(engine, worker)).id for worker in (other, one)}
    await engine.create(NewJob(type="waiting"))
    assert {worker.id: worker.current_job_id for worker in await engine.workers.all()} == held
    assert await engine.workers.holds() == {one: 1, other: 1}
