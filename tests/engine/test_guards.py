"""One test for each condition of the queries that find rows before a claim, a reap or a create."""

import asyncio
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, EngineLimits, Progress
from holdfast.errors import HoldfastError, LeaseLost, NotFound
from holdfast.lifecycle import State
from holdfast.model import Liveness, NewJob, Part
from holdfast.store import Row, q
from holdfast.store.queries import Query
from tests.engine.steps import UNKNOWN_ID, ask, run


async def look(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.read(lambda tx: tx.all(query, **params))


# -- claim ------------------------------------------------------------------------------------------------------------


async def alive(engine: Engine, *capabilities: str, tenants: list[str] | None = None) -> str:
    """An idle worker with a recent heartbeat."""
    worker = (await engine.workers.register(capabilities=dict.fromkeys(capabilities, True), tenants=tenants)).id
    await engine.heartbeat(worker, [], liveness=Liveness.IDLE)
    return worker


async def test_a_worker_does_not_defer_to_one_without_the_preferred_capability(engine: Engine) -> None:
    """C-33: two of a kind do not wait for each other."""
    one, _other = await alive(engine), await alive(engine)
    await engine.create(NewJob(type="cut", prefers=["gpu"]))
    assert len(await engine.claim(one)) == 1


async def test_a_job_with_required_capabilities_still_waits_for_a_preferred_worker(engine: Engine) -> None:
    """C-33: the preferred worker also has all that is required."""
    able, better = await alive(engine, "big"), await alive(engine, "big", "gpu")
    await engine.create(NewJob(type="cut", requires=["big"], prefers=["gpu"]))
    assert await engine.claim(able) == []
    assert len(await engine.claim(better)) == 1


async def test_why_ignores_the_requirements_of_other_jobs(engine: Engine, worker: str) -> None:
    plain, choosy = [await engine.create(NewJob(type="n", requires=requires)) for requires in ([], ["gpu"])]
    able = [all(clause.holds for clause in await engine.reads.why(job.id)) for job in (plain, choosy)]
    assert able == [True, False]


@pytest.mark.parametrize(("tenants", "waits"), [(["other"], False), (["other", "default"], True)])
async def test_a_claim_defers_only_to_workers_that_serve_the_tenant_of_the_job(
    engine: Engine, tenants: list[str], waits: bool
) -> None:
    """C-33."""
    able = await alive(engine)
    await alive(engine, "gpu", tenants=tenants)
    await engine.create(NewJob(type="cut", prefers=["gpu"]))
    assert (await engine.claim(able) == []) is waits


async def test_a_claim_defers_to_an_idle_preferred_worker_while_other_workers_are_busy(engine: Engine) -> None:
    """C-33, R003-25."""
    able = await alive(engine)
    await alive(engine, "gpu")
    await run(engine, able)
    await engine.create(NewJob(type="cut", prefers=["gpu"]))
    assert await engine.claim(able) == []


async def test_two_preferred_workers_do_not_defer_to_each_other(engine: Engine) -> None:
    """C-33."""
    one, _other = await alive(engine, "gpu"), await alive(engine, "gpu")
    await engine.create(NewJob(type="cut", prefers=["gpu"]))
    assert len(await engine.claim(one)) == 1


async def test_disabling_a_worker_changes_no_other_worker(engine: Engine, worker: str) -> None:
    """R003-25."""
    other = await engine.workers.register()
    await engine.workers.disable(worker)
    assert {known.id: known.enabled for known in await engine.workers.all()} == {worker: False, other.id: True}


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "other"},
        {"queue": "other"},
        {"type": "other"},
        {"requires": ["other"]},
        {"prefers": ["other"]},
        {"policy": {"defer_seconds": 7}},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_jobs_share_a_lane_only_if_the_same_workers_may_take_them(engine: Engine, other: dict[str, Any]) -> None:
    """C-33: everything that decides which workers may claim a job, and when, is part of the lane."""
    plain: dict[str, Any] = {"type": "cut", "requires": ["big"], "prefers": ["gpu"]}
    first, again, apart = [
        (await engine.reads.get((await engine.create(NewJob(**job))).id)).lane
        for job in (plain, plain | {"payload": {"n": 1}}, plain | other)
    ]
    assert first == again != apart


