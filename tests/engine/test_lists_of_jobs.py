"""The lists of claimable, running and other jobs: the same history gives the same lists on both databases."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.model import Lease, NewJob
from holdfast.store import open_store, q
from holdfast.store.migrate import migrate
from tests.engine.steps import ask, run

NEEDS = '["notes"]'
LANE = "(SELECT digest FROM holdfast_lanes l WHERE l.id = r.lane)"  # each database numbers lanes in its own way


class EvenIds(Ids):
    """The same backoff on both databases."""

    def jitter(self) -> float:
        return 0.5


class Walk:
    """A random history of some jobs, made by the engine's verbs; jobs are named by the order of their creation."""

    def __init__(self, engine: Engine, clock: MovableClock, worker: str, seed: int) -> None:
        self.engine, self.clock, self.worker = engine, clock, worker
        self.random = random.Random(seed)
        self.jobs: list[str] = []
        self.leases: dict[str, Lease] = {}
        self.verbs: list[Callable[[], Awaitable[object]]] = [
            *(
                self.create,
                self.create,
                self.create_delayed,
                self.create_unaccepted,
                self.accept,
                self.claim,
                self.claim,
            ),
            *(
                self.complete,
                self.fail,
                self.fail_for_good,
                self.release,
                self.release_later,
                self.cancel,
                self.requeue,
            ),
            *(self.wake, self.defer, self.need_hooks, self.free, self.reap, self.mark_due, self.drop_batches),
        ]

    async def step(self) -> str:
        self.clock.advance(self.random.choice([0.001, 0.001, 1.5, 7]))
        verb = self.random.choice(self.verbs)
        try:
            await verb()
        except HoldfastError as refused:
            return f"{verb.__name__}: {refused.code}"
        return verb.__name__

    # -- verbs ----------------------------------------------------------------------------------------------------

    async def create(self, *, accept: bool = True, **job: Any) -> None:
        new = NewJob(
            type=self.random.choice("ab"), priority=self.random.randrange(3), tenant=self.random.choice("xy"), **job
        )
        self.jobs.append((await self.engine.create(new, accept=accept)).id)

    async def create_delayed(self) -> None:
        await self.create(delay_seconds=self.random.choice([1, 5, 20]))

    async def create_unaccepted(self) -> None:
        await self.create(accept=False, lifecycle="orchestration")

    async def accept(self) -> None:
        await self.engine.accept(self.any())

    async def claim(self) -> None:
        for lease in await self.engine.claim(self.worker, limit=self.random.choice([1, 2, 5])):
            self.leases[lease.id] = lease

    async def complete(self) -> None:
        await self.engine.complete(*self.held())

    async def fail(self) -> None:
        await self.engine.fail(*self.held(), "E_WALK", retry_after_seconds=self.random.choice([0, 3, 12]))

    async def fail_for_good(self) -> None:
        await self.engine.fail(*self.held(), "E_WALK", permanent=True)

    async def release(self) -> None:
        await self.engine.release(*self.held())

    async def release_later(self) -> None:
        await self.engine.release(*self.held(), delay_seconds=4)

    async def cancel(self) -> None:
        await self.engine.cancel(self.any())

    async def requeue(self) -> None:
        await self.engine.requeue(self.any())

    async def wake(self) -> None:
        await self.engine.wake(self.any())

    async def defer(self) -> None:
        rows = [(self.any(), 5.0, "deferred")]
        await self.engine.store.write(lambda tx: tx.all(q.defer_jobs, deferred=rows))

    async def need_hooks(self) -> None:
        """No process of this test has them: nobody claims the job meanwhile."""
        await self.set_needs(f"'{NEEDS}'")

    async def free(self) -> None:
        await self.set_needs("NULL")

    async def set_needs(self, needs: str) -> None:
        change = f"UPDATE holdfast_jobs SET needs = {needs} WHERE id = :id AND finished_at IS NULL RETURNING id"
        await ask(self.engine, change, id=self.any())

    async def reap(self) -> None:
        for _ in range(self.random.choice([1, 5])):
            self.clock.advance(10)
            await self.engine.maintenance.reap()

    async def mark_due(self) -> None:
        await self.engine.maintenance.requeue_due()

    async def drop_batches(self) -> None:
        await self.engine.maintenance.drop_claim_batches()

    # -- what it uses and what it leaves ---------------------------------------------------------------------------

    def any(self) -> str:
        return self.random.choice(self.jobs or ["00000000-0000-4000-8000-000000000000"])

    def held(self) -> tuple[str, str, str]:
        if not self.leases:
            return self.worker, self.any(), "00000000-0000-4000-8000-000000000000"
        lease = self.leases.pop(self.random.choice(sorted(self.leases, key=self.jobs.index)))
        return self.worker, lease.id, lease.token

    async def lists(self) -> dict[str, list[tuple[Any, ...]]]:
        place = {job: number for number, job in enumerate(self.jobs)}

        async def rows(sql: str) -> list[tuple[Any, ...]]:
            return sorted((place[job], *rest) for job, *rest in map(tuple, await ask(self.engine, sql)))

        return {
            "jobs": await rows("SELECT id, state, due, parked, parked_at FROM holdfast_jobs"),
            "ready": await rows(f"SELECT r.id, {LANE}, priority, hooked, run_at FROM holdfast_ready r"),
            "due": await rows(
                f"SELECT r.id, {LANE}, priority, needs IS NOT NULL, run_at FROM holdfast_jobs r WHERE due"
            ),
            "running": await rows("SELECT id FROM holdfast_running"),
            "open": await rows("SELECT id, type, needs FROM holdfast_open_jobs"),
            "unfinished": await rows("SELECT id, type, needs FROM holdfast_jobs WHERE finished_at IS NULL"),
        }


