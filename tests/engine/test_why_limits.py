"""why: the limit that is in the way of a job."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads.job_limits import LimitOfJob
from holdfast.model import NewJob
from holdfast.model.limits import Limit


async def two(engine: Engine, worker: str, **fields: Any) -> str:
    """A job that runs, and one like it that waits: its id."""
    for _ in range(2):
        made = await engine.create(NewJob(**{"type": "crawl", **fields}))
    assert len(await engine.claim(worker, limit=10)) == 1
    return made.id


async def limits(engine: Engine, job_id: str) -> list[tuple[bool, str]]:
    return [(clause.holds, clause.says) for clause in await engine.reads.why(job_id) if clause.name == "limit"]


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("type:crawl", {}, "limit 'type:crawl': 1 of 1 unit in use"),
        ("queue:default", {}, "limit 'queue:default': 1 of 1 unit in use"),
        ("tenant:acme", {"tenant": "acme"}, "limit 'tenant:acme': 1 of 1 unit in use"),
        ("gpu", {"limits": {"gpu": 1}}, "limit 'gpu': 1 of 1 unit in use"),
        ("key:crawl", {"limit_key": "a.com"}, "limit 'key:crawl' for key 'a.com': 1 of 1 unit in use"),
        ("key:crawl a.com", {"limit_key": "a.com"}, "limit 'key:crawl a.com': 1 of 1 unit in use"),
    ],
)
async def test_why_names_the_limit_that_is_full(
    engine: Engine, worker: str, name: str, fields: dict[str, Any], says: str
) -> None:
    await engine.job_limits.set(name, Limit(1), by="alice")
    assert await limits(engine, await two(engine, worker, **fields)) == [(False, says)]


async def test_why_says_when_a_rate_allows_the_next_job(engine: Engine, worker: str, clock: MovableClock) -> None:
    await engine.job_limits.set("type:crawl", Limit.of(rate="1/10s"), by="alice")
    waits = await two(engine, worker)
    clock.advance(4)
    says = "limit 'type:crawl': its rate of 6/min is used up for 6.0 s more"
    assert await limits(engine, waits) == [(False, says)]
    clock.advance(6)
    assert await limits(engine, waits) == [(True, "limit 'type:crawl' is open")]


async def test_why_explains_a_rate_of_0(engine: Engine, worker: str) -> None:
    await engine.job_limits.set("type:crawl", Limit.of(rate=0), by="alice")
    waits = await two(engine, worker)
    assert await limits(engine, waits) == [(False, "limit 'type:crawl': its rate of 0/s is used up")]


async def test_why_explains_a_job_that_takes_more_units_than_its_limit_has(engine: Engine, worker: str) -> None:
    await engine.job_limits.set("gpu", Limit(4), by="alice")
    made = await engine.create(NewJob(type="crawl", limits={"gpu": 5}))
    assert await engine.claim(worker) == []
    assert await limits(engine, made.id) == [(False, "it takes 5 units of limit 'gpu', which has 4, so it never runs")]


async def test_why_lists_limits_that_have_units_left(engine: Engine, worker: str) -> None:
    await engine.job_limits.set("gpu", Limit(4), by="alice")
    await engine.job_limits.set("type:crawl", Limit(1), by="alice")
    waits = await two(engine, worker, limits={"gpu": 2})
    assert await limits(engine, waits) == [
        (True, "limit 'gpu': 2 of 4 units in use"),
        (False, "limit 'type:crawl': 1 of 1 unit in use"),
    ]
    await engine.job_limits.set("gpu", Limit(3), by="alice")
    assert (await limits(engine, waits))[0] == (False, "it takes 2 units of limit 'gpu': 2 of 3 units in use")


async def test_the_limit_of_one_key_replaces_that_of_each_key(engine: Engine, worker: str) -> None:
    await engine.job_limits.set("key:crawl", Limit(1), by="alice")
    waits = await two(engine, worker, limit_key="a.com")
    await engine.job_limits.set("key:crawl a.com", Limit(2), by="alice")
    assert await limits(engine, waits) == [(True, "limit 'key:crawl a.com': 1 of 2 units in use")]


async def test_why_counts_the_tokens_of_the_job_s_own_limits(engine: Engine, worker: str) -> None:
    for name in ("type:crawl", "type:zzz"):
        await engine.job_limits.set(name, Limit(rate=0.01, burst=1.0), by="alice")
    await engine.create(NewJob(type="zzz"))
    assert len(await engine.claim(worker)) == 1
    made = await engine.create(NewJob(type="crawl"))
    assert await limits(engine, made.id) == [(True, "limit 'type:crawl' is open")]


async def test_a_job_has_the_limits_in_force_and_holds_units_while_it_runs(engine: Engine, worker: str) -> None:
    await engine.job_limits.set("gpu", Limit(5), by="alice")
    await engine.job_limits.set("type:crawl", Limit(2), by="alice")
    ids = [(await engine.create(NewJob(type="crawl", limits={"gpu": units}))).id for units in (3, 2)]
    takes = [LimitOfJob("gpu", Limit(5), 3, held=0), LimitOfJob("type:crawl", Limit(2), 1, held=0)]
    assert await engine.reads.limits_of(await engine.reads.get(ids[0])) == takes
    leases = {lease.id: lease for lease in await engine.claim(worker, limit=2)}
    running = [await engine.reads.get(job_id) for job_id in ids]
    held = [{limit.name: limit.held for limit in await engine.reads.limits_of(job)} for job in running]
    assert held == [{"gpu": 3, "type:crawl": 1}, {"gpu": 2, "type:crawl": 1}]
    await engine.complete(worker, ids[0], leases[ids[0]].token)
    assert await engine.reads.limits_of(await engine.reads.get(ids[0])) == []
