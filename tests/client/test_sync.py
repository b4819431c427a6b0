"""The sync client tells the same stories, from code without an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import JobFailed, SyncClient
from holdfast.errors import KeyReused, NotFound, StoreUnavailable
from tests.client.fault_proxy import FaultProxy, InstantClock
from tests.client.generate import COMMAND, MODULES, generated, path_of
from tests.client.jobs import all_ids, finish
from tests.server.steps import Served


def test_the_sync_client_is_up_to_date() -> None:
    stale = [module for module in MODULES if path_of(module).read_text(encoding="utf-8") != generated(module)]
    assert stale == [], f"run `{COMMAND}`"


async def in_sync(work: Callable[[], Any]) -> Any:
    """The server lives on the test's own event loop, so sync code needs a thread."""
    return await asyncio.wait_for(asyncio.to_thread(work), 60)


async def test_a_job_is_created_streamed_and_its_result_returned(served: Served) -> None:
    with SyncClient(served.url) as client:
        job = await in_sync(lambda: client.create("mail", {"n": 1}, idempotency_key="one"))
        assert await in_sync(job.status) == "PENDING"
        waiting = asyncio.create_task(in_sync(lambda: job.result(timeout=60)))
        await finish(served.engine, 42)
        assert await waiting == 42
        events = await in_sync(lambda: [event.verb for event in job.events()])
        assert events[-2:] == ["claim", "complete"]
        assert await in_sync(lambda: [view.job_id for view in client.list()]) == [job.id]
        with pytest.raises(KeyReused):
            await in_sync(lambda: client.create("mail", {"n": 2}, idempotency_key="one"))


async def test_keys_of_limits_are_stored_with_the_job(served: Served) -> None:
    with SyncClient(served.url) as client:
        job = await in_sync(lambda: client.create("crawl", limit_key="a.com", fairness_key="acme", limits=["gpu"]))
    stored = await served.engine.reads.get(job.id)
    assert (stored.limit_key, stored.fairness_key) == ("a.com", "acme")


async def test_a_canceled_job_and_an_unknown_job_raise_errors(served: Served) -> None:
    with SyncClient(served.url) as client:
        first, _ = await in_sync(lambda: client.create_many([{"job_type": "mail"}, {"job_type": "mail"}]))
        assert await in_sync(first.cancel) == "CANCELED"
        with pytest.raises(JobFailed):
            await in_sync(lambda: first.result(timeout=60))
        with pytest.raises(NotFound):
            await in_sync(client.job("0198c0de-0000-7000-8000-000000000000").get)


async def test_a_lost_response_is_retried(served: Served, gate: FaultProxy) -> None:
    gate.cut_at(b"POST /jobs", after=True)
    with SyncClient(gate.url) as client:
        job = await in_sync(lambda: client.create("mail"))
        assert gate.cuts == 1
        clock = client.clock = InstantClock()
        gate.refuse(503, retry_after=5)
        assert await in_sync(job.status) == "PENDING"
    assert await all_ids(served.engine) == [job.id]
    assert max(clock.slept) >= 5


def test_an_unreachable_server_raises_unreachable() -> None:
    with SyncClient("http://127.0.0.1:1", retries=0) as client, pytest.raises(StoreUnavailable):
        client.get("1")
