"""`polls.open_work`: one query for all waiting claims, and which worker may take which job."""

from typing import Any

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.polls.open_work import READY_MAX
from holdfast.model import NewJob
from holdfast.store import q
from holdfast.store.queries import Query
from holdfast.store.render import SQLITE, render
from tests.engine.steps import UNKNOWN_ID, run


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


async def test_open_work_counts_ready_jobs_up_to_a_limit(engine: Engine) -> None:
    await engine.create_many([NewJob(type="echo") for _ in range(READY_MAX + 1)])
    assert [lane.ready for lane in (await engine.polls.open_work()).lanes] == [READY_MAX]


async def test_open_work_covers_only_the_queues_and_types_asked_for(engine: Engine) -> None:
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


async def test_open_work_reports_the_next_delayed_job_and_expired_leases(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
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


async def test_may_take_agrees_with_what_a_claim_would_return(engine: Engine) -> None:
    """The rules exist in SQL for claims and in Python for waiting claims: they agree on every pair."""
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


async def test_claimants_lists_only_enabled_workers_asked_for(engine: Engine, worker: str) -> None:
    other, _not_asked_for = (await engine.workers.register()).id, (await engine.workers.register()).id
    await engine.workers.disable(other)
    assert list(await engine.polls.claimants([worker, other, UNKNOWN_ID])) == [worker]


def test_open_work_and_claimable_share_their_conditions() -> None:
    """The same marker; conditions on the worker are checked afterwards."""
    open_lane = render(Query("test", "{open lane}"), SQLITE).text
    assert render(q.claimable, SQLITE, 100).text.count(open_lane) == 2
    for query in (q.open_work, q.open_key_work):
        assert open_lane in render(query, SQLITE, 100).text


async def test_policies_of_jobs_are_read_by_job_id(engine: Engine) -> None:
    one = await engine.create(NewJob(type="echo"))
    two = await engine.create(NewJob(type="video", lifecycle="transcode"))
    await engine.create(NewJob(type="third", lifecycle="images"))
    found = await engine.reads.policies_of_jobs([one.id, two.id, UNKNOWN_ID])
    assert set(found) == {one.id, two.id}
    assert (await engine.reads.snapshot(found[two.id])).machine.words["succeeded"] == "ready"
