"""What a client repeats, and that repeating is safe: the wire is cut, servers refuse, restart and are away."""

import asyncio

import pytest

from holdfast import Client
from holdfast.errors import OutcomeUnknown, StoreUnavailable, TooMany
from tests.client.fault_proxy import FaultProxy, InstantClock
from tests.client.jobs import all_ids, finish
from tests.server.steps import SECRET, Served


@pytest.mark.parametrize("heard", [True, False])
async def test_a_create_that_is_retried_after_a_lost_response_makes_one_job(
    served: Served, gate: FaultProxy, heard: bool
) -> None:
    """R: every create carries a key, so that a retry is safe whether or not the server heard the first."""
    gate.cut_at(b"POST /jobs", after=heard)
    async with Client(gate.url) as client:
        job = await client.create("mail", {"n": 1})
        assert gate.cuts == 1
        gate.cut_at(b"POST /jobs/batch", after=heard)
        many = await client.create_many([{"job_type": "mail"}, {"job_type": "mail"}])
    assert set(await all_ids(served.engine)) == {job.id, *(each.id for each in many)}


async def test_a_request_is_retried_after_502_503_and_504(served: Served, gate: FaultProxy) -> None:
    clock = InstantClock()
    gate.refuse(503, 502, 504)
    async with Client(gate.url, clock=clock) as client:
        job = await client.create("mail")
    assert await all_ids(served.engine) == [job.id]
    assert gate.refused == len(clock.slept) == 3


async def test_a_retry_waits_for_retry_after(gate: FaultProxy) -> None:
    clock = InstantClock()
    gate.refuse(429, 503, retry_after=7)
    async with Client(gate.url, clock=clock) as client:
        await client.create("mail")
        assert [seconds >= 7 for seconds in clock.slept] == [True, True]
        gate.refuse(429, retry_after=3600)
        with pytest.raises(TooMany) as refused:
            await client.create("mail")
    assert refused.value.retry_after == 3600


async def test_retries_end_after_the_configured_number(gate: FaultProxy) -> None:
    clock = InstantClock()
    gate.refuse(503, 503, 503)
    async with Client(gate.url, clock=clock, retries=2) as client:
        with pytest.raises(StoreUnavailable):
            await client.create("mail")
    assert len(clock.slept) == 2


async def test_an_unreachable_server_raises_unreachable() -> None:
    clock = InstantClock()
    async with Client("http://127.0.0.1:1", clock=clock, retries=3) as client:
        with pytest.raises(StoreUnavailable, match=r"cannot connect to http://127.0.0.1:1") as away:
            await client.get("1")
    assert away.value.code == "server_unreachable"
    assert len(clock.slept) == 3


async def test_a_registration_is_not_retried_after_a_lost_response(served: Served, gate: FaultProxy) -> None:
    """It carries no key: twice would be two workers."""
    gate.cut_at(b"POST /api/worker/register", after=True)
    async with Client(gate.url) as client:
        with pytest.raises(OutcomeUnknown) as lost:
            await client.register(SECRET, name="one")
        assert lost.value.code == "answer_lost"
        gate.refuse(503)
        registered = await client.register(SECRET, name="two")
    assert [worker.name for worker in await served.engine.workers.all()] == ["one", "two"]
    assert registered.api_key


async def test_an_event_stream_resumes_after_a_disconnect(served: Served, gate: FaultProxy) -> None:
    """No gap and no repeat: the stream is taken up by the id of the last event."""
    async with Client(gate.url) as client:
        job = await client.create("mail")
        seen = []
        async with asyncio.timeout(60):
            async for event in job.events():
                seen.append(event.seq)
                if len(seen) == 1:
                    await gate.cut_and_seen()
                    gate.refuse(503)
                    await finish(served.engine)
    assert gate.refused == 1
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == (await served.engine.reads.get(job.id)).version
