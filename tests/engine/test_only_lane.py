"""A claim takes from the only lane with jobs without reading the lanes, and only while it is the only one."""

import asyncio
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, claim, lane_scope
from holdfast.model import Lease, NewJob
from holdfast.model.limits import Limit
from holdfast.store.queries import Query

RUNNING = Query("running", "SELECT id FROM holdfast_running")


@pytest.fixture
def asked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queries, in their order."""
    transaction, names = engine.store.transaction_class, list[str]()
    original = transaction.all

    async def noted(self: Any, query: Any, **params: Any) -> Any:
        names.append(query.name)
        return await original(self, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    return names


async def claimed(engine: Engine, worker: str, asked: list[str], limit: int = 1) -> tuple[list[str], list[str]]:
    asked.clear()
    leases = await engine.claim(worker, limit=limit, at_once=True)
    return [lease.id for lease in leases], list(asked)


async def test_the_second_claim_does_not_read_the_lanes(engine: Engine, worker: str, asked: list[str]) -> None:
    ids = [job.id for job in await engine.create_many([NewJob(type="t") for _ in range(5)])]
    assert await claimed(engine, worker, asked) == (ids[:1], ["open_lanes", "claim_jobs"])
    assert await claimed(engine, worker, asked, limit=2) == (ids[1:3], ["claim_jobs"])
    assert await claimed(engine, worker, asked, limit=9) == (ids[3:], ["claim_jobs"])


async def test_an_urgent_job_of_another_lane_is_not_hidden(engine: Engine, worker: str, asked: list[str]) -> None:
    ids = [job.id for job in await engine.create_many([NewJob(type="t") for _ in range(3)])]
    await engine.claim(worker)
    for other in (NewJob(type="other", priority=5), NewJob(type="t", tenant="another")):
        urgent = await engine.create(other)
        found, names = await claimed(engine, worker, asked, limit=2)
        assert urgent.id in found
        assert names[:2] == ["claim_jobs", "open_lanes"]
    assert ids[0] not in found


async def test_a_paused_queue_and_a_disabled_worker_get_nothing(engine: Engine, worker: str, asked: list[str]) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    await engine.claim(worker)
    await engine.queues.pause("default")
    assert (await claimed(engine, worker, asked))[0] == []
    await engine.queues.resume("default")
    await engine.claim(worker)
    await engine.workers.disable(worker)
    with pytest.raises(Exception, match="disabled"):
        await engine.claim(worker)


async def test_other_scopes_of_the_same_worker_are_kept_apart(engine: Engine, worker: str) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    assert await engine.claim(worker, types=["t"])
    assert await engine.claim(worker, types=["u"]) == []
    assert await engine.claim(worker, queues=["other"]) == []


async def test_the_lanes_are_read_again_after_a_while(
    engine: Engine, worker: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may have registered again meanwhile, with other capabilities."""
    monkeypatch.setattr(lane_scope, "UNREAD_SECONDS", 0.0)
    monkeypatch.setattr(lane_scope, "SELDOM_TIMES", 0)
    await engine.create_many([NewJob(type="t") for _ in range(3)])
    await engine.claim(worker)
    assert (await claimed(engine, worker, asked))[1] == ["open_lanes", "claim_jobs"]


