"""Keyed lanes: a limit for each key, turns between keys, and no key that hides another or is forgotten."""

from collections import Counter
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.claim import ClaimRequest, Defer
from holdfast.engine.lanes import KEYED_MAX
from holdfast.engine.limited import LANES_MAX
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.model.limits import Limit
from holdfast.store import Tx
from tests.engine.hooking import adopt, guard
from tests.engine.limiting import (
    crawl,
    crawl_by_domain,
    declare,
    domains,
    drain,
    end,
    held_by_jobs,
    lift,
    limit,
    turns,
)
from tests.engine.steps import ask, sweep

# -- a limit for each key ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 10])
async def test_each_key_has_units_of_its_own(engine: Engine, worker: str, at_once: int) -> None:
    await crawl_by_domain(engine, 2)
    await crawl(engine, *"aaaaabbbc")
    leases = [lease for _ in range(10) for lease in await engine.claim(worker, limit=at_once)]
    assert Counter(domains(leases)) == {"a": 2, "b": 2, "c": 1}
    assert await held_by_jobs(engine) == {"key:crawl a": 2, "key:crawl b": 2, "key:crawl c": 1}
    await end(engine, worker, *leases)
    assert len(await drain(engine, worker, at_once=at_once)) == 4
    assert await held_by_jobs(engine) == {}