async def test_overdue_reports_only_expired_leases_in_the_queues_of_the_claim(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-26: the query before the second claim covers these queues only, and only expired leases."""

    async def lost(*queues: str) -> bool:
        [row] = await look(engine, q.overdue, worker=worker, queues=list(queues) or None)
        return bool(row["lost"])

    await run(engine, worker, queue="a")
    assert not await lost()
    clock.advance(30)
    assert [await lost(), await lost("b", "a"), await lost("b")] == [True, True, False]


async def test_overdue_reports_a_delayed_job_only_once_it_is_due(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-26: nor because of what is claimable or running already."""

    async def ripe() -> bool:
        [row] = await look(engine, q.overdue, worker=worker, queues=None)
        return bool(row["ripe"])

    await run(engine, worker)
    await engine.create(NewJob(type="now"))
    await engine.create(NewJob(type="later", delay_seconds=5))
    clock.advance(4.9)
    assert not await ripe()
    clock.advance(0.1)
    assert await ripe()


async def test_a_queue_is_resumed_for_its_tenant_alone(engine: Engine, worker: str) -> None:
    paused = [("a", "x"), ("a", "y"), ("b", "x")]
    for tenant, queue in paused:
        await engine.queues.pause(queue, tenant=tenant)
        await engine.create(NewJob(type="n", tenant=tenant, queue=queue))
    assert await engine.claim(worker, limit=3) == []
    await engine.queues.resume("x", tenant="a")
    [lease] = await engine.claim(worker, limit=3)
    assert (lease.tenant, lease.queue) == ("a", "x")


async def test_why_does_not_report_a_resumed_queue(engine: Engine, worker: str) -> None:
    job = await engine.create(NewJob(type="n"))
    await engine.queues.pause("default")
    await engine.queues.resume("default")
    assert all(clause.holds for clause in await engine.reads.why(job.id))


# -- create -----------------------------------------------------------------------------------------------------------


async def test_a_key_finds_the_job_of_its_own_tenant(engine: Engine) -> None:
    """C-18, S2: neither another tenant's, nor another key's."""
    requests = [NewJob(type="echo", tenant=tenant, idempotency_key=key) for tenant in "ab" for key in "xy"]
    first = [await engine.create(request) for request in requests]
    again = [await engine.create(request) for request in requests]
    assert [job.id for job in again] == [job.id for job in first]
    assert all(job.existed for job in again)


async def test_a_batch_of_two_job_types_stores_each_job_in_its_own_queue(engine: Engine) -> None:
    created = await engine.create_many([NewJob(type=name, queue=name) for name in "ab"])
    assert [(await engine.reads.get(job.id)).queue for job in created] == ["a", "b"]


async def test_cancel_follows_the_lifecycle_each_job_was_created_with(engine: Engine) -> None:
    """One lifecycle allows cancel, the other does not."""
    free, bound = [await engine.create(NewJob(type=name, lifecycle=name)) for name in ("default", "orchestration")]
    answers = await asyncio.gather(*map(engine.cancel, (free.id, bound.id)), return_exceptions=True)
    assert [isinstance(answer, HoldfastError) for answer in answers] == [False, True]


# -- reports of a worker ----------------------------------------------------------------------------------------------


async def test_only_the_token_of_a_job_settles_it(engine: Engine, worker: str) -> None:
    """S4: neither the token of another job that ended with the same report, nor any other after its end."""
    mine, other = [await run(engine, worker) for _ in range(2)]
    await engine.complete(worker, other.id, other.token)
    for job, token in ((mine, other.token), (other, mine.token), (other, UNKNOWN_ID)):
        with pytest.raises(LeaseLost):
            await engine.complete(worker, job.id, token)
    assert [len(await engine.reads.attempts(lease.id)) for lease in (mine, other)] == [0, 1]


async def test_parts_belong_to_the_job_that_named_them(engine: Engine, worker: str) -> None:
    leases = [await run(engine, worker) for _ in range(2)]
    for lease, name in zip(leases, ("480p", "720p"), strict=True):
        await engine.progress(worker, Progress(id=lease.id, token=lease.token, parts=[Part(name=name)]))
    for lease, name in zip(leases, ("480p", "720p"), strict=True):
        assert [part.name for part in await engine.reads.parts(lease.id)] == [name]
        assert [row["parts"] for row in await look(engine, q.count_parts, ids=[lease.id])] == [1]


@pytest.mark.parametrize(("lifecycle", "due"), [("default", True), ("orchestration", False)])
@pytest.mark.parametrize("end", ["fail", "reap"])
async def test_a_retry_without_a_wait_is_claimable_only_where_it_need_not_be_queued_first(
    engine: Engine, worker: str, clock: MovableClock, end: str, lifecycle: str, due: bool
) -> None:
    """C-2, C-28."""
    lease = await run(engine, worker, lifecycle=lifecycle)
    if end == "fail":
        await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=0)
    else:
        clock.advance(60)
        await engine.maintenance.reap()
    job = await engine.reads.get(lease.id)
    assert (job.state, job.run_at, job.due) == (State.RETRYING, clock.now(), due)