@pytest.fixture
def behind(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each claim began behind the job that was taken last. PostgreSQL keeps the rows of those before it."""
    if engine.store.transaction_class.one_writer:
        pytest.skip("SQLite keeps no rows of jobs that were taken")
    monkeypatch.setattr(lane_scope, "BEHIND_JOBS_MIN", 1)
    monkeypatch.setattr(claim, "BEHIND_SECONDS", 60.0)
    monkeypatch.setattr(lane_scope, "LOOK_TIMES", 0)
    monkeypatch.setattr(lane_scope, "UNREAD_SECONDS", 60.0)
    transaction, ways = engine.store.transaction_class, list[bool]()
    original = transaction.all

    async def noted(self: Any, query: Any, **params: Any) -> Any:
        ways.extend([query.behind] if query.name == "claim_jobs" else [])
        return await original(self, query, **params)

    monkeypatch.setattr(transaction, "all", noted)
    return ways


async def taken(engine: Engine, worker: str, limit: int = 2) -> list[Lease]:
    return await engine.claim(worker, limit=limit, at_once=True)


async def test_claims_begin_behind_the_job_that_was_taken_last(engine: Engine, worker: str, behind: list[bool]) -> None:
    ids = [job.id for job in await engine.create_many([NewJob(type="t") for _ in range(9)])]
    found = [lease.id for _ in range(5) for lease in await taken(engine, worker)]
    assert found == ids
    assert behind == [False, False, True, True, True]  # the first one reads the lanes
    assert await taken(engine, worker) == []


async def test_a_claim_that_finds_too_few_is_followed_by_one_from_the_beginning(
    engine: Engine, worker: str, behind: list[bool]
) -> None:
    """Older jobs are found when those behind the last one are used up."""
    await engine.create_many([NewJob(type="t") for _ in range(7)])
    first = [lease for _ in range(3) for lease in await taken(engine, worker)]
    await engine.release(worker, first[0].id, first[0].token)
    assert len(await taken(engine, worker)) == 1
    assert [lease.id for lease in await taken(engine, worker)] == [first[0].id]
    assert behind[3:5] == [True, False]


@pytest.mark.parametrize("tenant", ["before", "default"])
async def test_a_claim_behind_the_last_job_does_not_delay_other_lanes(
    engine: Engine, worker: str, behind: list[bool], tenant: str
) -> None:
    """Neither those with a lower number nor those with a higher one."""
    await engine.create(NewJob(type="other", tenant="before"))
    await taken(engine, worker)
    await engine.create_many([NewJob(type="t") for _ in range(9)])
    for _ in range(3):
        await taken(engine, worker)
    assert behind[-1]
    other = await engine.create(NewJob(type="other", tenant=tenant))
    assert other.id in [lease.id for lease in await taken(engine, worker)]


async def test_a_claim_behind_the_last_job_does_not_delay_urgent_jobs(
    engine: Engine, worker: str, behind: list[bool]
) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(20)])
    for _ in range(3):
        await taken(engine, worker)
    assert behind[-1]
    urgent = await engine.create(NewJob(type="t", priority=5))
    assert (await taken(engine, worker))[0].id == urgent.id


async def test_older_jobs_are_found_after_a_while_although_there_are_jobs_behind_the_last_one(
    engine: Engine, worker: str, behind: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(20)])
    monkeypatch.setattr(claim, "BEHIND_SECONDS", 0.0)
    monkeypatch.setattr(lane_scope, "SELDOM_TIMES", 0)
    [old, _] = await taken(engine, worker)
    await taken(engine, worker)
    await engine.release(worker, old.id, old.token)
    assert (await taken(engine, worker))[0].id == old.id


async def test_jobs_of_several_priorities_are_taken_in_their_order(
    engine: Engine, worker: str, behind: list[bool]
) -> None:
    jobs = [NewJob(type="t", priority=priority) for priority in (0, 5, 0, 5, 0, 5, -1, 0)]
    await engine.create_many(jobs)
    found = [lease.priority for _ in range(6) for lease in await taken(engine, worker)]
    assert found == [5, 5, 5, 0, 0, 0, 0, -1]


@pytest.mark.parametrize("change", ["pause", "limit", "disable"])
async def test_a_claim_behind_the_last_job_respects_what_has_changed(
    engine: Engine, worker: str, behind: list[bool], change: str
) -> None:
    await engine.create_many([NewJob(type="t", queue="mail") for _ in range(9)])
    await taken(engine, worker)
    await taken(engine, worker)
    if change == "pause":
        await engine.queues.pause("mail")
    elif change == "limit":
        await engine.job_limits.set("queue:mail", Limit(concurrency=1), by="operator")
    else:
        await engine.workers.disable(worker)
        with pytest.raises(Exception, match="disabled"):
            await engine.claim(worker, limit=2)
        return
    assert await engine.claim(worker, limit=2) == []
    assert True in behind


async def test_a_lease_that_expires_is_found_by_claims_behind_a_later_job(
    engine: Engine, worker: str, behind: list[bool], clock: MovableClock
) -> None:
    await engine.create_many([NewJob(type="t") for _ in range(4)])
    lost = [lease.id for _ in range(2) for lease in await taken(engine, worker)]
    clock.advance(3600)
    await engine.maintenance.reap()
    clock.advance(3600)
    await engine.maintenance.requeue_due()
    found = [lease.id for _ in range(3) for lease in await taken(engine, worker)]
    assert sorted(found) == sorted(lost)


async def test_claims_of_one_worker_at_the_same_time_lose_no_lease(
    engine: Engine, worker: str, behind: list[bool]
) -> None:
    """One that finds too few forgets where the others begin."""
    await engine.create_many([NewJob(type="t") for _ in range(60)])
    leases = [lease for _ in range(3) for lease in await taken(engine, worker)]
    assert behind[-1]
    for found in await asyncio.gather(*(taken(engine, worker, 40 if n % 2 else 2) for n in range(6))):
        leases += found
    running = await engine.store.read(lambda tx: tx.all(RUNNING))
    assert sorted(lease.id for lease in leases) == sorted(row["id"] for row in running)


async def test_a_worker_that_registers_again_gets_no_jobs_that_it_may_not_run(
    engine: Engine, clock: MovableClock
) -> None:
    worker = (await engine.workers.register(name="w", capabilities={"gpu": True})).id
    await engine.create_many([NewJob(type="t", requires=["gpu"]) for _ in range(9)])
    assert await engine.claim(worker)
    await engine.workers.register(id=worker, name="w", capabilities={})
    assert await engine.claim(worker) == []
