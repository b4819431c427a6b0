"""What is left of a job that was pruned: its idempotency key, while that holds, and the record of its attempts."""

import asyncio

import pytest

from holdfast.assembly.engine import retention
from holdfast.assembly.startup_log import retention_text
from holdfast.clock import MovableClock
from holdfast.engine import Created, Engine, EngineLimits, Retention
from holdfast.engine.maintenance.prune import SEEN_SECONDS
from holdfast.errors import KeyReused, Locked, NotFound
from holdfast.model import NewJob
from holdfast.settings import Settings, load
from holdfast.store.queries import q
from tests.engine.steps import ask, run

DAY = 86_400
AT_ONCE = Retention(succeeded=0, dead=0, canceled=0, rejected=0)


def request(**more: object) -> NewJob:
    return NewJob(**{"type": "pay", "payload": {"n": 1}, "idempotency_key": "k", **more})  # type: ignore[arg-type]


async def finish(engine: Engine, worker: str) -> None:
    [lease] = await engine.claim(worker, types=["pay"])
    await engine.complete(worker, lease.id, lease.token, {"paid": True})


async def pruned(engine: Engine, clock: MovableClock) -> None:
    """Two rounds: the first keeps the key of a job, the second deletes the job."""
    await engine.maintenance.prune(AT_ONCE)
    clock.advance(SEEN_SECONDS)
    await engine.maintenance.prune(AT_ONCE)
    assert await ask(engine, "SELECT id FROM holdfast_jobs") == []


