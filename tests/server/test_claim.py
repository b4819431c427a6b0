"""claim over HTTP: what a worker asks for, the same request twice, and clients that hang up."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.clock import MovableClock
from holdfast.model import NewJob
from tests.engine.steps import ask
from tests.server.http_worker import Hand, hand, held, waiting_there
from tests.server.steps import Served, serving


async def create(served: Served, *types: str, **job: Any) -> list[str]:
    made = await served.engine.create_many([NewJob(type=name, **job) for name in types])
    return [each.id for each in made]


# -- what is asked for ------------------------------------------------------------------------------------------------


async def test_a_claim_returns_one_job_by_default_and_up_to_its_limit(served: Served) -> None:
    """C-25: each of them under a token of its own."""
    me = await hand(served)
    await create(served, *["echo"] * 120)
    assert len(await me.claim()) == 1
    jobs = await me.claim(limit=100)
    assert len(jobs) == 100
    assert len({job["leaseToken"] for job in jobs}) == 100
    assert len(await me.claim(limit=100)) == 19


async def test_a_claim_is_limited_to_its_types_and_queues(served: Served) -> None:
    me = await hand(served)
    await create(served, "a", "b")
    await create(served, "a", queue="slow")
    assert [(job["jobType"], job["queue"]) for job in await me.claim(limit=9, jobTypes=["b", "c"])] == [
        ("b", "default")
    ]
    assert [job["queue"] for job in await me.claim(limit=9, queues=["slow"], jobTypes=["a"])] == ["slow"]
    assert await me.claim(limit=9, queues=["elsewhere"]) == []
    assert len(await me.claim(limit=9, queues=[], jobTypes=[])) == 1


async def test_a_key_limited_to_queues_claims_from_no_others(served: Served) -> None:
    """SEC-13."""
    me = await hand(served, queues=["mail", "sms"])
    for queue in ("mail", "sms", "default"):
        await create(served, "echo", queue=queue)
    assert {job["queue"] for job in await me.claim(limit=9, queues=["mail"])} == {"mail"}
    assert {job["queue"] for job in await me.claim(limit=9)} == {"sms"}
    answer = await me.say("claim", queues=["mail", "default"])
    assert (answer.status_code, answer.json()["code"]) == (403, "queue_not_allowed")


async def test_capabilities_limit_the_jobs_of_a_worker(served: Served) -> None:
    plain, able = await hand(served), await hand(served, capabilities={"gpu": True})
    await create(served, "encode", requires=["gpu"])
    assert await plain.claim() == []
    assert (await able.claim_one())["jobType"] == "encode"


async def test_a_claim_requeues_expired_leases(store_url: str) -> None:
    """C-26: also by a request that may be repeated."""
    clock = MovableClock()
    async with serving(store_url, clock=clock, startup_grace_seconds=0) as served:
        me, other = await hand(served), await hand(served)
        await create(served, "echo", "echo")
        jobs = await me.claim(limit=2)
        clock.advance(31)
        assert (await other.claim_one())["epoch"] == 2
        assert (await other.claim_one(requestId="r"))["epoch"] == 2
        for job in jobs:
            assert (await me.refused("complete", **held(job)))["reassigned"] is True


# -- the same request twice -------------------------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_same_leases(served: Served) -> None:
    me = await hand(served)
    await create(served, *["echo"] * 5)
    first = await me.claim(limit=3, requestId="r-1")
    assert await me.claim(limit=3, requestId="r-1") == first
    assert len(await me.claim(limit=3, requestId="r-2")) == 2
    await me.told("complete", **held(first[1]))
    await me.told("release", **held(first[2]))
    assert await me.claim(limit=3, requestId="r-1") == [first[0]]


async def test_a_repeated_claim_of_finished_jobs_returns_nothing_new(served: Served) -> None:
    """A copy of a request that comes late must not take jobs that nobody waits for; nor does it wait for any."""
    me = await hand(served)
    await create(served, "echo")
    await me.told("complete", **held(await me.claim_one(requestId="r")))
    made = await create(served, "echo")
    assert await me.claim(requestId="r", waitSeconds=30) == []
    assert (await served.engine.reads.get(made[0])).state == "queued"
    assert (await me.claim_one())["jobId"] == made[0]


async def test_an_empty_claim_can_be_repeated(served: Served) -> None:
    me = await hand(served)
    assert await me.claim(requestId="r") == []
    assert await ask(served.engine, "SELECT request_id FROM holdfast_claims") == []
    await create(served, "echo")
    assert len(await me.claim(requestId="r")) == 1


async def test_the_same_request_id_of_another_worker_is_another_request(served: Served) -> None:
    one, two = await hand(served), await hand(served)
    await create(served, "echo", "echo")
    first, second = await one.claim_one(requestId="r"), await two.claim_one(requestId="r")
    assert first["jobId"] != second["jobId"]
    assert (await one.claim_one(requestId="r"))["jobId"] == first["jobId"]


async def test_a_repeated_claim_omits_jobs_that_another_worker_holds(store_url: str) -> None:
    clock = MovableClock()
    async with serving(store_url, clock=clock, startup_grace_seconds=0) as served:
        me, other = await hand(served), await hand(served)
        await create(served, "echo", payload={"secret": 1})
        await me.claim_one(requestId="r")
        clock.advance(31)
        assert (await other.claim_one())["epoch"] == 2
        assert await me.claim(requestId="r") == []


@pytest.fixture
async def two_servers(store_url: str) -> AsyncIterator[tuple[Served, Served]]:
    async with serving(store_url) as one, serving(store_url) as two:
        yield one, two


async def test_concurrent_equal_claims_get_the_same_leases(two_servers: tuple[Served, Served]) -> None:
    """Also on two servers, and whether there are fewer jobs than would do for both or more."""
    one, two = two_servers
    me = await hand(one)
    for round_, jobs in enumerate((1, 2, 3, 7) * 3):
        await create(one, *["echo"] * jobs)
        asked = [(me if place % 2 else me.elsewhere(two)).claim(limit=2, requestId=f"r-{round_}") for place in range(8)]
        answers = await asyncio.gather(*asked)
        told = [sorted(job["leaseToken"] for job in answer) for answer in answers]
        assert len(told[0]) == min(jobs, 2)
        assert told == [told[0]] * 8
        for job in [*answers[0], *await me.claim(limit=9)]:
            await me.told("complete", **held(job))


# -- clients that hang up ---------------------------------------------------------------------------------------------


class Caller:
    """A client that can hang up at any moment."""

    def __init__(self, me: Hand) -> None:
        self._me = me

    async def ask(self, **body: Any) -> asyncio.StreamWriter:
        where = urlsplit(str(self._me.http.base_url))
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        data = json.dumps(body).encode()
        writer.write(
            b"POST /api/worker/claim HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            + f"authorization: Bearer {self._me.key}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        return writer


@pytest.mark.parametrize("body", [{}, {"requestId": "r"}, {"waitSeconds": 30}], ids=str)
async def test_a_job_claimed_for_a_disconnected_client_is_released(
    served: Served, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """It goes back to the queue, long before its lease ends."""
    me, other = await hand(served), await hand(served)
    [made] = await create(served, "echo")
    taken, go_on = asyncio.Event(), asyncio.Event()
    with monkeypatch.context() as patched:
        for name in ("claim", "claim_once"):
            patched.setattr(served.engine, name, held_up(getattr(served.engine, name), taken, go_on))
        line = await Caller(me).ask(**body)
        await taken.wait()
        [disconnected] = served.server._waiting
        line.transport.abort()
        await disconnected.wait()
    go_on.set()
    job = await other.claim_one(waitSeconds=30)
    assert (job["jobId"], job["attempt"], job["epoch"]) == (made, 1, 2)


def held_up(original: Any, taken: asyncio.Event, go_on: asyncio.Event) -> Any:
    async def slowly(*given: Any, **named: Any) -> Any:
        leases = await original(*given, **named)
        taken.set()
        await go_on.wait()
        return leases

    return slowly


async def test_a_client_that_disconnects_while_waiting_claims_nothing(served: Served) -> None:
    me, other = await hand(served), await hand(served)
    line = await Caller(me).ask(waitSeconds=30)
    await waiting_there(served, 1)
    line.transport.abort()
    await waiting_there(served, 0)
    await create(served, "echo")
    assert (await other.claim_one())["epoch"] == 1
