"""Ageing: with `ageing_seconds`, a job that has waited becomes more urgent, so that no priority starves another."""

from dataclasses import replace

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob


async def claimed(engine: Engine, worker: str, limit: int = 1, **asked: list[str]) -> list[str]:
    return [lease.payload["name"] for lease in await engine.claim(worker, limit=limit, **asked)]


def job(name: str, priority: int = 0, **fields: str) -> NewJob:
    return NewJob(type="n", payload={"name": name}, priority=priority, **fields)


@pytest.fixture
def ageing(engine: Engine) -> Engine:
    """One step of priority for every ten seconds."""
    engine.ctx.limits = replace(engine.ctx.limits, ageing_seconds=10.0)
    return engine


async def test_a_job_that_has_waited_long_enough_runs_before_a_more_urgent_new_one(
    ageing: Engine, worker: str, clock: MovableClock
) -> None:
    await ageing.create(job("old", 0))
    clock.advance(31)
    await ageing.create(job("urgent", 3))
    await ageing.create(job("more urgent", 4))

    assert [await claimed(ageing, worker) for _ in range(3)] == [["more urgent"], ["old"], ["urgent"]]


async def test_without_ageing_priority_alone_decides(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.create(job("old", 0))
    clock.advance(3600)
    await engine.create(job("urgent", 1))

    assert [await claimed(engine, worker) for _ in range(2)] == [["urgent"], ["old"]]


async def test_a_stream_of_urgent_jobs_does_not_starve_an_old_one(
    ageing: Engine, worker: str, clock: MovableClock
) -> None:
    await ageing.create(job("old", -2))
    order: list[str] = []
    for number in range(10):
        await ageing.create(job(f"urgent {number}", 5))
        clock.advance(10)
        order += await claimed(ageing, worker)

    assert "old" in order


async def test_one_claim_takes_jobs_of_several_priorities_and_lanes_by_age(
    ageing: Engine, worker: str, clock: MovableClock
) -> None:
    await ageing.create(job("oldest", 0, queue="a"))
    clock.advance(20)
    await ageing.create(job("older", 1, queue="b"))
    clock.advance(20)
    await ageing.create_many([job("new", 2, queue="a"), job("last", 0, queue="b")])

    first = await claimed(ageing, worker, 2)

    assert set(first) == {"oldest", "older"}
    assert set(await claimed(ageing, worker, 10)) == {"new", "last"}


async def test_ageing_takes_all_levels_of_a_single_lane(ageing: Engine, worker: str) -> None:
    await ageing.create_many([job(str(priority), priority) for priority in (5, 0, -5, 5)])

    assert sorted(await claimed(ageing, worker, 10)) == ["-5", "0", "5", "5"]


async def test_customers_take_turns_also_if_one_has_the_older_jobs(
    ageing: Engine, worker: str, clock: MovableClock
) -> None:
    await ageing.create_many([job(f"x {number}", fairness_key="x") for number in range(20)])
    clock.advance(25)
    await ageing.create_many([job(f"y {number}", fairness_key="y") for number in range(5)])
    order = []
    for _ in range(8):
        order += await claimed(ageing, worker)
        clock.advance(0.01)
    assert [name[0] for name in order] == [*"xyxyxyxy"]