async def test_a_job_is_deleted_only_after_its_key_was_kept_for_a_minute(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """A create that began before the key was kept finds the job. Others behind such jobs do not wait for them."""
    engine.ctx.limits = EngineLimits(sweep_batch=1)
    first = await engine.create(request())
    await finish(engine, worker)
    assert await engine.maintenance.prune(AT_ONCE) == 1
    clock.advance(SEEN_SECONDS - 1)
    assert await engine.maintenance.prune(AT_ONCE) == 0
    assert (await engine.create(request())).id == first.id
    keyless = await engine.create(NewJob(type="pay"))
    await finish(engine, worker)
    assert await engine.maintenance.prune(AT_ONCE) == 1
    assert [row["id"] for row in await ask(engine, "SELECT id FROM holdfast_jobs")] == [first.id] != [keyless.id]
    clock.advance(1)
    assert await engine.maintenance.prune(AT_ONCE) == 1
    assert await ask(engine, "SELECT id FROM holdfast_jobs") == []


async def test_jobs_by_key_lists_each_job_once_before_and_after_it_is_pruned(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """While the key of a job is kept and the job is not yet deleted, the job answers. Each tenant has its own keys."""
    wanted = [("default", "k"), ("default", "other"), ("acme", "k")]
    made = {key: (await engine.create(request(tenant=key[0], idempotency_key=key[1]))).id for key in wanted}
    for key in wanted[:2]:
        await engine.cancel(made[key])

    async def found(*asked: tuple[str, str]) -> list[tuple[tuple[str, str], str]]:
        rows = await engine.store.read(lambda tx: tx.all(q.jobs_by_key, asked=list(asked)))
        return sorted(((row["whose"], row["key"]), row["id"]) for row in rows)

    assert await found(*wanted) == sorted(made.items())
    assert await engine.maintenance.prune(AT_ONCE) == 2
    assert await found(*wanted) == sorted(made.items())
    clock.advance(SEEN_SECONDS)
    assert await engine.maintenance.prune(AT_ONCE) == 2
    assert await found(*wanted) == sorted(made.items())
    assert await found(wanted[0], ("acme", "other")) == [(wanted[0], made[wanted[0]])]


async def test_a_canceled_job_is_deleted_after_its_key_was_kept(engine: Engine, clock: MovableClock) -> None:
    first = await engine.create(request())
    await engine.cancel(first.id)
    assert [await engine.maintenance.prune(AT_ONCE) for _ in range(2)] == [1, 0]
    clock.advance(SEEN_SECONDS)
    assert [await engine.maintenance.prune(AT_ONCE) for _ in range(2)] == [1, 0]
    assert (await engine.create(request())).id == first.id


@pytest.mark.parametrize("ended", ["succeeded", "canceled"])
async def test_each_job_waits_for_its_own_key_to_be_kept(
    engine: Engine, worker: str, clock: MovableClock, ended: str
) -> None:
    async def end(key: str) -> str:
        job = await engine.create(request(idempotency_key=key))
        await (finish(engine, worker) if ended == "succeeded" else engine.cancel(job.id))
        return job.id

    first = await end("first")
    assert await engine.maintenance.prune(AT_ONCE) == 1
    clock.advance(SEEN_SECONDS - 1)
    second = await end("second")
    assert await engine.maintenance.prune(AT_ONCE) == 1
    clock.advance(1)
    assert await engine.maintenance.prune(AT_ONCE) == 1
    assert [row["id"] for row in await ask(engine, "SELECT id FROM holdfast_jobs")] == [second]
    clock.advance(SEEN_SECONDS)
    await engine.maintenance.prune(AT_ONCE)
    assert (await engine.create(request(idempotency_key="second"))).id == second
    assert (await engine.create(request(idempotency_key="first"))).id == first


async def test_a_repeated_create_is_answered_with_the_job_that_was_pruned(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    first = await engine.create(request())
    await finish(engine, worker)
    await pruned(engine, clock)

    again = await engine.create(request())
    one_of_many = (await engine.create_many([request(), NewJob(type="other")]))[0]

    assert (again.id, again.existed, again.status) == (first.id, True, "COMPLETED")
    assert one_of_many.id == first.id
    with pytest.raises(KeyReused) as refused:
        await engine.create(request(payload={"n": 2}))
    assert refused.value.fields["job_id"] == first.id
    assert (await engine.create(request(tenant="other"))).id != first.id


async def test_a_kept_key_does_not_stop_a_create_with_another_key(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    first = await engine.create(request())
    await finish(engine, worker)
    await pruned(engine, clock)
    other = await engine.create(request(idempotency_key="another"))
    assert (other.id != first.id, other.existed) == (True, False)


async def test_kept_keys_are_separate_per_tenant(engine: Engine, clock: MovableClock) -> None:
    made = {tenant: await engine.create(request(tenant=tenant)) for tenant in ("a", "b", "c")}
    for job in made.values():
        await engine.cancel(job.id)
    await pruned(engine, clock)
    for tenant, job in made.items():
        assert (await engine.create(request(tenant=tenant))).id == job.id


async def test_pruned_jobs_are_looked_up_by_id(engine: Engine, worker: str, clock: MovableClock) -> None:
    """One that left a key and one that left an attempt."""
    left_a_key = [await engine.create(request(idempotency_key=key)) for key in "ab"]
    for job in left_a_key:
        await engine.cancel(job.id)
    left_an_attempt = []
    for _ in range(2):
        lease = await run(engine, worker)
        await engine.complete(worker, lease.id, lease.token)
        left_an_attempt.append(lease)
    await pruned(engine, clock)
    for asked in (left_a_key[0].id, left_an_attempt[0].id):
        found = await engine.store.read(lambda tx, asked=asked: tx.all(q.pruned_jobs, ids=[asked]))
        assert [row["job_id"] for row in found] == [asked]


async def test_a_key_with_a_window_is_free_again_when_the_window_is_over(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    policy = {"idempotency": "window", "idempotency_window_seconds": 2 * DAY}
    first = await engine.create(request(policy=policy))
    await finish(engine, worker)
    other = await engine.create(request(idempotency_key="kept for ever"))
    await engine.cancel(other.id)
    await pruned(engine, clock)
    clock.advance(2 * DAY - 1 - SEEN_SECONDS)
    assert (await engine.create(request(policy=policy))).id == first.id
    clock.advance(1)
    second = await engine.create(request(policy=policy))
    assert second.id != first.id
    assert [row["job_id"] for row in await ask(engine, "SELECT job_id FROM holdfast_kept_keys")] == [other.id]


async def test_keys_whose_window_is_over_are_deleted(engine: Engine, worker: str, clock: MovableClock) -> None:
    policy = {"idempotency": "window", "idempotency_window_seconds": DAY}
    await engine.create(request(policy=policy))
    await finish(engine, worker)
    await pruned(engine, clock)
    assert len(await ask(engine, "SELECT job_id FROM holdfast_kept_keys")) == 1
    clock.advance(DAY)
    await engine.maintenance.prune(AT_ONCE)
    assert await ask(engine, "SELECT job_id FROM holdfast_kept_keys") == []


async def test_a_key_that_a_failure_frees_is_not_kept(engine: Engine, worker: str) -> None:
    policy = {"idempotency": "until_failed"}
    first = await engine.create(request(policy=policy))
    await engine.cancel(first.id)
    await engine.maintenance.prune(AT_ONCE)
    assert (await engine.create(request(policy=policy))).id != first.id


async def test_concurrent_creates_with_the_freed_key_of_a_pruned_job_make_one_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    policy = {"idempotency": "window", "idempotency_window_seconds": DAY}
    await engine.create(request(policy=policy))
    await finish(engine, worker)
    await pruned(engine, clock)
    clock.advance(DAY)
    made = await asyncio.gather(*(engine.create(request(policy=policy)) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(one, Created | Locked) for one in made), "who waits too long for the others is told so"
    assert len(await ask(engine, "SELECT id FROM holdfast_jobs")) == 1
    assert len({one.id for one in made if isinstance(one, Created)}) == 1


async def test_reading_a_pruned_job_raises_an_error_that_says_pruned(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.complete(worker, lease.id, lease.token)
    await engine.maintenance.prune(AT_ONCE)

    with pytest.raises(NotFound) as refused:
        await engine.reads.get(lease.id)
    assert refused.value.code == "job_pruned"
    assert "HOLDFAST_RETAIN_" in refused.value.message
    with pytest.raises(NotFound) as refused:
        await engine.reads.get(lease.id, tenant="other")
    assert refused.value.code == "job_not_found"
    [outline] = await engine.reads.summaries([(lease.id, "default")])
    assert isinstance(outline, NotFound)
    assert outline.code == "job_pruned"


async def test_attempts_of_a_pruned_job_are_kept_without_their_error(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_DISK", "the secret of a customer", permanent=True)
    [before] = await engine.reads.attempts(lease.id)
    await engine.maintenance.prune(AT_ONCE)

    [after] = await engine.reads.attempts(lease.id)

    assert after.error is None
    kept = ("worker_id", "started_at", "ended_at", "outcome", "reason", "epoch")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


async def test_the_errors_of_other_jobs_stay_when_one_is_pruned(engine: Engine, worker: str) -> None:
    ended, goes_on, never_failed = [await run(engine, worker) for _ in range(3)]
    await engine.fail(worker, ended.id, ended.token, "E_DISK", permanent=True)
    await engine.fail(worker, goes_on.id, goes_on.token, "E_DISK", "it is full")
    await engine.complete(worker, never_failed.id, never_failed.token)
    await engine.maintenance.prune(AT_ONCE)
    [attempt] = await engine.reads.attempts(goes_on.id)
    assert attempt.error is not None
    assert [row.error for row in await engine.reads.attempts(ended.id)] == [None]


async def test_the_pruned_position_never_decreases(engine: Engine) -> None:
    """A stream that resumes before it is told of a gap, though older events are deleted after newer ones."""
    older, newer = [await engine.create(NewJob(type="pay")) for _ in range(2)]
    places = []
    for job in (newer, older):
        [event] = await ask(engine, "SELECT pos FROM holdfast_events WHERE job_id = :id", id=job.id)
        places.append(event["pos"])
        await engine.store.write(lambda tx, pos=event["pos"]: tx.all(q.note_pruned, pos=pos))
    [log] = await ask(engine, "SELECT pruned FROM holdfast_event_log")
    assert places[1] < places[0] == log["pruned"]


def test_succeeded_jobs_are_kept_for_two_weeks_unless_a_setting_says_otherwise() -> None:
    assert Settings().retain_succeeded_seconds == 14 * DAY
    assert load({"HOLDFAST_RETAIN_SUCCEEDED_SECONDS": "off"}).retain_succeeded_seconds is None
    assert load({}, overrides={"retain_succeeded_seconds": "off"}).retain_succeeded_seconds is None


def test_a_process_logs_its_retention_at_startup() -> None:
    assert retention_text(retention(Settings())) == (
        "finished jobs are deleted: succeeded after 14 days; canceled, dead, rejected never (HOLDFAST_RETAIN_*_SECONDS)"
    )
    kept = retention(Settings(retain_attempts_seconds=86_400))
    assert "; the records of their attempts after 1 days (" in retention_text(kept)