# -- reap -------------------------------------------------------------------------------------------------------------


async def test_reap_applies_the_policy_of_each_job(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-34: two running jobs with different limits."""
    short, _long = [await run(engine, worker, policy={"max_runtime_seconds": seconds}) for seconds in (10, 20)]
    clock.advance(10)
    assert [row["id"] for row in await engine.maintenance.reap()] == [short.id]


async def test_heartbeats_of_other_workers_do_not_protect_an_expired_transcode_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-11: a silent worker's job is freed, however lively the others are."""
    lease = await run(engine, worker, lifecycle="transcode", policy={"lease_seconds": 60})
    neighbour = await alive(engine)
    clock.advance(300)
    await engine.heartbeat(neighbour, [])
    assert [row["id"] for row in await engine.maintenance.reap()] == [lease.id]


async def test_a_finished_job_is_never_reported_as_lost(engine: Engine, worker: str, clock: MovableClock) -> None:
    """S6: its clocks have run out long ago, and prove nothing."""
    lease = await run(engine, worker, policy={"max_runtime_seconds": 300})
    await engine.complete(worker, lease.id, lease.token)
    clock.advance(3600)
    assert await look(engine, q.lost_jobs, queues=None, gone=[], unheard=0.0, in_grace=False, limit=9) == []


async def test_each_kind_of_sweep_is_recorded_separately(engine: Engine, clock: MovableClock) -> None:
    """C-28: another kind that has not run for long says nothing about this one, and is not marked by it."""
    await ask(engine, "INSERT INTO holdfast_sweeps (name, swept_at) VALUES ('another', {now}) RETURNING name")
    await engine.maintenance.reap()
    clock.advance(10)
    await engine.maintenance.reap()
    [reaps] = await look(engine, q.sweep, pause=5.0)
    assert not reaps["stale"]
    times = {row["name"]: row["swept_at"] for row in await ask(engine, "SELECT name, swept_at FROM holdfast_sweeps")}
    assert times["reap"] > times["another"]


async def test_only_one_of_two_concurrent_sweepers_starts_the_grace_period(engine: Engine, clock: MovableClock) -> None:
    """C-28: the second would find no gap, and take back the grace."""
    await engine.maintenance.reap()
    clock.advance(60)

    async def mark() -> list[Row]:
        marking = {"pause": 5.0, "interval": 10.0, "grace_seconds": 120.0}
        return await engine.store.write(lambda tx: tx.all(q.mark_sweep, **marking))

    [marked] = await mark()
    assert marked["in_grace"]
    assert await mark() == []


# -- requeue and prune ------------------------------------------------------------------------------------------------


async def test_only_a_due_retry_that_is_not_claimed_directly_is_queued_again(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-2, K2 (river#1318): rows of another kind, though older, do not use up what one step may move."""
    direct, retry, later = [
        await run(engine, worker, lifecycle=name) for name in ("default", "orchestration", "orchestration")
    ]
    await engine.create_many([NewJob(type="n", lifecycle="orchestration", delay_seconds=4) for _ in range(5)])
    for lease, wait in ((direct, 4), (retry, 5), (later, 6)):
        await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=wait)
    clock.advance(5)

    moved = await engine.store.write(lambda tx: tx.all(q.requeue_due, actor="system", limit=5))

    assert [row["id"] for row in moved] == [retry.id]


async def test_a_delayed_job_becomes_claimable_once(engine: Engine, worker: str, clock: MovableClock) -> None:
    """Neither before it is due, nor a second time, nor where the lifecycle queues retries first."""
    detour, direct = [await run(engine, worker, lifecycle=name) for name in ("orchestration", "default")]
    for lease in (detour, direct):
        await engine.fail(worker, lease.id, lease.token, "E_HICCUP", retry_after_seconds=5)
    await engine.create_many([NewJob(type="n", queue="n", delay_seconds=seconds) for seconds in (0, 5, 6)])
    clock.advance(5)

    async def mark_due() -> list[str]:
        found = [
            await engine.store.write(lambda tx, parked=parked: tx.all(q.mark_due_jobs, parked=parked, limit=9))
            for parked in ("waiting", "retrying")
        ]
        return sorted(row["queue"] for rows in found for row in rows)

    assert [await mark_due(), await mark_due()] == [["default", "n"], []]


async def test_prune_considers_only_jobs_created_before_the_bound(engine: Engine, worker: str) -> None:
    """Ids are in order of creation, so nothing behind the bound need be looked at."""
    first, second = [await run(engine, worker) for _ in range(2)]
    for lease in (first, second):
        await engine.complete(worker, lease.id, lease.token)
    found = await look(
        engine, q.prunable_succeeded, keep_seconds=0.0, bound=second.id, besides=[], seen_seconds=60.0, limit=9
    )
    assert [row["id"] for row in found] == [first.id]
    [late] = await look(engine, q.overdue_succeeded, keep_seconds=0.0, bound=second.id, limit=9)
    assert late["jobs"] == 1


async def test_only_the_live_key_of_a_finished_job_is_kept(engine: Engine, worker: str) -> None:
    """Of the jobs that are named, and of no others."""
    finished, freed, other, waiting = [
        await engine.create(NewJob(type="n", idempotency_key=key, policy={"idempotency": "until_failed"}))
        for key in ("finished", "freed", "other", "waiting")
    ]
    for job in (finished, freed, other):
        await engine.cancel(job.id)
    await engine.store.write(lambda tx: tx.all(q.free_key, id=freed.id))

    held = [(job.id, None) for job in (finished, freed, waiting)]
    kept = await engine.store.write(lambda tx: tx.all(q.keep_keys, held=held))

    assert [row["job_id"] for row in kept] == [finished.id]


# -- read -------------------------------------------------------------------------------------------------------------


async def test_the_feed_continues_after_its_cursor(engine: Engine) -> None:
    """The second page repeats no event of the first."""
    await engine.create_many([NewJob(type="n") for _ in range(3)])
    first, cursor = await engine.reads.feed(limit=2)
    rest, _ = await engine.reads.feed(cursor)
    assert {(event.job_id, event.seq) for event in first}.isdisjoint((event.job_id, event.seq) for event in rest)


async def test_a_worker_is_read_by_its_id(engine: Engine, worker: str) -> None:
    other = await engine.workers.register(name="other")
    assert (await engine.workers.get(other.id)).name == "other"
    assert (await engine.workers.get(worker)).name == "tester"
    for unknown in ("00000000-0000-4000-8000-000000000000", "no id"):
        with pytest.raises(NotFound):
            await engine.workers.get(unknown)


async def test_a_retry_that_is_claimed_directly_is_never_queued_by_the_sweep(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """C-2: also when there are more of them than one sweep makes ready."""
    engine.ctx.limits = EngineLimits(sweep_batch=1)
    await engine.create_many([NewJob(type="n") for _ in range(3)])
    for lease in await engine.claim(worker, limit=3):
        await engine.fail(worker, lease.id, lease.token, "boom", retry_after_seconds=5)
    clock.advance(6)
    await engine.maintenance.requeue_due()
    assert [job.state for job in (await engine.reads.page()).jobs] == [State.RETRYING] * 3