async def test_a_full_key_hides_no_other_however_urgent_its_jobs_are(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a")
    assert domains(await engine.claim(worker)) == ["a"]
    await crawl(engine, "a", "a", priority=50)
    await crawl(engine, "b", priority=-50)
    assert domains(await engine.claim(worker)) == ["b"]


@pytest.mark.parametrize("full", [1, 5, 20, 70, 200])
@pytest.mark.parametrize("at_once", [1, 10])
async def test_many_full_keys_hide_no_other_key(engine: Engine, worker: str, full: int, at_once: int) -> None:
    """Each has just got more jobs, so its lane looks claimable until a claim has counted."""
    await crawl_by_domain(engine)
    keys = [f"{number:03}" for number in range(full)]
    await crawl(engine, *keys)
    assert len(await engine.claim(worker, limit=200)) == full
    await crawl(engine, *keys, priority=9)
    await crawl(engine, "last")
    assert domains(await engine.claim(worker, limit=at_once)) == ["last"]
    assert await engine.claim(worker, limit=at_once) == []


async def test_full_keys_of_a_tenant_hide_no_job_of_another(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", tenant="large")
    assert domains(await engine.claim(worker)) == ["a"]
    await crawl(engine, *"aaaa", tenant="large")
    await crawl(engine, "b", tenant="small")
    assert domains(await engine.claim(worker)) == ["b"]


async def test_a_full_key_hides_no_job_of_a_plain_lane(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a")
    await engine.claim(worker)
    await crawl(engine, "a", priority=9)
    await engine.create(NewJob(type="plain"))
    assert [lease.type for lease in await engine.claim(worker)] == ["plain"]


@pytest.mark.parametrize("canceled", [1, 20, 200])
async def test_canceled_jobs_of_a_key_leave_nothing_that_hides_another(
    engine: Engine, worker: str, canceled: int
) -> None:
    await crawl_by_domain(engine)
    for job in await crawl(engine, *(f"{number:03}" for number in range(canceled))):
        await engine.cancel(job)
    await crawl(engine, "last")
    assert domains(await engine.claim(worker)) == ["last"]
    assert await engine.claim(worker) == []
    assert await turns(engine) == []
    assert not (await engine.polls.poll(worker)).due


@pytest.mark.parametrize("canceled", [1, 20, 200])
async def test_canceled_jobs_of_a_key_hide_nothing_from_remote_workers(
    engine: Engine, worker: str, canceled: int
) -> None:
    """They claim with a request id, which first reads whether there is anything."""
    await crawl_by_domain(engine)
    for job in await crawl(engine, *(f"{number:03}" for number in range(canceled))):
        await engine.cancel(job)
    await crawl(engine, "last")
    assert domains(await engine.claim_once(worker, "first") or []) == ["last"]
    assert await engine.claim_once(worker, "second") is None
    assert not (await engine.polls.poll(worker)).due


async def test_a_poll_of_a_remote_worker_ends_with_the_last_job_of_a_key(engine: Engine, worker: str) -> None:
    """A claim that finds nothing leaves nothing that looks like a job."""
    await crawl_by_domain(engine)
    await crawl(engine, "a")
    await end(engine, worker, *await engine.claim_once(worker, "first") or [])
    assert await engine.claim_once(worker, "second") is None
    assert not (await engine.polls.poll(worker)).due
    assert (await engine.polls.open_work()).lanes == []


@pytest.mark.parametrize("at_once", [1, 10])
async def test_many_jobs_of_one_key_hide_no_other_key(engine: Engine, worker: str, at_once: int) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, *"a" * 150, *"b" * 3)
    leases = [lease for _ in range(2) for lease in await engine.claim(worker, limit=at_once)]
    assert sorted(domains(leases)) == ["a", "b"]


async def test_a_key_that_waits_for_another_limit_keeps_its_turn(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine)
    await limit(engine, "type:crawl", concurrency=1)
    await crawl(engine, "a")
    clock.advance(1)
    await crawl(engine, "b", "a")
    clock.advance(1)
    [first] = await engine.claim(worker, limit=10)
    assert await engine.claim(worker, limit=10) == []
    clock.advance(1)
    await end(engine, worker, first)
    assert domains(await engine.claim(worker, limit=10)) == ["b"]


@pytest.mark.parametrize("at_once", [1, 10])
async def test_more_lanes_with_keys_than_one_read_sees_hide_no_other(engine: Engine, worker: str, at_once: int) -> None:
    """Each queue is a lane of its own."""
    await crawl_by_domain(engine)
    queues = [f"queue-{number:03}" for number in range(2 * KEYED_MAX + 5)]
    for queue in queues:
        await crawl(engine, "a", queue=queue)
    found = []
    for _ in queues:
        [lease] = await engine.claim(worker, limit=at_once)
        found.append(lease.queue)
        await end(engine, worker, lease)
    assert sorted(found) == queues


async def test_lanes_with_keys_of_other_workers_hide_no_lane_of_this_one(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    for number in range(3 * KEYED_MAX):
        await crawl(engine, "a", queue=f"queue-{number:03}")
    await crawl(engine, "b", queue="z")
    assert domains(await engine.claim(worker, queues=["z"])) == ["b"]
    await crawl(engine, "c", queue="z")
    assert domains(await engine.claim_once(worker, "first", queues=["z"]) or []) == ["c"]


async def test_more_keys_than_a_transaction_locks_are_all_claimed(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    keys = [f"{number:03}" for number in range(2 * LANES_MAX + 10)]
    await crawl(engine, *keys)
    assert sorted(domains(await engine.claim(worker, limit=500))) == keys


@pytest.mark.parametrize("elsewhere", [{"queue": "q"}, {"tenant": "t"}, {"limits": {"gpu": 1}}])
async def test_lanes_share_the_bucket_of_a_key(engine: Engine, worker: str, elsewhere: dict[str, Any]) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", "a")
    await crawl(engine, "a", "a", **elsewhere)
    done = 0
    while leases := await engine.claim(worker, limit=10):
        assert len(leases) == 1
        assert await engine.claim(worker, limit=10) == []
        await end(engine, worker, *leases)
        done += 1
    assert done == 4


async def test_jobs_without_a_key_are_not_bounded_by_the_limit_of_each_key(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await engine.create_many([NewJob(type="crawl") for _ in range(4)])
    await crawl(engine, "a", "a")
    assert len(await engine.claim(worker, limit=10)) == 5


async def test_the_limit_of_one_key_comes_before_that_of_each_key(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await limit(engine, "key:crawl a", concurrency=3)
    await crawl(engine, *"aaaaabbb")
    assert Counter(domains(await engine.claim(worker, limit=10))) == {"a": 3, "b": 1}
    await lift(engine, "key:crawl a")
    await limit(engine, "key:crawl b", concurrency=2)
    assert domains(await engine.claim(worker, limit=10)) == ["b"]


async def test_two_types_with_the_same_key_have_two_buckets(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    await declare(engine, "fetch", per_key=Limit(1), limit_key="domain")
    await crawl(engine, "a", "a")
    await engine.create_many([NewJob(type="fetch", payload={"domain": "a"}) for _ in range(2)])
    assert sorted(lease.type for lease in await engine.claim(worker, limit=10)) == ["crawl", "fetch"]


async def test_the_rate_of_a_key_is_its_own(engine: Engine, worker: str, clock: MovableClock) -> None:
    await declare(engine, per_key=Limit(rate=1.0, burst=2.0), limit_key="domain")
    await crawl(engine, *"aaaaaaaab")
    assert Counter(domains(await engine.claim(worker, limit=10))) == {"a": 2, "b": 1}
    assert await engine.claim(worker, limit=10) == []
    clock.advance(1)
    assert domains(await engine.claim(worker, limit=10)) == ["a"]
    await crawl(engine, "b")
    assert domains(await engine.claim(worker, limit=10)) == ["b"]
    clock.advance(20)
    assert domains(await engine.claim(worker, limit=10)) == ["a", "a"]


async def test_keys_of_hooked_types_obey_limits_and_hide_no_other(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    @guard(engine, "claim", job_type="n")
    async def decide(_tx: Tx, request: ClaimRequest) -> Any:
        later = request.job.payload.get("later") and request.job.run_at == request.job.created_at
        return Defer(10, "later") if later else None

    await adopt(engine, "n")
    await limit(engine, "key:n", concurrency=1)
    await engine.create_many([NewJob(type="n", limit_key="a", payload={"later": True}) for _ in range(3)])
    await engine.create_many([NewJob(type="n", limit_key=key) for key in "abbb"])
    leases = await engine.claim(worker, limit=10)
    assert len(leases) == 2
    assert await held_by_jobs(engine) == {"key:n a": 1, "key:n b": 1}
    clock.advance(11)
    await engine.maintenance.requeue_due()
    assert await engine.claim(worker, limit=10) == []
    await end(engine, worker, *leases)
    assert len(await drain(engine, worker)) == 5


async def test_jobs_that_this_process_cannot_hook_hide_no_lane_with_keys(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    for number in range(KEYED_MAX + 3):
        await crawl(engine, "a", queue=f"queue-{number:03}")
    await ask(engine, "UPDATE holdfast_jobs SET needs = '[\"absent\"]' RETURNING id")
    await crawl(engine, "b", queue="zzz")
    found = [lease for _ in range(3) for lease in await engine.claim(worker)]
    assert domains(found) == ["b"]


# -- jobs that come back ----------------------------------------------------------------------------------------------


async def test_a_delayed_job_of_a_key_is_claimed_when_it_is_due(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine)
    await crawl(engine, "a", delay_seconds=60)
    assert await engine.claim(worker) == []
    clock.advance(61)
    assert domains(await engine.claim(worker)) == ["a"]


async def test_a_delayed_job_of_a_full_key_waits_until_it_has_units(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine, policy={"lease_seconds": 1000})
    await crawl(engine, "a")
    await crawl(engine, "a", delay_seconds=60)
    [first] = await engine.claim(worker)
    clock.advance(61)
    assert await engine.claim(worker) == []
    await end(engine, worker, first)
    assert domains(await engine.claim(worker)) == ["a"]


@pytest.mark.parametrize("way", ["retry", "wait", "requeue", "wake", "release", "snooze", "redrive", "expiry"])
async def test_a_job_of_a_key_that_comes_back_is_claimed_again(
    engine: Engine, worker: str, clock: MovableClock, way: str
) -> None:
    await crawl_by_domain(engine)
    await engine.maintenance.reap()
    [job] = await crawl(engine, "a")
    [lease] = await engine.claim(worker)
    token = lease.token
    match way:
        case "retry":
            await engine.fail(worker, job, token, "E", retry_after_seconds=0)
        case "wait" | "requeue" | "wake":
            await engine.fail(worker, job, token, "E", retry_after_seconds=500)
            assert await engine.claim(worker) == []
            if way == "wait":
                clock.advance(501)
            elif way == "requeue":
                await engine.requeue(job)
            else:
                await engine.wake(job)
        case "release":
            await engine.release(worker, job, token)
        case "snooze":
            await engine.release(worker, job, token, delay_seconds=500)
            assert await engine.claim(worker) == []
            clock.advance(501)
        case "redrive":
            await engine.fail(worker, job, token, "E", permanent=True)
            job = (await engine.redrive(job)).id
        case _:
            await sweep(engine, clock, 40)
    [again] = await engine.claim(worker)
    assert again.id == job
    assert await held_by_jobs(engine) == {"key:crawl a": 1}
    assert (await engine.reads.get(job)).state is State.RUNNING


async def test_when_all_waiting_jobs_of_a_full_key_are_canceled_no_row_is_left(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine)
    first, *waiting = await crawl(engine, *"aaaa")
    [lease] = await engine.claim(worker)
    assert lease.id == first
    assert await engine.claim(worker) == []
    for job in waiting:
        await engine.cancel(job)
    await end(engine, worker, lease)
    assert await engine.claim(worker) == []
    assert await turns(engine) == []
    assert await ask(engine, "SELECT * FROM holdfast_ready WHERE TRUE") == []


async def test_after_all_jobs_nothing_is_left_of_keys(engine: Engine, worker: str) -> None:
    await crawl_by_domain(engine, fairness_key="customer")
    await crawl(engine, *"aabbccdd")
    assert len(await drain(engine, worker, at_once=3)) == 8
    assert (await turns(engine), await held_by_jobs(engine)) == ([], {})


# -- turns between keys -----------------------------------------------------------------------------------------------


async def buy(engine: Engine, customers: str, **job: Any) -> None:
    await engine.create_many([NewJob(type="buy", payload={"customer": each}, **job) for each in customers])


async def bought(engine: Engine, worker: str, claims: int, at_once: int) -> list[str]:
    return [
        "".join(sorted(lease.payload["customer"] for lease in await engine.claim(worker, limit=at_once)))
        for _ in range(claims)
    ]


async def test_fairness_keys_take_turns_one_job_at_a_time(engine: Engine, worker: str, clock: MovableClock) -> None:
    await declare(engine, "buy", fairness_key="customer")
    await buy(engine, "a" * 20)
    clock.advance(1)
    await buy(engine, "bbb")
    clock.advance(1)
    await buy(engine, "cc")
    found = []
    for _ in range(10):
        clock.advance(1)
        found += await bought(engine, worker, 1, 1)
    assert found == [*"abc", *"abc", *"ab", *"aa"]


async def test_fairness_keys_share_a_claim_of_ten(engine: Engine, worker: str, clock: MovableClock) -> None:
    await declare(engine, "buy", fairness_key="customer")
    await buy(engine, "a" * 40)
    clock.advance(1)
    await buy(engine, "b" * 40)
    found = []
    for _ in range(4):
        clock.advance(1)
        found += await bought(engine, worker, 1, 10)
    assert found == ["a" * 5 + "b" * 5] * 4


async def test_a_customer_with_few_jobs_waits_for_one_turn_of_each_other(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await declare(engine, "buy", fairness_key="customer")
    await buy(engine, "abcdefgh" * 10)
    clock.advance(1)
    assert len((await bought(engine, worker, 1, 10))[0]) == 10
    await buy(engine, "z")
    found = ""
    for _ in range(9):
        clock.advance(1)
        found += (await bought(engine, worker, 1, 1))[0]
    assert "z" in found


async def test_urgent_jobs_come_first_within_a_key_and_between_keys(engine: Engine, worker: str) -> None:
    await declare(engine, "buy", fairness_key="customer")
    await buy(engine, "aab")
    await buy(engine, "b", priority=5)
    await buy(engine, "a", priority=9)
    leases = [lease for _ in range(5) for lease in await engine.claim(worker)]
    assert [lease.priority for lease in leases] == [9, 5, 0, 0, 0]
    assert [lease.payload["customer"] for lease in leases[:2]] == ["a", "b"]


async def test_customers_take_turns_within_a_full_domain_and_hide_no_other_domain(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """A hundred lanes have one bucket: when it is full, no claim walks over them in vain."""
    await crawl_by_domain(engine, fairness_key="customer")

    def job(domain: str, number: int) -> NewJob:
        return NewJob(type="crawl", payload={"domain": domain, "customer": number})

    await engine.create_many([job("a", number) for number in range(100)])
    [first] = await engine.claim(worker)
    clock.advance(1)
    await engine.create_many([job("b", number) for number in range(2)])
    [other] = await engine.claim(worker)
    assert domains([first, other]) == ["a", "b"]
    assert await engine.claim(worker) == []
    for _ in range(3):
        clock.advance(1)
        await end(engine, worker, first)
        [first] = await engine.claim(worker)
        assert domains([first]) == ["a"]
    await end(engine, worker, other)
    assert domains(await engine.claim(worker)) == ["b"]


async def customers_in_turn(engine: Engine, worker: str, clock: MovableClock, jobs: int) -> list[str]:
    """The customers of so many jobs of one domain, one after the other; a second claim finds it full."""
    order: list[str] = []
    for _ in range(jobs):
        [lease] = await engine.claim(worker)
        assert await engine.claim(worker) == []
        order.append(lease.payload["customer"])
        clock.advance(1)
        await end(engine, worker, lease)
    return order


async def test_customers_of_one_domain_take_turns_however_many_jobs_each_has(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await crawl_by_domain(engine, fairness_key="customer")
    for customer, jobs in (("u", 9), ("x", 9), ("y", 9), ("z", 1)):
        await engine.create_many(
            [NewJob(type="crawl", payload={"domain": "a", "customer": customer}) for _ in range(jobs)]
        )
        clock.advance(1)
    assert await customers_in_turn(engine, worker, clock, 10) == [*"uxyz", *"uxy", *"uxy"]


async def test_customers_of_one_domain_take_turns_under_a_rate(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await declare(engine, per_key=Limit.of(rate=1, burst=1), limit_key="domain", fairness_key="customer")
    for customer in "uxyz":
        await engine.create_many([NewJob(type="crawl", payload={"domain": "a", "customer": customer})] * 5)
        clock.advance(1)
    assert await customers_in_turn(engine, worker, clock, 8) == [*"uxyz", *"uxyz"]
