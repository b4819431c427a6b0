"""What `holdfast bench` asks: only about jobs of its own type, and only about those of this run."""

from typing import Any

from holdfast.cli.bench.app import NAME
from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.ids import uuid7_floor
from holdfast.lifecycle import State
from holdfast.lifecycle.default import DEFAULT
from holdfast.model import NewJob
from holdfast.store import Row, q
from holdfast.store.bench_baseline import TAKEN_AT_ONCE, BenchBaseline
from holdfast.store.queries import Query
from tests.engine.steps import ask as ask_by_hand
from tests.engine.steps import bring

TYPE = "mine"


async def ask(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.read(lambda tx: tx.all(query, type=TYPE, **params))


async def others(engine: Engine, worker: str) -> None:
    """Jobs of other types in every state."""
    for state in State:
        await bring(engine, worker, DEFAULT, state)


async def finished(engine: Engine, worker: str) -> str:
    """A new job of ours, done."""
    await engine.create(NewJob(type=TYPE))
    [lease] = await engine.claim(worker, types=[TYPE])
    await engine.complete(worker, lease.id, lease.token)
    return lease.id


async def test_bench_left_counts_waiting_and_running_jobs(engine: Engine, worker: str) -> None:
    await others(engine, worker)
    await finished(engine, worker)
    await engine.create_many([NewJob(type=TYPE)] * 3)
    await engine.claim(worker, types=[TYPE])
    [left] = await ask(engine, q.bench_left)
    assert (left["waiting"], left["running"]) == (2, 1)


async def test_bench_waiting_lists_claimable_jobs(engine: Engine, worker: str) -> None:
    await others(engine, worker)
    await finished(engine, worker)
    first, second, third = await engine.create_many([NewJob(type=TYPE)] * 3)
    [lease] = await engine.claim(worker, types=[TYPE])
    assert lease.id == first.id
    assert [row["id"] for row in await ask(engine, q.bench_waiting, limit=9)] == [second.id, third.id]
    assert len(await ask(engine, q.bench_waiting, limit=1)) == 1


async def test_bench_done_and_finished_cover_only_this_run(engine: Engine, worker: str, clock: MovableClock) -> None:
    await finished(engine, worker)
    clock.advance(10)
    floor, began = uuid7_floor(clock.now()), clock.now()
    await others(engine, worker)
    mine = [await finished(engine, worker)]
    clock.advance(5)
    mine.append(await finished(engine, worker))
    canceled = (await engine.create(NewJob(type=TYPE))).id
    await engine.cancel(canceled)
    await engine.create(NewJob(type=TYPE))
    [done] = await ask(engine, q.bench_done, first=floor)
    assert (done["jobs"], done["begun_at"], done["ended_at"]) == (2, began, clock.now())
    assert [row["id"] for row in await ask(engine, q.bench_finished, first=floor, limit=9)] == [*mine, canceled]
    assert len(await ask(engine, q.bench_finished, first=floor, limit=1)) == 1


async def test_the_bench_baseline_creates_and_drops_its_own_table(engine: Engine) -> None:
    baseline = BenchBaseline(engine.store, "{}")
    for _ in range(2):  # what is left of a run that was killed does no harm
        await baseline.make()
    await baseline.put()
    await baseline.put_many(TAKEN_AT_ONCE + 1)
    assert [await baseline.take_and_finish() for _ in range(3)] == [TAKEN_AT_ONCE, 2, 0]
    rows = await ask_by_hand(engine, "SELECT state, count(*) AS jobs FROM holdfast_bench GROUP BY state")
    assert [tuple(row) for row in rows] == [("done", TAKEN_AT_ONCE + 2)]
    await baseline.drop()
    await baseline.drop()


async def test_a_bench_run_does_not_change_the_history_of_other_jobs(engine: Engine, worker: str) -> None:
    await others(engine, worker)
    before = await ask_by_hand(engine, "SELECT job_id FROM holdfast_attempts ORDER BY job_id")
    await engine.create(NewJob(type=NAME))
    [lease] = await engine.claim(worker, types=[NAME])
    await engine.complete(worker, lease.id, lease.token)
    assert await engine.bench.remove_finished(NAME, lease.id) == 1
    assert before == await ask_by_hand(engine, "SELECT job_id FROM holdfast_attempts ORDER BY job_id")
    assert before != []
