"""A claim that waits: woken within moments of a job, in turn, and at no cost to the database."""

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import httpx2
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model import NewJob
from holdfast.server.live import long_poll, waiting_claims
from holdfast.store.presence import Presence
from tests.logs import logged
from tests.server.http_worker import Hand, hand, held, waiting_there
from tests.server.steps import Served, serving


@pytest.fixture
def only_by_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks when there was a hint and at no other time: a story that passes needed no luck."""
    monkeypatch.setattr(long_poll, "POLL_SECONDS", 3600.0)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hint arrives: the connection is half open, a pooler stands before the database."""

    async def nothing(presence: Presence, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return False

    for kind in Presence.__subclasses__():
        monkeypatch.setattr(kind, "wait", nothing)


def wait_for(me: Hand, **body: Any) -> asyncio.Task[list[dict[str, Any]]]:
    return asyncio.create_task(me.claim(**{"waitSeconds": 30, **body}))


async def have_looked(asked: list[str], count: int) -> None:
    """Until so many claims have found nothing at first, and wait."""
    async with asyncio.timeout(60):
        while asked.count("overdue") < count:  # noqa: ASYNC110  nobody tells a test
            await asyncio.sleep(0.01)


# -- woken ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_by_hints")
async def test_a_job_created_on_this_server_wakes_a_claim(served: Served) -> None:
    me = await hand(served)
    waiting = wait_for(me)
    await waiting_there(served, 1)
    made = await served.engine.create(NewJob(type="echo"))
    assert [job["jobId"] for job in await waiting] == [made.id]
    await waiting_there(served, 0)


@pytest.mark.usefixtures("only_by_hints")
async def test_a_job_created_on_another_server_wakes_a_claim_here(store_url: str) -> None:
    async with serving(store_url) as here, serving(store_url) as there:
        me = await hand(here)
        for wait in ({}, {"requestId": "r"}):
            waiting = wait_for(me, **wait)
            await waiting_there(here, 1)
            made = await there.engine.create(NewJob(type="echo"))
            [job] = await waiting
            assert job["jobId"] == made.id


@pytest.mark.usefixtures("deaf")
async def test_a_lost_hint_costs_a_second_and_no_job(served: Served) -> None:
    """K13: polling is the floor under whatever wakes."""
    me = await hand(served)
    waiting = wait_for(me)
    await waiting_there(served, 1)
    made = await served.engine.create(NewJob(type="echo"))
    assert [job["jobId"] for job in await waiting] == [made.id]


@pytest.mark.usefixtures("only_by_hints")
async def test_a_delayed_job_wakes_a_claim_when_its_time_comes(served: Served) -> None:
    me = await hand(served)
    waiting = wait_for(me)
    await waiting_there(served, 1)
    made = await served.engine.create(NewJob(type="echo", delay_seconds=0.6))
    assert [job["jobId"] for job in await waiting] == [made.id]


async def test_a_long_poll_gets_the_job_of_a_lost_worker(store_url: str) -> None:
    async with serving(store_url, startup_grace_seconds=0) as served:
        gone, me = await hand(served), await hand(served)
        await served.engine.create(NewJob(type="echo", policy={"lease_seconds": 1, "heartbeat_seconds": 0.5}))
        job = await gone.claim_one()
        [again] = await me.claim(waitSeconds=30)
        assert (again["jobId"], again["epoch"]) == (job["jobId"], 2)


async def test_a_long_poll_without_jobs_ends_after_its_time(served: Served) -> None:
    me = await hand(served)
    began = asyncio.get_running_loop().time()
    assert await me.claim(waitSeconds=0.3) == []
    assert asyncio.get_running_loop().time() - began >= 0.3
    await waiting_there(served, 0)


async def test_a_claim_returns_an_available_job_at_once(served: Served) -> None:
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    assert len(await me.claim(waitSeconds=30)) == 1


async def test_a_stopping_server_ends_its_long_polls(store_url: str) -> None:
    """They ask again elsewhere; nobody waits for them."""
    async with serving(store_url) as served:
        me = await hand(served)
        waiting = wait_for(me)
        await waiting_there(served, 1)
        served.server.stop()
        assert await waiting == []


# -- in turn ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_by_hints")
async def test_the_longest_waiting_long_poll_is_served_first(served: Served, asked: list[str]) -> None:
    order = []
    for place in range(4):
        me = await hand(served, name=f"{place}")
        order.append(wait_for(me))
        await have_looked(asked, place + 1)
    for waiting in order:
        made = await served.engine.create(NewJob(type="echo"))
        assert [job["jobId"] for job in await waiting] == [made.id]


@pytest.mark.usefixtures("only_by_hints")
async def test_one_hint_wakes_a_long_poll_for_each_job(served: Served) -> None:
    me = await hand(served)
    waiting = [wait_for(me) for _ in range(20)]
    await waiting_there(served, 20)
    await served.engine.create_many([NewJob(type="echo") for _ in range(17)])
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await waiting_there(served, 3)
    done, rest = await asyncio.wait(waiting, timeout=0)
    assert Counter(len(each.result()) for each in done) == {1: 17}
    await served.engine.create_many([NewJob(type="echo") for _ in rest])
    assert [len(await each) for each in rest] == [1, 1, 1]


@pytest.mark.usefixtures("only_by_hints")
@pytest.mark.parametrize(
    ("others", "job"),
    [
        ({"claim": {"queues": ["other"]}}, {}),
        ({"claim": {"jobTypes": ["other"]}}, {}),
        ({"worker": {"tenants": ["other"]}}, {}),
        ({}, {"requires": ["gpu"]}),
        ({}, {"prefers": ["gpu"]}),
        ({"worker": {"queues": ["other"]}}, {}),
    ],
    ids=["queue", "type", "tenant", "required", "preferred", "key"],
)
async def test_a_long_poll_without_matching_capabilities_does_not_block_others(
    served: Served, others: dict[str, Any], job: dict[str, Any]
) -> None:
    """R003-40, R003-50: those whom a job prefers come first, however long others have waited."""
    them, me = await hand(served, **others.get("worker", {})), await hand(served, capabilities={"gpu": True})
    await me.told("heartbeat", status="idle")
    theirs = wait_for(them, **others.get("claim", {}))
    await waiting_there(served, 1)
    mine = wait_for(me)
    await waiting_there(served, 2)
    made = await served.engine.create(NewJob(type="echo", **job))
    assert [job["jobId"] for job in await mine] == [made.id]
    assert not theirs.done()
    theirs.cancel()


@pytest.mark.usefixtures("only_by_hints")
async def test_a_stuck_claim_does_not_block_others(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one whose request fails."""
    monkeypatch.setattr(waiting_claims, "ANSWER_SECONDS", 0.1)
    stuck, failing, me = [await hand(served) for _ in range(3)]
    waiting = []
    for place, each in enumerate((stuck, failing, me)):
        waiting.append(wait_for(each) if each is me else asyncio.create_task(each.say("claim", waitSeconds=30)))
        await waiting_there(served, place + 1)
    original, never = served.engine.claim, asyncio.Event()

    async def claim(worker: str, **wanted: Any) -> Any:
        if worker == stuck.id:
            await never.wait()
        if worker == failing.id:
            raise RuntimeError("of our own making")
        return await original(worker, **wanted)

    monkeypatch.setattr(served.engine, "claim", claim)
    made = await served.engine.create(NewJob(type="echo"))
    assert [job["jobId"] for job in await waiting[2]] == [made.id]
    assert (await waiting[1]).status_code == 500
    never.set()
    waiting[0].cancel()


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), RuntimeError("of our own making")], ids=repr)
async def test_long_polls_continue_during_a_database_outage(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    monkeypatch.setattr(long_poll, "POLL_SECONDS", 0.05)
    me, original, failed = await hand(served), served.engine.polls.open_work, list[Exception]()

    async def openings(*wanted: Any) -> Any:
        if len(failed) < 3:
            failed.append(trouble)
            raise trouble
        return await original(*wanted)

    monkeypatch.setattr(served.engine.polls, "open_work", openings)
    waiting = wait_for(me)
    await waiting_there(served, 1)
    made = await served.engine.create(NewJob(type="echo"))
    assert [job["jobId"] for job in await waiting] == [made.id]
    assert logged(caplog, logging.WARNING) == [f"cannot look for jobs for waiting claims, retrying: {trouble}"]


# -- what it costs ----------------------------------------------------------------------------------------------------


async def test_two_hundred_long_polls_cost_a_few_queries_a_second(served: Served, asked: list[str]) -> None:
    """The same as one who waits: `open_work` and `next_open_work` once for all of them."""
    me = await hand(served)
    async with httpx2.AsyncClient(base_url=served.url, timeout=60, limits=httpx2.Limits(max_connections=200)) as lines:
        me.http = lines
        waiting = [wait_for(me, queues=[f"q-{place % 7}"]) for place in range(200)]
        await have_looked(asked, 200)
        asked.clear()
        began = time.monotonic()
        await asyncio.sleep(1.5)
        looks = [
            name
            for name in asked
            if name in ("open_work", "next_open_work", "enabled_workers", "open_lanes", "claim_jobs")
        ]
        assert len(looks) <= 10 * (time.monotonic() - began), Counter(looks)
        assert not {"open_lanes", "claim_jobs"} & set(looks)
        served.server.stop()
        assert not any(await asyncio.gather(*waiting))


@pytest.mark.usefixtures("only_by_hints")
async def test_one_job_wakes_one_long_poll(served: Served, asked: list[str]) -> None:
    me = await hand(served)
    waiting = [wait_for(me) for _ in range(50)]
    await have_looked(asked, 50)
    asked.clear()
    await served.engine.create(NewJob(type="echo"))
    await waiting_there(served, 49)
    await asyncio.sleep(0.2)
    assert asked.count("open_lanes") == 1
    served.server.stop()
    assert sum(len(each) for each in await asyncio.gather(*waiting)) == 1


async def test_without_long_polls_the_server_sends_no_queries(served: Served, asked: list[str]) -> None:
    await asyncio.sleep(1.3)
    assert "open_work" not in asked


async def test_many_waiting_workers_run_every_job_once(store_url: str) -> None:
    async with serving(store_url) as one, serving(store_url) as two:
        done = Counter[str]()

        async def work(me: Hand) -> None:
            while sum(done.values()) < 60:
                for job in await me.claim(limit=2, waitSeconds=1):
                    await me.told("complete", **held(job))
                    done[job["jobId"]] += 1

        hands = [await hand(served) for served in (one, two) for _ in range(4)]
        working = [asyncio.create_task(work(me)) for me in hands]
        for _ in range(30):
            for served in (one, two):
                await served.engine.create(NewJob(type="echo"))
            await asyncio.sleep(0.01)
        await asyncio.gather(*working)
        assert len(done) == 60
        assert set(done.values()) == {1}
