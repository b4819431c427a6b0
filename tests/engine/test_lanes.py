"""With more lanes than one read sees, every claim finds a job if there is one, and none waits for all others."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import WorkerDisabled
from holdfast.model import NewJob
from holdfast.model.limits import Limit
from holdfast.store import Row
from holdfast.store.queries import Query, q

WINDOW = 4


@pytest.fixture
def small(engine: Engine) -> Engine:
    """One read of a claim sees four lanes."""
    engine.ctx.limits = replace(engine.ctx.limits, lanes_max=WINDOW)
    return engine


async def listed(engine: Engine, worker: str, **asked: Any) -> list[Row]:
    """What one read of a claim lists."""
    asked = {"after": 0, "by_tenant": False, "named": False, "queues": None, "types": None, "limit": 9, **asked}
    return await engine.store.read(lambda tx: tx.all(engine.ctx.mine(q.open_lanes), worker=worker, **asked))


async def test_open_lanes_lists_each_lane_once_or_those_of_the_asked_queues_and_types(
    engine: Engine, worker: str
) -> None:
    """Lanes that are not for the worker count as listed, and have no type."""
    for name in "ab":
        await engine.create(NewJob(type=name))
    await engine.create(NewJob(type="c", queue="other", tenant="other"))

    async def types(**asked: Any) -> list[str | None]:
        rows = await listed(engine, worker, **asked)
        assert all(row["id"] is not None for row in rows)
        return [row["type"] for row in rows]

    assert await types() == ["a", "b", "c"]
    assert await types(types=["a", "c"]) == ["a", None, "c"]
    assert await types(types=["a", "c"], named=True) == ["a", "c"]
    assert await types(queues=["other"], named=True) == ["c"]
    [first, *_] = await listed(engine, worker)
    assert await types(types=["a", "c"], named=True, after=first["id"]) == ["c"]
    assert await types(after=first["id"]) == ["b", "c"]


async def test_open_lanes_lists_the_lanes_for_one_worker(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="a", requires=["gpu"]))
    await engine.create(NewJob(type="b"))
    able, disabled = [(await engine.workers.register(capabilities={"gpu": True})).id for _ in range(2)]
    await engine.workers.disable(disabled)
    for who, types in ((worker, [None, "b"]), (able, ["a", "b"]), (disabled, [None, None])):
        assert [row["type"] for row in await listed(engine, who)] == types


async def fill(engine: Engine, lanes: int, *, each: int = 1, **job: Any) -> None:
    """Jobs in so many lanes, one for each in turn."""
    await engine.create_many([NewJob(type=f"type-{n:03}", **job) for _ in range(each) for n in range(lanes)])


async def claimed_types(engine: Engine, worker: str, claims: int, **scope: Any) -> list[str]:
    return [lease.type for _ in range(claims) for lease in await engine.claim(worker, **scope)]


@pytest.mark.parametrize("lanes", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 5 * WINDOW + 2])
async def test_each_claim_finds_a_job_until_there_is_none(small: Engine, worker: str, lanes: int) -> None:
    await fill(small, lanes, each=2)
    found = await claimed_types(small, worker, 2 * lanes)
    assert sorted(found) == sorted([f"type-{n:03}" for n in range(lanes)] * 2)
    assert await small.claim(worker) == []


@pytest.mark.parametrize("lanes", [WINDOW + 1, WINDOW + 2, 3 * WINDOW, 5 * WINDOW + 3])
async def test_every_lane_gets_its_turn_while_all_others_stay_full(small: Engine, worker: str, lanes: int) -> None:
    """Also the last ones, which do not fill a window."""
    await fill(small, lanes, each=lanes)
    round_of_windows = -(-lanes // WINDOW)
    found = await claimed_types(small, worker, 2 * WINDOW * round_of_windows)
    assert set(found) == {f"type-{n:03}" for n in range(lanes)}


async def test_a_large_claim_takes_from_as_many_lanes_as_it_needs(small: Engine, worker: str) -> None:
    await fill(small, 6 * WINDOW)
    assert len(await small.claim(worker, limit=6 * WINDOW)) == 6 * WINDOW


async def test_a_tenant_does_not_wait_until_the_window_has_passed_all_lanes_of_another(
    small: Engine, worker: str
) -> None:
    await fill(small, 10 * WINDOW, each=2, tenant="large")
    await small.create(NewJob(type="only", tenant="small"))
    assert "only" in await claimed_types(small, worker, 2)


@pytest.mark.parametrize("scope", [{"queues": ["rare"]}, {"types": ["rare"]}], ids=["queue", "type"])
async def test_a_worker_finds_its_rare_job_among_lanes_that_are_not_for_it(
    small: Engine, worker: str, scope: dict[str, list[str]]
) -> None:
    await fill(small, 50 * WINDOW)
    await small.create(NewJob(type="rare", queue="rare"))
    assert await claimed_types(small, worker, 1, **scope) == ["rare"]
    assert await claimed_types(small, worker, 1, **scope) == []


async def test_a_rare_job_is_found_behind_lanes_of_its_queue_that_are_empty(small: Engine, worker: str) -> None:
    """Each claim sees the next of them."""
    emptied = 3 * WINDOW + 1
    await fill(small, emptied, queue="rare")
    for _ in range(emptied):
        [lease] = await small.claim(worker)
        await small.complete(worker, lease.id, lease.token)
    await fill(small, 10 * WINDOW)
    await small.create(NewJob(type="last", queue="rare"))
    assert await claimed_types(small, worker, 2 + emptied // WINDOW, queues=["rare"]) == ["last"]


async def test_a_claim_with_a_request_id_sees_all_lanes_too(small: Engine, worker: str) -> None:
    await fill(small, 5 * WINDOW)
    await small.create(NewJob(type="rare", queue="rare"))
    leases = await small.claim_once(worker, "first", queues=["rare"])
    assert [lease.type for lease in leases or ()] == ["rare"]
    found = [await small.claim_once(worker, f"request-{n}") for n in range(5 * WINDOW)]
    assert [len(some or ()) for some in found] == [1] * 5 * WINDOW


async def test_lanes_that_an_earlier_claim_has_read_are_not_read_again(
    small: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(small, 5 * WINDOW)
    transaction = small.store.transaction_class
    original, asked = transaction.all, list[str]()

    async def noted(tx: Any, query: Query, **params: Any) -> Any:
        asked.append(query.name)
        return await original(tx, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    assert len(await claimed_types(small, worker, WINDOW, at_once=True)) == WINDOW
    assert asked.count("open_lanes") < WINDOW


async def test_every_lane_that_waits_for_its_turn_gets_it(engine: Engine, worker: str) -> None:
    """A read sees 40 lanes, and the claims after it take turns in them."""
    engine.ctx.limits = replace(engine.ctx.limits, lanes_max=40)
    await fill(engine, 100)
    assert sorted(await claimed_types(engine, worker, 100, at_once=True)) == [f"type-{n:03}" for n in range(100)]
    assert await engine.claim(worker) == []


async def test_a_tenant_with_few_lanes_gets_as_many_turns_as_one_with_many(engine: Engine, worker: str) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, lanes_max=40)
    await fill(engine, 100, tenant="large")
    await fill(engine, 20, tenant="small")
    found = [lease.tenant for _ in range(30) for lease in await engine.claim(worker, at_once=True)]
    assert found.count("small") in range(11, 19)


@pytest.mark.parametrize("change", ["pause", "limit", "disable"])
async def test_a_claim_from_lanes_read_earlier_respects_what_has_changed_since(
    small: Engine, worker: str, change: str
) -> None:
    await fill(small, 5 * WINDOW, queue="mail")
    assert len(await small.claim(worker, at_once=True)) == 1
    if change == "pause":
        await small.queues.pause("mail")
    elif change == "limit":
        await small.job_limits.set("queue:mail", Limit(concurrency=1), by="operator")
    else:
        await small.workers.disable(worker)
    try:
        found = [await small.claim(worker) for _ in range(3)]
    except WorkerDisabled:
        found = []
    assert not any(found)


async def test_an_urgent_lane_with_keys_keeps_its_turns_beside_plain_lanes(engine: Engine, worker: str) -> None:
    """More keyed lanes than one read sees leave no turns to less urgent lanes."""
    urgent = [NewJob(type="crawl", fairness_key=f"key-{n}", priority=50) for n in range(40)]
    await engine.create_many([*urgent, *(NewJob(type="mail") for _ in range(10))])
    assert set(await claimed_types(engine, worker, 40, at_once=True)) == {"crawl"}


async def test_a_tenant_whose_lanes_have_keys_gets_its_share_beside_plain_lanes(engine: Engine, worker: str) -> None:
    await fill(engine, 10, each=5, tenant="plain")
    await engine.create_many([NewJob(type="crawl", tenant="keyed", fairness_key=f"key-{n}") for n in range(40)])
    found = [lease.tenant for _ in range(40) for lease in await engine.claim(worker, at_once=True)]
    assert found.count("keyed") in range(18, 23)


async def test_the_only_job_of_a_tenant_starts_before_most_jobs_of_another(engine: Engine, worker: str) -> None:
    """Within a tenant the most urgent jobs come first."""
    jobs = [NewJob(type="t", tenant="large", priority=priority) for priority in (0, 0, 5, 0)]
    await engine.create_many([*jobs, NewJob(type="t", tenant="small", priority=-1)])
    leases = await engine.claim(worker, limit=10)
    assert {lease.tenant for lease in leases[:2]} == {"large", "small"}
    assert [lease.priority for lease in leases if lease.tenant == "large"] == [5, 0, 0, 0]
