"""The statements that read and write limits and shares: each takes the rows of its name alone."""

from typing import Any

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.store import Row, q
from holdfast.store.queries import Query
from tests.engine.limiting import limit
from tests.engine.steps import ask
from tests.store.by_hand import OTHER


async def write(engine: Engine, query: Query, **params: Any) -> list[Row]:
    return await engine.store.write(lambda tx: tx.all(query, **params))


async def names(engine: Engine, query: Query, **params: Any) -> list[str]:
    return [row["name"] for row in await write(engine, query, **params)]


async def test_a_limit_is_read_locked_and_dropped_by_its_name(engine: Engine) -> None:
    for name in ("cpu", "gpu"):
        await limit(engine, name, concurrency=5)
    for query in (q.limit, q.lock_limit, q.drop_limit):
        assert await names(engine, query, name="other") == []
        assert await names(engine, query, name="gpu") == ["gpu"]
    assert await names(engine, q.limits) == ["cpu"]


async def test_each_limit_is_listed_with_the_units_of_its_own_bucket(engine: Engine, worker: str) -> None:
    for name in ("cpu", "gpu", "net"):
        await limit(engine, name, concurrency=9)
    job = await engine.create(NewJob(type="n", limits={"cpu": 2, "gpu": 3}))
    await engine.claim(worker)
    rows = await write(engine, q.limits)
    assert {row["name"]: row["used"] for row in rows} == {"cpu": 2, "gpu": 3, "net": 0}
    asked = [(name, name, 1) for name in ("gpu", "net")]
    found = await write(engine, q.limits_of_job, id=job.id, asked=asked)
    assert {row["name"]: (row["used"], row["held"]) for row in found} == {"gpu": (3, 3), "net": (0, None)}
    found = await write(engine, q.limit_usage, asked=[(name,) for name in ("cpu", "net")])
    assert {row["bucket"]: row["used"] for row in found} == {"cpu": 2, "net": 0}


async def test_tokens_belong_to_their_bucket(engine: Engine, clock: MovableClock) -> None:
    for name in ("cpu", "gpu", "net"):
        await limit(engine, name, rate=1, burst=9)
    spent = [("cpu", 2.0, clock.now(), 60.0), ("gpu", 3.0, clock.now(), 60.0)]
    await write(engine, q.spend_tokens, spent=spent)
    asked = [(name,) for name in ("gpu", "net")]
    found = await write(engine, q.limit_usage, asked=asked)
    assert {row["bucket"]: row["tokens"] for row in found} == {"gpu": 3.0, "net": None}
    found = await write(engine, q.limits_of_job, id=OTHER, asked=[(name, name, 1) for name in ("gpu", "net")])
    assert {row["name"]: row["tokens"] for row in found} == {"gpu": 3.0, "net": 9.0}
    found = await write(engine, q.lock_limits, asked=[("gpu", "gpu"), ("unknown", "unknown")])
    assert [row["bucket"] for row in found] == ["gpu"]


async def test_a_share_is_set_for_its_tenant_if_it_changes_and_read_if_it_is_not_one(engine: Engine) -> None:
    for tenant in ("a", "b"):
        await engine.create(NewJob(type="n", tenant=tenant))
    assert await names(engine, q.weights) == []
    assert await names(engine, q.set_weight, name="a", weight=3) == ["a"]
    assert await names(engine, q.set_weight, name="a", weight=3) == []
    assert await names(engine, q.set_weight, name="unknown", weight=3) == []
    assert await names(engine, q.weights) == ["a"]
    rows = await ask(engine, "SELECT name, weight FROM holdfast_tenants WHERE name IN ('a', 'b') ORDER BY name")
    assert [tuple(row) for row in rows] == [("a", 3), ("b", 1)]
