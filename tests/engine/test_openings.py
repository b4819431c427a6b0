"""openings: what one asks for all who wait, and who of them may take it."""

from typing import Any

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.polls.open_work import READY_MAX
from holdfast.model import NewJob
from holdfast.store import q
from tests.engine.steps import NOBODYS, run
from tests.engine.test_look import conditions


async def lanes(engine: Engine, **asked: Any) -> list[tuple[str, str, str]]:
    found = (await engine.polls.open_work(**asked)).lanes
    return sorted((lane.tenant, lane.queue, lane.type) for lane in found)


async def test_a_lane_is_open_while_a_job_in_it_is_due(engine: Engine, worker: str) -> None:
    assert await lanes(engine) == []
    await engine.create(NewJob(type="echo"))
    await engine.create(NewJob(type="later", delay_seconds=60))
    assert await lanes(engine) == [("default", "default", "echo")]
    await engine.claim(worker)
    assert await lanes(engine) == []


async def test_a_lane_stays_open_while_one_of_its_jobs_is_left(engine: Engine, worker: str) -> None:
    for _ in range(3):
        await engine.create(NewJob(type="echo"))
    await engine.create(NewJob(type="echo", delay_seconds=60))
    await engine.create(NewJob(type="other"))
    for left in (2, 1, 0):
        await engine.claim(worker, types=["echo"])
        found = (await engine.polls.open_work(types=["echo"])).lanes
        assert [lane.ready for lane in found] == ([left] if left else [])


async def test_a_crowd_of_jobs_is_not_counted_to_its_end(engine: Engine) -> None:
    await engine.create_many([NewJob(type="echo") for _ in range(READY_MAX + 1)])
    assert [lane.ready for lane in (await engine.polls.open_work()).lanes] == [READY_MAX]


async def test_only_what_somebody_waits_for_is_looked_at(engine: Engine) -> None:
    for queue, name in (("a", "x"), ("b", "y")):
        await engine.create(NewJob(type=name, queue=queue))
    assert await lanes(engine, queues=["a", "c"]) == [("default", "a", "x")]
    assert await lanes(engine, types=["y"]) == [("default", "b", "y")]
    assert await lanes(engine, queues=[]) == []


async def test_a_paused_queue_is_closed_for_its_tenant(engine: Engine) -> None:
    for tenant in ("default", "acme"):
        for queue in ("q", "r"):
            await engine.create(NewJob(type="echo", queue=queue, tenant=tenant))
    await engine.queues.pause("q")
    assert await lanes(engine) == [("acme", "q", "echo"), ("acme", "r", "echo"), ("default", "r", "echo")]
    await engine.queues.resume("q")
    assert len(await lanes(engine)) == 4


async def test_what_comes_later_and_what_was_lost_is_told(engine: Engine, worker: str, clock: MovableClock) -> None:
    found = await engine.polls.open_work()
    assert (found.next_in, found.lost) == (None, False)
    await run(engine, worker)
    for seconds in (50, 40, 60):
        await engine.create(NewJob(type="later", delay_seconds=seconds))
    clock.advance(29)
    found = await engine.polls.open_work()
    assert (found.next_in, found.lost) == (11, False)
    clock.advance(1)
    assert (await engine.polls.open_work()).lost
    clock.advance(20)
    assert (await engine.polls.open_work()).next_in == 0


async def test_a_claimant_may_take_what_claim_would_give_it(engine: Engine) -> None:
    """The rules stand in SQL for claim and in Python for whoever waits: they agree on every pair."""
    workers = [
        (await engine.workers.register(tenants=tenants, capabilities=capabilities)).id
        for tenants in (None, ["acme"], ["acme", "default"])
        for capabilities in ({}, {"gpu": True}, {"gpu": True, "disk": "big"})
    ]
    jobs: list[dict[str, Any]] = [
        {"tenant": tenant, "requires": requires}
        for tenant in ("default", "acme")
        for requires in ([], ["gpu"], ["disk:big", "gpu"])
    ]
    for number, job in enumerate(jobs):
        await engine.create(NewJob(type=f"type-{number}", **job))
    known = await engine.polls.claimants(workers)
    opened = {lane.type: lane for lane in (await engine.polls.open_work()).lanes}
    for worker in workers:
        for name, lane in opened.items():
            assert known[worker].may_take(lane) == (await engine.polls.poll(worker, types=[name])).due, (worker, lane)


async def test_claimants_are_those_asked_for_that_are_not_disabled(engine: Engine, worker: str) -> None:
    other, _not_asked_for = (await engine.workers.register()).id, (await engine.workers.register()).id
    await engine.workers.disable(other)
    assert list(await engine.polls.claimants([worker, other, NOBODYS])) == [worker]


def test_openings_and_look_agree_on_what_is_closed() -> None:
    """Word for word; what depends on the worker is judged afterwards."""
    assert conditions(q.open_work) < conditions(q.claimable)
    assert len(conditions(q.open_work)) == 3


async def test_the_policies_of_jobs_are_known_by_their_ids(engine: Engine) -> None:
    one = await engine.create(NewJob(type="echo"))
    two = await engine.create(NewJob(type="video", lifecycle="transcode"))
    await engine.create(NewJob(type="third", lifecycle="images"))
    found = await engine.reads.policies_of_jobs([one.id, two.id, NOBODYS])
    assert set(found) == {one.id, two.id}
    assert (await engine.reads.snapshot(found[two.id])).machine.words["succeeded"] == "ready"
