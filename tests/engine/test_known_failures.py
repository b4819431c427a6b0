"""Defects of other job queues, each as a test with its number in our catalogue and the issue that reported it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from itertools import permutations
from random import Random
from typing import Any

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, Progress, Release, Retention
from holdfast.engine.maintenance.reap import reap
from holdfast.errors import Conflict, LeaseLost
from holdfast.ids import SeededIds
from holdfast.lifecycle import FINAL, Lifecycles, State
from holdfast.model import NewJob, Part
from holdfast.store import Row, Tx, open_store, q
from holdfast.store.queries import Query
from tests.engine.steps import UNKNOWN_ID, ask, assert_consistent, held, run, stored, sweep


async def final_states(engine: Engine, job_id: str) -> list[str | None]:
    """The final states in a job's history: never more than one."""
    return [event.to_state for event in await engine.reads.history(job_id) if event.to_state in FINAL]


class StaleReadTx:
    """The transaction of a reaper that was paused after its read: it acts on the old rows."""

    def __init__(self, tx: Tx, seen: list[Row]) -> None:
        self._tx = tx
        self._seen = seen

    async def all(self, query: Query, **params: Any) -> list[Row]:
        return self._seen if query is q.lost_jobs else await self._tx.all(query, **params)

    async def one(self, query: Query, **params: Any) -> Row | None:
        return await self._tx.one(query, **params)

    def after_commit(self, callback: Callable[[], None], *, hint: bool = False) -> None:
        self._tx.after_commit(callback, hint=hint)


async def find_lost_jobs(engine: Engine) -> list[Row]:
    """What a reaper sees when it starts."""
    return await engine.store.read(
        lambda tx: tx.all(q.lost_jobs, queues=None, gone=[], unheard=0.0, in_grace=False, limit=100)
    )


async def reap_with_stale_list(engine: Engine, seen: list[Row]) -> list[Row]:
    return await engine.store.write(lambda tx: reap(StaleReadTx(tx, seen), engine.ctx))


# -- reaping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meanwhile", ["completed", "claimed again"])
async def test_k1_a_reaper_paused_between_read_and_update_changes_no_job_that_moved_on(
    engine: Engine, worker: str, clock: MovableClock, meanwhile: str
) -> None:
    """K1 (riverqueue/river#1302, #1373): rescued by id only, a finished or re-claimed job went back to retryable."""
    lease = await run(engine, worker)
    clock.advance(30)
    seen = await find_lost_jobs(engine)
    assert [row["id"] for row in seen] == [lease.id]
    if meanwhile == "completed":
        await engine.complete(worker, lease.id, lease.token)
    else:
        await engine.release(worker, lease.id, lease.token)
        await engine.claim(worker)
    before = await stored(engine, lease.id)

    assert await reap_with_stale_list(engine, seen) == []

    assert await stored(engine, lease.id) == before


async def test_k4_a_job_never_both_succeeds_and_fails(engine: Engine, worker: str, clock: MovableClock) -> None:
    """K4 (rails/solid_queue#589): a live worker was pruned while finishing; its job was finished and failed."""
    leases = [await run(engine, worker, max_attempts=1) for _ in range(40)]
    clock.advance(30)
    seen = await find_lost_jobs(engine)
    first, second, *rest = leases
    await engine.complete(worker, first.id, first.token)
    assert await final_states(engine, first.id) == ["succeeded"]

    answers, reaped = await asyncio.gather(
        engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in rest]), engine.maintenance.reap()
    )
    with pytest.raises(LeaseLost):
        await engine.complete(worker, second.id, second.token)
    assert await reap_with_stale_list(engine, seen) == []

    dead = {row["id"] for row in reaped}
    lost = {lease.id for lease, answer in zip(rest, answers, strict=True) if isinstance(answer, LeaseLost)}
    assert dead == lost | {second.id}
    for lease in leases:
        assert await final_states(engine, lease.id) == ["dead" if lease.id in dead else "succeeded"]