@asynccontextmanager
async def walking(url: str, seed: int) -> AsyncIterator[Walk]:
    clock, ids = MovableClock(), EvenIds()
    await migrate(url)
    engine = Engine(await open_store(url, clock, ids), clock=clock, ids=ids)
    try:
        yield Walk(engine, clock, (await engine.workers.register(name="walker")).id, seed)
    finally:
        await engine.close()


@pytest.mark.parametrize("seed", range(3))
async def test_the_same_history_leaves_the_same_lists(
    fresh_postgres_url: str, fresh_sqlite_url: str, seed: int
) -> None:
    """After each step: a claimable job has one row in holdfast_ready and no other job has one; each unfinished job is
    in one list; and both databases agree."""
    did: set[str] = set()
    async with walking(fresh_postgres_url, seed) as one, walking(fresh_sqlite_url, seed) as other:
        for number in range(120):
            step = await one.step()
            assert await other.step() == step
            did.add(step)
            on_postgres, on_sqlite = await one.lists(), await other.lists()
            assert on_postgres == on_sqlite, (number, step)
            assert on_postgres["ready"] == on_postgres["due"], (number, step)
            assert on_postgres["open"] == on_postgres["unfinished"], (number, step)
            running = [(place,) for place, state, *_ in on_postgres["jobs"] if state == "running"]
            assert on_postgres["running"] == running, (number, step)
    assert len({step for step in did if ":" not in step}) >= 15, did


# -- PostgreSQL only: holdfast_claim_batches ------------------------------------------------------------------------


