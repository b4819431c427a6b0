"""Claim requests that may be repeated: what is stored, what a repeat returns, and which leases are given back."""

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.model.reports import HeldLease
from tests.engine.steps import UNKNOWN_ID, ask


async def requests(engine: Engine) -> list[str]:
    return [
        row["request_id"] for row in await ask(engine, "SELECT request_id FROM holdfast_claims ORDER BY request_id")
    ]


async def test_a_repeated_claim_request_returns_the_same_leases(engine: Engine, worker: str) -> None:
    for _ in range(3):
        await engine.create(NewJob(type="echo"))
    first = await engine.claim_once(worker, "r", limit=2)
    assert first is not None
    assert len(first) == 2
    assert await engine.claim_once(worker, "r", limit=2) == first
    await engine.complete(worker, first[0].id, first[0].token)
    assert await engine.claim_once(worker, "r", limit=2) == first[1:]
    assert len(await engine.claim_once(worker, "another") or []) == 1
    assert await engine.claim_once(worker, "r", limit=2) == first[1:]


async def test_a_claim_request_that_finds_no_job_is_not_stored(engine: Engine, worker: str) -> None:
    assert await engine.claim_once(worker, "r") is None
    assert await requests(engine) == []


async def test_a_claim_request_returns_only_the_leases_of_its_own_worker(engine: Engine, worker: str) -> None:
    other = (await engine.workers.register()).id
    for _ in range(2):
        await engine.create(NewJob(type="echo"))
    [mine] = await engine.claim_once(worker, "r") or []
    [theirs] = await engine.claim_once(other, "s") or []
    assert await engine.claim_once(worker, "s") is None
    assert await engine.claim_once(other, "r") is None
    assert await engine.claim_once(worker, "r") == [mine]
    assert await engine.claim_once(other, "s") == [theirs]


async def test_a_claim_request_returns_only_jobs_of_its_queues_and_types(engine: Engine, worker: str) -> None:
    await engine.create(NewJob(type="echo", queue="q"))
    assert await engine.claim_once(worker, "r", queues=["other"]) is None
    assert await engine.claim_once(worker, "r", types=["other"]) is None
    assert await requests(engine) == []
    assert await engine.claim_once(worker, "r", queues=["q"], types=["echo"], instance="i")
    assert await engine.polls.held_by(worker, "i")


async def test_old_claim_requests_are_pruned(engine: Engine, worker: str, clock: MovableClock) -> None:
    for request in ("old", "new"):
        await engine.create(NewJob(type="echo"))
        assert await engine.claim_once(worker, request)
        clock.advance(1800)
    assert await engine.maintenance.prune_claim_requests(3600) == 1
    assert [row["request_id"] for row in await ask(engine, "SELECT request_id FROM holdfast_claims")] == ["new"]
    assert await engine.maintenance.prune_claim_requests(3600) == 0


async def test_leases_of_an_undelivered_claim_are_given_back(engine: Engine, worker: str) -> None:
    for request in (None, "first", "second"):
        made = await engine.create(NewJob(type="echo"))
        [lease] = await engine.claim(worker) if request is None else await engine.claim_once(worker, request) or []
        assert await engine.give_back(worker, [HeldLease(lease.id, lease.token)], request=request)
        job = await engine.reads.get(made.id)
        assert (job.state, job.attempt) == ("queued", 0)
        [again] = await engine.claim_once(worker, request or "r") or []
        assert again.epoch == 2
        await engine.complete(worker, again.id, again.token)


async def test_leases_already_returned_to_a_repeat_are_not_given_back(engine: Engine, worker: str) -> None:
    other = (await engine.workers.register()).id
    await engine.create(NewJob(type="echo"))
    await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim_once(worker, "r") or []
    assert await engine.claim_once(other, "r")
    assert await engine.claim_once(worker, "r") == [lease]
    assert not await engine.give_back(worker, [HeldLease(lease.id, lease.token)], request="r")
    await engine.complete(worker, lease.id, lease.token)


async def test_only_the_holder_of_a_lease_can_give_it_back(engine: Engine, worker: str) -> None:
    other = (await engine.workers.register()).id
    made = await engine.create(NewJob(type="echo"))
    [lease] = await engine.claim_once(worker, "r") or []
    assert not await engine.give_back(other, [HeldLease(lease.id, lease.token)], request="r")
    assert not await engine.give_back(worker, [HeldLease(lease.id, lease.token)], request="another")
    await engine.give_back(other, [HeldLease(lease.id, lease.token)])
    await engine.give_back(worker, [HeldLease(lease.id, UNKNOWN_ID)])
    assert (await engine.reads.get(made.id)).lease_token == lease.token