@pytest.mark.parametrize("lifecycle", ["default", "transcode"])
async def test_k5_the_lease_of_a_worker_whose_row_is_gone_still_expires(
    engine: Engine, worker: str, clock: MovableClock, lifecycle: str
) -> None:
    """K5 (rails/solid_queue#422, #542): jobs stayed claimed by a process row that no longer existed."""
    lease = await run(engine, worker, lifecycle=lifecycle, policy={"lease_seconds": 60})
    await ask(engine, "DELETE FROM holdfast_workers WHERE id = :id RETURNING id", id=worker)
    assert await sweep(engine, clock, 59) == []
    [row] = await sweep(engine, clock, 1)

    assert (row["id"], row["state"]) == (lease.id, "retrying")
    other = (await engine.workers.register()).id
    assert [again.id for again in await engine.claim(other)] == [lease.id]


async def test_k6_only_one_of_two_reapers_with_the_same_list_moves_a_job(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """K6 (dbos-inc/dbos-transact-py#742): a second recovery used an old list and ran work it did not own."""
    lease = await run(engine, worker, policy={"max_lost": 2})
    clock.advance(30)
    seen = await find_lost_jobs(engine)
    assert len(await reap_with_stale_list(engine, seen)) == 1
    before = await stored(engine, lease.id)

    assert await reap_with_stale_list(engine, seen) == []
    assert await stored(engine, lease.id) == before
    [again] = await engine.claim(worker)
    assert await reap_with_stale_list(engine, seen) == []
    assert (await engine.reads.get(lease.id)).lease_token == again.token


@pytest.mark.parametrize("first", ["the row", "the jobs"])
async def test_k9_a_worker_row_may_be_deleted_before_or_after_its_jobs_are_reaped(
    engine: Engine, worker: str, clock: MovableClock, first: str
) -> None:
    """K9a (procrastinate#1518): the worker row was pruned first, and a join then missed its jobs."""
    lease = await run(engine, worker, lifecycle="transcode", policy={"lease_seconds": 60})
    steps: list[Callable[[], Awaitable[Any]]] = [
        lambda: ask(engine, "DELETE FROM holdfast_workers WHERE id = :id RETURNING id", id=worker),
        lambda: sweep(engine, clock, 300),
    ]
    for step in steps if first == "the row" else steps[::-1]:
        await step()
    assert (await engine.reads.get(lease.id)).state is State.RETRYING


async def test_k9_a_worker_that_restarts_under_its_old_id_does_not_inherit_its_leases(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """K9b (procrastinate#1518): a pod came back with the same name, and its heartbeat revived unused leases."""
    old = await run(engine, worker, instance="before")
    new = await run(engine, worker, instance="after")
    for _ in range(3):
        await sweep(engine, clock, 10)
        assert (await engine.heartbeat(worker, [held(new)])).lost == []

    assert (await engine.reads.get(old.id)).state is State.RETRYING
    assert (await engine.reads.get(new.id)).state is State.RUNNING


async def test_k12_a_long_job_with_heartbeats_is_never_reaped(engine: Engine, worker: str, clock: MovableClock) -> None:
    """K12 (hexpm/hexpm#1825, oban-bg/oban#1141): time alone rescued 47-minute jobs and ran them two or three times."""
    lease = await run(engine, worker)
    thief = (await engine.workers.register()).id
    for _ in range(47 * 6):
        assert await sweep(engine, clock, 10) == []
        assert (await engine.heartbeat(worker, [held(lease)])).lost == []
    assert await engine.claim(thief) == []

    await engine.complete(worker, lease.id, lease.token)
    assert len(await engine.reads.attempts(lease.id)) == 1


async def test_k15_a_job_far_in_the_future_is_claimed_once_when_its_time_comes(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """K15 (celery/kombu#337, celery/celery#2599): an ETA beyond the broker's timeout executed many copies."""
    year = 366 * 86_400
    job = await engine.create(NewJob(type="n", run_at=clock.now() + timedelta(seconds=year)))
    for _ in range(12):
        assert await engine.claim(worker, limit=9) == []
        assert (await engine.maintenance.requeue_due(), await engine.maintenance.reap()) == (0, [])
        clock.advance(year / 12 - 0.001)
    clock.advance(0.012)
    [lease] = await engine.claim(worker, limit=9)
    await engine.complete(worker, lease.id, lease.token)

    assert lease.id == job.id
    assert [event.verb for event in await engine.reads.history(job.id)] == ["create", "claim", "complete"]
    assert await engine.claim(worker, limit=9) == []


# -- fencing ----------------------------------------------------------------------------------------------------------


async def test_k26_a_late_heartbeat_does_not_take_the_lease_back(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """K26 (brendanlong/lion-reader#917): a stalled worker came to, beat, and had the job of its successor."""
    stalled = await run(engine, worker)
    clock.advance(30)
    successor = (await engine.workers.register()).id
    [current] = await engine.claim(successor)
    assert current.id == stalled.id
    before = await stored(engine, stalled.id)

    assert (await engine.heartbeat(worker, [held(stalled)])).lost == [stalled.id]

    assert await stored(engine, stalled.id) == before
    assert (await engine.heartbeat(successor, [held(current)])).lost == []


@pytest.mark.parametrize("successor", ["another worker", "the same worker"])
async def test_k27_no_write_of_an_old_attempt_reaches_the_next_one(
    engine: Engine, worker: str, clock: MovableClock, successor: str
) -> None:
    """K27 (nazarli-shabnam/clevis#262), H3: `WHERE status = 'processing'` alone matched the next owner's run."""
    old = await run(engine, worker, lifecycle="default")
    clock.advance(30)
    holder = worker if successor == "the same worker" else (await engine.workers.register()).id
    [new] = await engine.claim(holder)
    before = await stored(engine, old.id)

    writes: Iterable[Awaitable[Any]] = (
        engine.complete(worker, old.id, old.token, {"stale": True}),
        engine.fail(worker, old.id, old.token, "E_STALE"),
        engine.fail(worker, old.id, old.token, "E_STALE", permanent=True),
        engine.release(worker, old.id, old.token),
        engine.reject(worker, old.id, old.token, "E_STALE"),
        engine.progress(worker, Progress(id=old.id, token=old.token, percent=99, parts=[Part(name="a")])),
        engine.complete(worker, old.id, UNKNOWN_ID),
    )
    for write in writes:
        with pytest.raises(LeaseLost):
            await write
        assert await stored(engine, old.id) == before
    await engine.complete(holder, new.id, new.token, {"stale": False})
    assert (await engine.reads.get(old.id)).result == {"stale": False}


@pytest.mark.parametrize("order", list(permutations(["claim", "cancel", "complete"])), ids="-".join)
async def test_k41_cancel_claim_and_complete_in_every_order(
    engine: Engine, worker: str, order: tuple[str, ...]
) -> None:
    """K41 (SamSaffron/term-llm#918): cancel overwrote a run that had just started or just finished."""
    job = await engine.create(NewJob(type="n"))
    token = UNKNOWN_ID
    said: dict[str, bool] = {}
    for verb in order:
        try:
            match verb:
                case "claim":
                    leases = await engine.claim(worker)
                    token = leases[0].token if leases else UNKNOWN_ID
                    said[verb] = bool(leases)
                case "cancel":
                    await engine.cancel(job.id)
                    said[verb] = True
                case _:
                    await engine.complete(worker, job.id, token)
                    said[verb] = True
        except Conflict:
            said[verb] = False

    canceled_first = order.index("cancel") < order.index("claim")
    completed = not canceled_first and order.index("claim") < order.index("complete")
    finished_first = completed and order.index("complete") < order.index("cancel")
    assert said == {"claim": not canceled_first, "complete": completed, "cancel": not finished_first}
    state = State.CANCELED if canceled_first else State.SUCCEEDED if completed else State.RUNNING
    row = await engine.reads.get(job.id)
    assert row.state is state
    assert (row.cancel_requested_at is not None) == said["cancel"]
    assert await final_states(engine, job.id) == ([state] if row.final else [])


async def test_k41_concurrent_cancel_claim_and_complete_give_each_job_one_end(engine: Engine, worker: str) -> None:
    """K41: under concurrency, each job has one final state, and every caller got the matching answer."""
    jobs = await engine.create_many([NewJob(type="n") for _ in range(40)])

    async def work() -> None:
        while leases := await engine.claim(worker, limit=3):
            for lease in leases:
                await engine.complete(worker, lease.id, lease.token)

    answers, *_ = await asyncio.gather(
        asyncio.gather(*(engine.cancel(job.id) for job in jobs), return_exceptions=True), work(), work()
    )
    await work()

    for job, answer in zip(jobs, answers, strict=True):
        row = await engine.reads.get(job.id)
        assert await final_states(engine, job.id) == [row.state]
        if isinstance(answer, BaseException):
            assert isinstance(answer, Conflict)
            assert row.state is State.SUCCEEDED
        elif answer.canceled:
            assert row.state is State.CANCELED
        else:
            assert row.state is State.SUCCEEDED
            assert row.cancel_requested_at is not None


@pytest.mark.parametrize("reaper", ["the sweeper", "a claim"])
@pytest.mark.parametrize("lifecycle", [machine.name for machine in Lifecycles()])
async def test_k42_a_job_with_one_attempt_runs_once(
    engine: Engine, worker: str, clock: MovableClock, lifecycle: str, reaper: str
) -> None:
    """K42 (sourceant/sourceant#144): reclaim ignored the remaining attempts; `max_attempts=1` ran twice."""
    policy = {"lease_seconds": 60, "no_progress_seconds": 120, "max_attempts": 1}
    lease = await run(engine, worker, lifecycle=lifecycle, policy=policy)
    clock.advance(3600)
    if reaper == "the sweeper":
        await engine.maintenance.reap()
    other = (await engine.workers.register()).id
    for _ in range(3):
        assert await engine.claim(other, limit=9) == []
        clock.advance(5)

    job = await engine.reads.get(lease.id)
    assert (job.state, job.attempt, job.epoch) == (State.DEAD, 1, 1)
    assert await final_states(engine, lease.id) == ["dead"]


# -- idempotency ------------------------------------------------------------------------------------------------------


async def test_k39_two_hundred_concurrent_equal_requests_make_one_job(
    engine: Engine, store_url: str, clock: MovableClock
) -> None:
    """K39 (thesongzhu/Friday#403, idempot-js#186), R001-33, R001-44, R001-59, R001-83: two servers, one job."""
    ids = SeededIds(9)
    second = Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids)
    request = NewJob(type="pay", payload={"sum": 1}, idempotency_key="req-1")
    other = NewJob(type="pay", payload={"sum": 2}, idempotency_key="req-2")

    batches = await asyncio.gather(
        *(server.create_many([request]) for server in (engine, second) for _ in range(50)),
        *(server.create_many([other, request]) for server in (engine, second) for _ in range(50)),
    )
    await second.close()

    ones = [batch[-1] for batch in batches]
    assert len({one.id for one in ones}) == 1
    assert sum(not one.existed for one in ones) == 1
    [counted] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    assert counted["jobs"] == 2


# -- deadlocks --------------------------------------------------------------------------------------------------------


async def test_k36_batches_in_every_order_never_surface_a_deadlock(
    fresh_postgres_url: str, clock: MovableClock
) -> None:
    """K36 (oban-bg/oban#168, getsentry/taskbroker#778): a pruner and batch updates deadlocked each other."""
    ids = SeededIds(6)
    engines = [Engine(await open_store(fresh_postgres_url, clock, ids), clock=clock, ids=ids) for _ in range(2)]
    first = engines[0]
    worker = (await first.workers.register()).id
    await first.create_many([NewJob(type=f"type-{n % 3}", max_attempts=9) for n in range(300)])
    leases = await first.claim(worker, limit=300, instance="here")
    keep = Retention(succeeded=0, dead=0, canceled=0, rejected=0)

    async def storm(seed: int) -> None:
        random, engine = Random(seed), engines[seed % 2]
        for _ in range(12):
            batch = random.sample(leases, 40)
            match seed % 8:
                case 0 | 1:
                    await engine.heartbeat(worker, [held(lease) for lease in batch])
                case 2:
                    await engine.complete_many(worker, [Complete(lease.id, lease.token) for lease in batch[:10]])
                case 3:
                    await engine.fail_many(
                        worker, [Fail(id=lease.id, token=lease.token, code="E") for lease in batch[:10]]
                    )
                case 4:
                    await engine.maintenance.reap(gone=["here"], limit=5)
                    await engine.maintenance.requeue_due()
                case 5:
                    await engine.maintenance.prune(keep, limit=5)
                case 6:
                    await engine.progress_many(
                        worker, [Progress(id=lease.id, token=lease.token, counters={"n": seed}) for lease in batch]
                    )
                case _:
                    await engine.claim(worker, limit=5, instance="there")
                    await engine.release_many(worker, [Release(lease.id, lease.token) for lease in batch[:5]])

    await asyncio.gather(*(storm(seed) for seed in range(16)))
    await assert_consistent(first)
    for engine in engines:
        await engine.close()
    connection = await asyncpg.connect(fresh_postgres_url)
    deadlocks = await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    await connection.close()
    assert deadlocks == 0, "the store would have retried them; a fixed order of locks has none"