@pytest.fixture
async def engine(fresh_postgres_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    engine = Engine(await open_store(fresh_postgres_url, clock, Ids()), clock=clock)
    yield engine
    await engine.close()


async def batches(engine: Engine) -> list[list[str]]:
    rows = await ask(engine, "SELECT ids FROM holdfast_claim_batches ORDER BY claimed_at")
    return sorted(sorted(map(str, row["ids"])) for row in rows)


async def running(engine: Engine) -> list[str]:
    return [row["id"] for row in await ask(engine, "SELECT id FROM holdfast_running ORDER BY id")]


async def leased(engine: Engine, worker: str, number: int) -> list[Lease]:
    await engine.create_many([NewJob(type="n")] * number)
    leases = await engine.claim(worker, limit=number)
    assert len(leases) == number
    return leases


async def complete(engine: Engine, worker: str, leases: list[Lease]) -> None:
    for lease in leases:
        await engine.complete(worker, lease.id, lease.token)


async def test_a_claim_is_one_batch_and_ended_jobs_stay_in_it_until_maintenance(engine: Engine, worker: str) -> None:
    leases = await leased(engine, worker, 4)
    ids = sorted(lease.id for lease in leases)
    assert await batches(engine) == [ids]
    await complete(engine, worker, leases[:1])
    assert await batches(engine) == [ids]
    assert await running(engine) == sorted(lease.id for lease in leases[1:])


async def test_drop_claim_batches_deletes_ended_batches_and_shortens_half_ended_ones(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    ended, half, most = [await leased(engine, worker, 4) for _ in range(3)]
    await complete(engine, worker, ended)
    await complete(engine, worker, half[:2])
    await complete(engine, worker, most[:1])
    held = sorted(lease.id for lease in [*half[2:], *most[1:]])
    assert await running(engine) == held
    assert await engine.maintenance.drop_claim_batches() == 0, "a claim of this moment may not have committed its jobs"
    clock.advance(2)
    assert await engine.maintenance.drop_claim_batches() == 1
    assert await batches(engine) == sorted([sorted(lease.id for lease in half[2:]), sorted(lease.id for lease in most)])
    assert await running(engine) == held
    await complete(engine, worker, [*half[2:], *most[1:]])
    assert await engine.maintenance.drop_claim_batches() == 2
    assert await batches(engine) == []


async def test_a_job_in_two_batches_is_listed_once_and_survives_the_end_of_either(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    first, beside = await leased(engine, worker, 2)
    await engine.release(worker, first.id, first.token)
    clock.advance(1)
    [again] = await engine.claim(worker)
    assert again.id == first.id
    assert await batches(engine) == sorted([sorted([first.id, beside.id]), [first.id]])
    assert await running(engine) == sorted([first.id, beside.id])
    await complete(engine, worker, [beside])
    clock.advance(2)
    await engine.maintenance.drop_claim_batches()
    assert await running(engine) == [first.id]
    await complete(engine, worker, [again])
    assert await running(engine) == []
    await engine.maintenance.drop_claim_batches()
    assert await batches(engine) == []


async def test_due_work_says_that_there_are_batches_to_drop(engine: Engine, worker: str, clock: MovableClock) -> None:
    async def due() -> bool:
        return (await engine.polls.due_work(workers_kept=86_400.0, claims_kept=3600)).batches

    lease = await run(engine, worker)
    await complete(engine, worker, [lease])
    assert not await due()
    clock.advance(2)
    assert await due()
    assert await engine.maintenance.drop_claim_batches() == 1
    assert not await due()


# -- PostgreSQL only: rows of holdfast_ready whose job is not claimable ----------------------------------------------


async def leave_row(engine: Engine, job_id: str) -> None:
    """A row like the one of this job, which stays behind when the job is no longer claimable."""
    copied = "SELECT lane, priority, hooked, id, run_at FROM holdfast_ready WHERE id = :id"
    await ask(engine, f"CREATE TABLE kept AS {copied.replace(':id', repr(job_id))}")
    await engine.cancel(job_id)
    await ask(engine, "INSERT INTO holdfast_ready SELECT * FROM kept RETURNING id")
    await ask(engine, "DROP TABLE kept")


async def test_only_stale_rows_of_the_given_lanes_are_dropped(engine: Engine) -> None:
    stale, good = [await engine.create(NewJob(type="n")) for _ in range(2)]
    other = await engine.create(NewJob(type="other"))
    lane = (await engine.reads.get(stale.id)).lane
    for job in (stale, other):
        await leave_row(engine, job.id)
    rows = await engine.store.write(lambda tx: tx.all(q.drop_stale_ready, lanes=[lane]))
    assert [row["dropped"] for row in rows] == [1]
    assert await ready(engine) == [good.id, other.id]


async def test_a_job_with_a_stale_row_is_not_listed_as_open(engine: Engine) -> None:
    stale, good = [await engine.create(NewJob(type="n")) for _ in range(2)]
    await leave_row(engine, stale.id)
    assert [row["id"] for row in await ask(engine, "SELECT id FROM holdfast_open_jobs")] == [good.id]


async def ready(engine: Engine) -> list[str]:
    return [row["id"] for row in await ask(engine, "SELECT id FROM holdfast_ready ORDER BY id")]


async def test_claimable_jobs_leaves_out_a_job_with_a_stale_row(engine: Engine) -> None:
    """As a claim of a job type with hooks does."""
    stale, good = [await engine.create(NewJob(type="n")) for _ in range(2)]
    lane = (await engine.reads.get(stale.id)).lane
    await leave_row(engine, stale.id)
    asked = {"lane": lane, "floor": -100, "ceiling": 100, "waits": 0.0, "most": 9}
    rows = await engine.store.write(lambda tx: tx.all(engine.ctx.mine(q.claimable_jobs), **asked))
    assert [row["id"] for row in rows] == [good.id]


async def test_a_stale_row_hides_nothing_and_is_deleted(engine: Engine, worker: str) -> None:
    """It is the head of its lane, and the only job behind it has a lower priority."""
    stale = await engine.create(NewJob(type="n", priority=5))
    good = await engine.create(NewJob(type="n"))
    other = await engine.create(NewJob(type="other", priority=3))
    await leave_row(engine, stale.id)
    assert await ready(engine) == [stale.id, good.id, other.id]
    found = [lease.id for _ in range(3) for lease in await engine.claim(worker)]
    assert sorted(found) == [good.id, other.id]
    assert await ready(engine) == []
    assert await engine.claim(worker) == []


async def test_stale_rows_alone_are_deleted_by_the_claim_that_meets_them(engine: Engine, worker: str) -> None:
    stale = await engine.create(NewJob(type="n"))
    await leave_row(engine, stale.id)
    assert await engine.claim(worker, limit=3) == []
    assert await ready(engine) == []
