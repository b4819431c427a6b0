"""Polls of workers agree with claims about limits: nothing to claim, something to claim, and when there will be."""

import random
from dataclasses import replace
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine import claim as claim_module
from holdfast.engine import lanes as lanes_module
from holdfast.engine.polls import open_work as open_work_module
from holdfast.model import Lease, NewJob
from holdfast.model.limits import Limit
from tests.engine.limiting import crawl, crawl_by_domain, declare, end, limit
from tests.sampling import Sample


async def is_due(engine: Engine, worker: str) -> bool:
    """What a poll says; a long poll says the same."""
    polled = (await engine.polls.poll(worker)).due
    assert polled == bool((await engine.polls.open_work()).lanes)
    return polled


@pytest.mark.parametrize("name", ["type:crawl", "queue:default", "tenant:default", "gpu"])
async def test_a_poll_reports_no_job_whose_limit_is_full(engine: Engine, worker: str, name: str) -> None:
    await limit(engine, name, concurrency=1)
    await crawl(engine, "a", "b", limits={"gpu": 1})
    assert await is_due(engine, worker)
    [lease] = await engine.claim(worker)
    assert not await is_due(engine, worker)
    await end(engine, worker, lease)
    assert await is_due(engine, worker)


async def test_a_poll_reports_no_job_of_a_full_key_after_a_claim_has_found_it_full(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", "a")
    [lease] = await engine.claim(worker)
    assert not await is_due(engine, worker)
    await crawl(engine, "a")
    assert await engine.claim(worker) == []
    assert not await is_due(engine, worker)
    await end(engine, worker, lease)
    assert await is_due(engine, worker)


async def test_a_poll_reports_no_key_of_a_type_that_is_full(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await limit(engine, "type:crawl", concurrency=1)
    await crawl(engine, "a", "b")
    [lease] = await engine.claim(worker)
    assert not await is_due(engine, worker)
    await end(engine, worker, lease)
    assert await is_due(engine, worker)


RATES = [1.0, 3.0, 7.0, 10.0, 30.0, 1000.0, 1 / 3, 1 / 60]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("rate", RATES)
async def test_after_the_time_that_a_poll_reports_a_rate_has_a_job(
    engine: Engine, worker: str, clock: MovableClock, rate: float, keyed: bool
) -> None:
    """Not before, and whatever is rounded."""
    await declare(engine, limit_key="domain" if keyed else None, policy={"lease_seconds": 5000})
    await limit(engine, "key:crawl" if keyed else "type:crawl", rate=rate, burst=2)
    await crawl(engine, *"a" * 9)
    assert len(await engine.claim(worker, limit=9)) == 2
    for _ in range(4):
        polled = await engine.polls.poll(worker)
        assert not polled.due
        assert polled.next_in is not None
        assert abs(polled.next_in - 1 / rate) < 3e-6
        clock.advance(polled.next_in / 2)
        assert await engine.claim(worker) == []
        clock.advance((await engine.polls.poll(worker)).next_in or 0)
        assert await is_due(engine, worker)
        assert len(await engine.claim(worker, limit=9)) == 1


async def test_a_poll_reports_when_a_rate_has_tokens_for_a_job_that_takes_several(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await limit(engine, "api", rate="1/s", burst=5)
    await crawl(engine, *"aaa", limits={"api": 3})
    assert len(await engine.claim(worker, limit=9)) == 1
    assert (await engine.polls.poll(worker)).next_in == pytest.approx(1)
    clock.advance(1)
    assert len(await engine.claim(worker, limit=9)) == 1


async def test_a_long_poll_reports_when_a_rate_has_a_job(engine: Engine, worker: str, clock: MovableClock) -> None:
    await declare(engine, limit_key="domain")
    await limit(engine, "type:crawl", rate="1/s", burst=2)
    await limit(engine, "key:crawl", rate="1/2s", burst=1)
    await crawl(engine, *"aab")
    assert len(await engine.claim(worker, limit=9)) == 2
    assert (await engine.polls.open_work()).next_in == pytest.approx(1)
    clock.advance(1.5)
    assert await engine.claim(worker) == []
    assert (await engine.polls.open_work()).next_in == pytest.approx(0.5)


def history(chance: random.Random) -> list[tuple[str, Any]]:
    steps = ["create", "create", "claim", "claim", "end", "advance", "limit"]
    return [(chance.choice(steps), chance.random()) for _ in range(40)]


@pytest.mark.parametrize("number", range(3))
async def test_whatever_happened_a_poll_and_the_claims_after_it_agree(
    engine: Engine, worker: str, clock: MovableClock, sample: Sample, number: int
) -> None:
    """If nothing is due, a claim finds nothing; and a claim that finds nothing leaves nothing that is due."""
    chance = random.Random(f"{sample.seed} {number}")
    await declare(engine, per_key=Limit(1), limit_key="domain", policy={"lease_seconds": 10**6})
    running: list[Lease] = []
    for step, draw in history(chance):
        match step:
            case "create":
                names = [chance.choice("abc") for _ in range(1 + int(draw * 4))]
                await crawl(engine, *names, queue=chance.choice(["q", "r"]), limits={"gpu": 1 + int(draw * 3)})
            case "end" if running:
                await end(engine, worker, running.pop(int(draw * len(running))))
            case "advance":
                clock.advance(draw * 3)
            case "limit":
                name = chance.choice(["type:crawl", "queue:q", "gpu", "key:crawl", "key:crawl a"])
                bounds = chance.choice([{"concurrency": int(draw * 4)}, {"rate": draw * 3, "burst": 1 + draw * 3}])
                await limit(engine, name, **bounds)
        was_due = await is_due(engine, worker)
        found = await engine.claim(worker, limit=1 + int(draw * 3))
        assert was_due or not found, f"a poll said that nothing is due before {len(found)} jobs were claimed"
        running += found
        if not found:
            assert not await is_due(engine, worker), "a claim found nothing, and still a poll says that a job is due"


async def test_types_without_limits_are_polled_and_claimed_as_ever_beside_a_limit(engine: Engine, worker: str) -> None:
    await limit(engine, "type:crawl", concurrency=0)
    await crawl(engine, *"aaa")
    assert not await is_due(engine, worker)
    await engine.create(NewJob(type="plain"))
    assert await is_due(engine, worker)
    assert [lease.type for lease in await engine.claim(worker, limit=5)] == ["plain"]


# -- more lanes with keys than one read sees --------------------------------------------------------------------------

WINDOW = 4


@pytest.fixture
def small(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """One read of a poll or a claim sees four lanes, and a claim reads once."""
    engine.ctx.limits = replace(engine.ctx.limits, lanes_max=WINDOW)
    monkeypatch.setattr(open_work_module, "LANES_MAX", WINDOW)
    monkeypatch.setattr(lanes_module, "KEYED_MAX", WINDOW)
    monkeypatch.setattr(claim_module, "PASSES_MAX", 1)
    return engine


async def crawl_in_queues(engine: Engine, others: int, *, mine: str = "crawl") -> str:
    """Jobs in lanes of so many other queues, and one in a queue `mine`, in the last lane; its id."""
    await crawl_by_domain(engine)
    await declare(engine, mine, per_key=Limit(1), limit_key="domain")
    for number in range(others):
        await crawl(engine, "a", queue=f"other-{number:02}")
    return (await engine.create(NewJob(type=mine, queue="mine", payload={"domain": "b"}))).id


async def test_a_poll_sees_a_keyed_job_behind_many_lanes_of_other_queues(small: Engine, worker: str) -> None:
    await crawl_in_queues(small, WINDOW + 2)
    assert (await small.polls.poll(worker, ["mine"])).due


@pytest.mark.parametrize("scope", [{"queues": ["mine"]}, {"types": ["my_crawl"]}])
async def test_a_long_poll_sees_a_keyed_job_behind_many_lanes_of_other_queues(
    small: Engine, scope: dict[str, Any]
) -> None:
    await crawl_in_queues(small, WINDOW + 2, mine="my_crawl")
    assert [lane.queue for lane in (await small.polls.open_work(**scope)).lanes] == ["mine"]


@pytest.mark.parametrize("scope", [{"queues": ["mine"]}, {"types": ["my_crawl"]}])
@pytest.mark.parametrize("others", [WINDOW - 1, WINDOW, 5 * WINDOW + 1])
async def test_a_claim_finds_a_keyed_job_behind_many_lanes_of_other_queues(
    small: Engine, worker: str, scope: dict[str, Any], others: int
) -> None:
    """However many there are, and wherever the window of other claims is."""
    made = await crawl_in_queues(small, others, mine="my_crawl")
    assert [lease.id for lease in await small.claim(worker, **scope)] == [made]
    assert await small.claim(worker, **scope) == []


async def test_claims_find_all_keyed_jobs_of_more_lanes_than_one_read_sees(small: Engine, worker: str) -> None:
    await crawl_in_queues(small, 3 * WINDOW)
    queues = [f"other-{number:02}" for number in range(1, 3 * WINDOW)]
    await limit(small, "key:crawl", concurrency=100)
    found = [lease for _ in queues for lease in await small.claim(worker, queues=queues)]
    assert sorted(lease.queue for lease in found) == queues


async def test_a_worker_does_not_wait_for_tokens_of_queues_that_it_does_not_serve(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await limit(engine, "queue:mail", rate=0.1, burst=1)
    await declare(engine, per_key=Limit.of(rate=0.1, burst=1), limit_key="domain")
    await engine.create_many([NewJob(type="send", queue="mail") for _ in range(2)])
    await engine.create_many([NewJob(type="crawl", payload={"domain": "a"}) for _ in range(2)])
    assert len(await engine.claim(worker, limit=9)) == 2
    assert (await engine.polls.poll(worker)).next_in is not None
    assert (await engine.polls.poll(worker, queues=["other"])).next_in is None
    assert (await engine.polls.poll(worker, types=["other"])).next_in is None
