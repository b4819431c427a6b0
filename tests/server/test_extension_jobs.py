"""What routes of extensions do with jobs of the caller: cancel, wake, and stream their events."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.engine import Engine
from holdfast.errors import Conflict, Invalid
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.model.key import NewKey
from holdfast.server.api import streams
from holdfast.server.extensions.request import Request
from holdfast.server.extensions.routes import extension_route
from holdfast.server.http.route import LAST_EVENT_ID, Header, Reply, Stream
from holdfast.server.openapi.document import document
from tests.server import notes_extension as notes
from tests.server.event_reader import watching
from tests.server.steps import Served, bearer, serving
from tests.server.test_stream import until_open

SECONDS = 0.3  # the time limit of the route that streams


async def cancel(request: Request) -> dict[str, str]:
    return {"state": (await request.cancel(request.path["job_id"], "not wanted")).state}


async def cancel_within(request: Request) -> dict[str, str]:
    async with request.tx():
        canceled = await request.cancel(request.path["job_id"])
        if request.headers.get("x-fail"):
            raise Conflict("after all, no")
    return {"state": canceled.state}


async def hook(request: Request) -> dict[str, bool]:
    """Without a key: a webhook of a provider."""
    return {"woken": await request.wake(request.path["job_id"], request.headers.get("x-tenant"))}


async def hook_within(request: Request) -> dict[str, bool]:
    async with request.tx():
        return {"woken": await request.wake(request.path["job_id"], "acme")}


async def events(request: Request) -> Reply | Stream:
    return await request.job_events(request.path["job_id"])


async def forget(request: Request) -> dict[str, str]:
    await request.job_events(request.path["job_id"])
    if request.headers.get("x-fail"):
        raise Conflict("after all, no")
    return {"state": "forgotten"}


STREAMED = {200: "text/event-stream", 204: None}
JSON = {"answers": {200: "application/json"}, "refuses": (404, 409)}
ROUTES = (
    notes.route("POST", "/notes/{job_id}/cancel", cancel, **JSON),
    notes.route("POST", "/notes/{job_id}/cancel-within", cancel_within, **JSON),
    notes.route("POST", "/notes/{job_id}/hook", hook, **{**JSON, "scope": None}),
    notes.route("POST", "/notes/{job_id}/hook-within", hook_within, **{**JSON, "scope": None}),
    notes.route("GET", "/notes/{job_id}/events", events, answers=STREAMED, refuses=(404,), seconds=SECONDS),
    notes.route("GET", "/notes/{job_id}/forgotten", forget, **JSON),
)


@pytest.fixture
async def noted(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url, routes=ROUTES) as served:
        yield served


async def key_of(served: Served, tenant: str, *scopes: str) -> dict[str, str]:
    return bearer((await served.engine.keys.create(NewKey(tenant=tenant, scopes=[*scopes]))).text)


async def finished(engine: Engine, tenant: str = "default") -> str:
    worker = (await engine.workers.register()).id
    made = await engine.create(NewJob(type="t", tenant=tenant))
    [lease] = await engine.claim(worker, types=["t"])
    await engine.complete(worker, lease.id, lease.token)
    return made.id


# -- cancel and wake ----------------------------------------------------------------------------------------------


async def test_a_route_cancels_a_job_of_the_callers_tenant(noted: Served) -> None:
    engine, acme = noted.engine, await key_of(noted, "acme", "notes:read")
    mine, theirs = [(await engine.create(NewJob(type="t", tenant=tenant))).id for tenant in ("acme", "them")]
    for _ in range(2):
        answer = await noted.http.post(f"/notes/{mine}/cancel", headers=acme)
        assert (answer.status_code, answer.json()) == (200, {"state": "canceled"})
    job = await engine.reads.get(mine)
    assert (job.state, job.reason) == (State.CANCELED, "not wanted")
    refused = await noted.http.post(f"/notes/{theirs}/cancel", headers=acme)
    assert (refused.status_code, refused.json()["code"]) == (404, "job_not_found")


async def test_a_running_job_is_asked_to_stop(noted: Served) -> None:
    made = await noted.engine.create(NewJob(type="t"))
    await noted.engine.claim((await noted.engine.workers.register()).id, types=["t"])
    assert (await noted.http.post(f"/notes/{made.id}/cancel")).json() == {"state": "running"}
    assert (await noted.engine.reads.get(made.id)).cancel_requested_at is not None


async def test_a_cancel_is_part_of_the_transaction_of_the_request(noted: Served) -> None:
    made = await noted.engine.create(NewJob(type="t"))
    failed = await noted.http.post(f"/notes/{made.id}/cancel-within", headers={"x-fail": "1"})
    assert (failed.status_code, (await noted.engine.reads.get(made.id)).state) == (409, State.QUEUED)
    assert (await noted.http.post(f"/notes/{made.id}/cancel-within")).json() == {"state": "canceled"}
    assert (await noted.engine.reads.get(made.id)).state is State.CANCELED


async def test_a_route_without_a_key_wakes_a_job_of_the_tenant_that_it_names(noted: Served) -> None:
    made = [await noted.engine.create(NewJob(type="t", tenant="acme", delay_seconds=600)) for _ in range(2)]
    for tenant in ({}, {"x-tenant": "them"}):
        assert (await noted.http.post(f"/notes/{made[0].id}/hook", headers=tenant)).status_code == 404
    woken = await noted.http.post(f"/notes/{made[0].id}/hook", headers={"x-tenant": "acme"})
    within = await noted.http.post(f"/notes/{made[1].id}/hook-within")
    assert woken.json() == within.json() == {"woken": True}
    worker = (await noted.engine.workers.register()).id
    assert len(await noted.engine.claim(worker, types=["t"], limit=5)) == 2


# -- event streams ------------------------------------------------------------------------------------------------


async def test_a_route_streams_the_events_of_a_job_as_the_core_does(noted: Served) -> None:
    job = await finished(noted.engine)
    for last in (None, "2"):
        async with watching(noted, f"/notes/{job}/events", last=last) as theirs:
            mine = [said.raw for said in await theirs.rest()]
        async with watching(noted, f"/jobs/{job}/events", last=last) as cores:
            assert mine == [said.raw for said in await cores.rest()]
        assert {**theirs.answer.headers, "x-request-id": ""} == {**cores.answer.headers, "x-request-id": ""}
    complete = await noted.http.get(f"/notes/{job}/events", headers={"Last-Event-ID": "3"})
    assert (complete.status_code, complete.content) == (204, b"")
    wrong = await noted.http.get(f"/notes/{job}/events", headers={"Last-Event-ID": "x"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_cursor")


async def test_a_stream_needs_the_scope_of_its_route_and_shows_one_tenant(noted: Served) -> None:
    job = await finished(noted.engine, "acme")
    for tenant, scope, status in (("acme", "notes:read", 200), ("acme", "jobs:read", 403), ("them", "notes:read", 404)):
        headers = await key_of(noted, tenant, scope)
        async with noted.http.stream("GET", f"/notes/{job}/events", headers=headers) as answer:
            assert answer.status_code == status


async def test_the_time_limit_of_the_route_does_not_end_the_stream(noted: Served) -> None:
    job = await noted.engine.create(NewJob(type="t"))
    async with watching(noted, f"/notes/{job.id}/events") as reader:
        assert (await reader.next()).data["verb"] == "create"
        await asyncio.sleep(3 * SECONDS)
        await noted.engine.cancel(job.id)
        assert [said.data["verb"] for said in await reader.rest()] == ["cancel"]


async def test_an_idle_stream_has_heartbeats(store_url: str) -> None:
    async with serving(store_url, routes=ROUTES, sse_heartbeat_seconds=1) as served:
        job = await served.engine.create(NewJob(type="t"))
        async with watching(served, f"/notes/{job.id}/events") as reader:
            await reader.next()
            beat = await reader.block()
            assert (beat.data, beat.raw[:1]) == (None, ":")


async def test_streams_of_extensions_count_against_the_limit_of_the_key(
    noted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_KEY", 2)
    job = (await noted.engine.create(NewJob(type="t"))).id
    headers = await key_of(noted, "default", "notes:read", "jobs:read")
    paths = f"/notes/{job}/events", f"/jobs/{job}/events"
    async with watching(noted, paths[0], headers=headers), watching(noted, paths[1], headers=headers):
        for path in paths:
            refused = await noted.http.get(path, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    await until_open(noted, 0)


async def test_revoking_a_key_ends_the_streams_of_extensions(noted: Served) -> None:
    made = await noted.engine.keys.create(NewKey(scopes=["notes:read"]))
    job = await noted.engine.create(NewJob(type="t"))
    async with watching(noted, f"/notes/{job.id}/events", headers=bearer(made.text)) as reader:
        await reader.next()
        await noted.engine.keys.revoke(made.key.id)
        assert await reader.next() is None


@pytest.mark.parametrize(("headers", "status"), [({}, 200), ({"x-fail": "1"}, 409)])
async def test_a_stream_that_the_route_does_not_return_is_closed(
    noted: Served, headers: dict[str, str], status: int
) -> None:
    job = await noted.engine.create(NewJob(type="t"))
    assert (await noted.http.get(f"/notes/{job.id}/forgotten", headers=headers)).status_code == status
    assert noted.server.streams.total() == 0


def test_openapi_describes_the_stream() -> None:
    operation = document(ROUTES)["paths"]["/notes/{jobId}/events"]["get"]
    assert operation["responses"]["200"]["content"].keys() == {"text/event-stream"}
    assert {"204", "404", "422", "429"} <= operation["responses"].keys()
    assert [one["name"] for one in operation["parameters"]] == ["jobId", LAST_EVENT_ID.name]
    with pytest.raises(Invalid, match="the header last-event-id is described twice"):
        extension_route(
            *("notes", "GET", "/x", events), scope=None, answers=STREAMED, headers=(Header("last-event-id", "", ""),)
        )
