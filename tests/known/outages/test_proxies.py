"""A proxy between a worker and its server answers in the server's place: what it says changes no outcome."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from holdfast import App, Client, Context, JobFailed
from holdfast.errors import HoldfastError, StoreError
from holdfast.lifecycle import State
from tests.client.fault_proxy import FaultProxy, InstantClock
from tests.server.steps import Served, serving
from tests.worker.test_http_source import source_at, working

GATEWAY = json.dumps({"code": "forbidden", "detail": "the gateway says no", "type": "about:blank"})
ANSWERS = [
    (500, ""),
    (403, "<h1>Forbidden</h1>"),
    (403, GATEWAY),
    (404, ""),
    (401, ""),
    (409, "{}"),
    (413, ""),
    (422, '{"detail": "a framework of another kind"}'),
    (521, ""),
    (302, ""),
    (200, "<h1>Please log in to the network</h1>"),
    (200, '{"progress": [], "complete": [], "fail": [], "release": [], "reject": []}'),
]


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url) as served:
        yield served


@pytest.mark.parametrize(("status", "body"), ANSWERS)
async def test_a_result_is_delivered_although_a_proxy_answered_first(
    served: Served, app: App, status: int, body: str
) -> None:
    async with FaultProxy.to(served.url) as gate:

        @app.job(max_attempts=1)
        async def handler(ctx: Context) -> str:
            gate.refuse(status, status, body=body)
            await ctx.progress(50)
            gate.refuse(status, status, body=body)
            return "done"

        async with source_at(served, gate.url, clock=InstantClock()) as source, working(source, app, concurrency=1):
            job = await handler.enqueue()
            assert await job.result(60) == "done"
        assert gate.refused >= 4
    found = await job.get()
    assert (found.state, found.attempt, found.failures) == (State.SUCCEEDED, 1, 0)


async def test_results_are_delivered_singly_if_a_proxy_refuses_the_batch(served: Served, app: App) -> None:
    async with FaultProxy.to(served.url) as gate:
        ready = asyncio.Barrier(10)

        @app.job()
        async def handler(number: int) -> int:
            async with asyncio.timeout(60):
                await ready.wait()
            if number == 0:
                gate.refuse(*[500] * 20)
            return number

        async with source_at(served, gate.url, clock=InstantClock()) as source, working(source, app, concurrency=10):
            handed_in = await handler.enqueue_many([{"number": number} for number in range(10)])
            assert [await job.result(60) for job in handed_in] == list(range(10))
        assert gate.refused >= 10


async def test_a_refusal_of_the_server_itself_fails_the_report(served: Served, app: App) -> None:
    @app.job(max_attempts=1)
    async def handler() -> str:
        return "x" * 300_000

    async with source_at(served) as source, working(source, app):
        job = await handler.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "result_too_large"


@pytest.mark.parametrize(("status", "body"), [answer for answer in ANSWERS if answer[0] not in (200, 302)])
async def test_a_client_does_not_treat_a_proxy_answer_as_one_of_the_server(
    served: Served, status: int, body: str
) -> None:
    """A 404 of a proxy must not be reported as an unknown job."""
    async with FaultProxy.to(served.url) as gate, Client(gate.url, retries=0) as client:
        gate.refuse(status, body=body)
        with pytest.raises(HoldfastError) as refused:
            await client.get("00000000-0000-7000-8000-000000000000")
    assert isinstance(refused.value, StoreError)
