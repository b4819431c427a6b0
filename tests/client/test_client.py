"""The client against a real server: what it says, and what becomes of what goes wrong."""

import asyncio
import math
from contextlib import aclosing

import pytest

from holdfast import Client, JobFailed
from holdfast.client import client as module
from holdfast.errors import Conflict, Invalid, InvalidField, KeyReused, NotFound, StoreError, Unauthorized
from holdfast.model.limits import Limit
from tests.client.jobs import finish, take
from tests.server.steps import Served


async def test_the_result_of_a_created_job_is_returned_as_soon_as_it_completes(served: Served, client: Client) -> None:
    job = await client.create("mail", {"to": "a@example.com"}, queue="letters", priority=5, tags=["new"])
    assert await job.status() == "PENDING"
    waiting = asyncio.create_task(job.result(timeout=60))
    stored = await served.engine.reads.get(job.id)
    assert (stored.type, stored.queue, stored.priority, stored.tags) == ("mail", "letters", 5, ["new"])
    assert stored.payload == {"to": "a@example.com"}
    await finish(served.engine, {"sent": True})
    assert await waiting == {"sent": True}
    assert (await job.get()).status == "COMPLETED"


async def test_the_result_of_a_failed_job_raises_its_error(served: Served, client: Client) -> None:
    job = await client.create("mail", max_attempts=1)
    worker, [lease] = await take(served.engine)
    await served.engine.fail(worker, lease.id, lease.token, "E_NO_POST", "the postman is ill")
    with pytest.raises(JobFailed, match="E_NO_POST the postman is ill") as failed:
        await job.result(timeout=60)
    assert (failed.value.code, failed.value.status, failed.value.job_id) == ("E_NO_POST", "FAILED", job.id)


async def test_waiting_for_a_result_times_out(client: Client) -> None:
    job = await client.create("mail")
    with pytest.raises(TimeoutError, match="still PENDING"):
        await job.result(timeout=0.2)


async def test_a_batch_creates_all_jobs_or_none(served: Served, client: Client) -> None:
    jobs = await client.create_many([{"job_type": "mail", "payload": {"n": n}} for n in range(3)])
    assert [(await served.engine.reads.get(job.id)).payload for job in jobs] == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(Invalid, match="priority"):
        await client.create_many([{"job_type": "mail"}, {"job_type": "mail", "priority": 1000}])
    with pytest.raises(Invalid, match="colour"):
        await client.create_many([{"job_type": "mail", "colour": "red"}])
    assert len([view async for view in client.list()]) == 3


async def test_keys_and_units_of_limits_are_stored_with_the_job(served: Served, client: Client) -> None:
    await served.engine.job_limits.set("gpu", Limit(4), by="alice")
    one = await client.create("crawl", limit_key="a.com", fairness_key="acme", limits={"gpu": 3})
    [other] = await client.create_many([{"job_type": "crawl", "limit_key": "b.com", "limits": ["gpu"]}])
    stored = [await served.engine.reads.get(job.id) for job in (one, other)]
    assert [(job.limit_key, job.fairness_key) for job in stored] == [("a.com", "acme"), ("b.com", None)]
    await take(served.engine, limit=2)
    [gpu] = await served.engine.job_limits.all()
    assert gpu.used == 4
    with pytest.raises(InvalidField, match="units of limit 'gpu' must be a whole number"):
        await client.create("crawl", limits={"gpu": 0})


async def test_a_job_list_iterates_over_all_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    made = [job.id for job in await client.create_many([{"job_type": "mail"} for _ in range(7)])]
    await client.create("other")
    assert [view.job_id async for view in client.list(job_type="mail")] == made[::-1]
    assert [view.job_id async for view in client.list(job_type="mail", limit=4)] == made[:2:-1]
    assert [view.job_id async for view in client.list(status="COMPLETED")] == []


async def test_cancel_cancels_the_job(client: Client) -> None:
    job = await client.create("mail")
    assert await job.cancel() == "CANCELED"
    assert await client.cancel(job.id) == "CANCELED"
    with pytest.raises(JobFailed, match="CANCELED"):
        await job.result(timeout=60)


async def test_the_event_stream_of_a_job_starts_with_its_first_event(served: Served, client: Client) -> None:
    job = await client.create("mail")
    await finish(served.engine)
    async with asyncio.timeout(60):
        events = [event async for event in job.events()]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.verb for event in events][-2:] == ["claim", "complete"]


async def test_the_event_stream_of_all_jobs_delivers_new_events(served: Served, client: Client) -> None:
    seen: list[str] = []

    async def watch() -> None:
        async with aclosing(client.events()) as events:
            async for event in events:
                seen.append(event.job_id)  # noqa: PERF401  one by one, while it goes on

    watching = asyncio.create_task(watch())
    made: list[str] = []
    async with asyncio.timeout(60):
        while not set(made) & set(seen):  # when the stream begins is the server's to say
            made.append((await client.create("mail")).id)
            await asyncio.sleep(0.05)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert set(seen) <= set(made), "and no others"


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_a_problem_response_raises_the_error_of_the_server(served: Served, client: Client) -> None:
    unknown = "0198c0de-0000-7000-8000-000000000000"
    with pytest.raises(NotFound) as missing:
        await client.get(unknown)
    assert missing.value.code == "job_not_found"
    assert "request_id" in missing.value.fields
    await client.create("mail", {"n": 1}, idempotency_key="one")
    with pytest.raises(KeyReused):
        await client.create("mail", {"n": 2}, idempotency_key="one")
    with pytest.raises(InvalidField) as invalid:
        await client.create("mail", delay_seconds=-1)
    assert (invalid.value.code, invalid.value.fields["field"]) == ("invalid_field", "delay_seconds")
    await finish(served.engine)
    job = await client.create("mail", {"n": 1}, idempotency_key="one")
    with pytest.raises(Conflict):
        await job.cancel()


async def test_an_authentication_error_does_not_show_the_key(served: Served) -> None:
    """SEC: no secret in an error."""
    secret = "hf_client_abcdef_thisisnotakeyatall"
    async with Client(served.url, secret) as client:
        with pytest.raises(Unauthorized) as refused:
            await client.create("mail")
    assert secret not in repr(client) + repr(refused.value) + str(refused.value.fields)


async def test_a_payload_that_json_cannot_represent_is_rejected_before_sending(client: Client) -> None:
    with pytest.raises(Invalid, match="which JSON does not have") as refused:
        await client.create("mail", {"rate": math.nan})
    assert refused.value.code == "payload_not_json"
    with pytest.raises(NotFound, match="not a job id"):
        await client.get("../api/health")


async def test_a_response_that_is_not_from_holdfast_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n<hello>")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        async with Client(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}") as client:
            with pytest.raises(StoreError, match="check the URL") as strange:
                await client.get("1")
        assert strange.value.code == "unexpected_answer"
