"""Two tenants, one server: to each, the other's jobs are as if they were not there (SEC-9)."""

from typing import Any

import httpx2

from holdfast.lifecycle import DEFAULT, State
from holdfast.model.key import SCOPES, Kind
from holdfast.server.app import ROUTES
from tests.engine.steps import bring, stored
from tests.server.steps import Served, bearer, client_key

UNKNOWN = "01900000-0000-7000-8000-000000000000"
BODY: dict[str, Any] = {"jobType": "A", "payload": {"whose": "ours"}}


def comparable(answer: httpx2.Response, job_id: str) -> Any:
    """All of an answer but what is of the request: its id, its time, and the id that was asked for."""
    body = {name: value for name, value in answer.json().items() if name != "requestId"}
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, str(body).replace(job_id, "ID"), headers


async def test_a_job_of_another_tenant_is_indistinguishable_from_a_missing_one(served: Served, worker: str) -> None:
    """SEC-9: every route of clients that names a job, in every state that the other's job may be in."""
    ours = bearer(await client_key(served, "ours"))
    routes = [route for route in ROUTES if "{job_id}" in route.path and route.scope in SCOPES[Kind.CLIENT]]
    assert len(routes) >= 3
    for state in State:
        theirs = await bring(served.engine, worker, DEFAULT, state, tenant="theirs")
        before = await stored(served.engine, theirs.id)
        for route in routes:
            foreign, unknown = [
                await served.http.request(route.method, route.path.format(job_id=job_id), headers=ours)
                for job_id in (theirs.id, UNKNOWN)
            ]
            assert foreign.status_code == 404, route.name
            assert comparable(foreign, theirs.id) == comparable(unknown, UNKNOWN), route.name
        assert await stored(served.engine, theirs.id) == before


async def test_lists_and_idempotency_keys_are_separate_for_each_tenant(served: Served) -> None:
    """SEC-11: the same idempotency key twice is two jobs; no list shows the other's."""
    ours, theirs = [bearer(await client_key(served, tenant)) for tenant in ("ours", "theirs")]
    headers = {"Idempotency-Key": "the same"}
    mine = (await served.http.post("/jobs", json=BODY, headers=headers | ours)).json()["jobId"]
    yours = (await served.http.post("/jobs", json=BODY, headers=headers | theirs)).json()["jobId"]
    assert mine != yours
    for key, job_id in ((ours, mine), (theirs, yours)):
        page = (await served.http.get("/jobs", headers=key)).json()
        assert [job["jobId"] for job in page["jobs"]] == [job_id]
        assert (await served.http.get(f"/jobs/{job_id}", headers=key)).status_code == 200


async def test_the_tenant_comes_from_the_key_and_from_nowhere_else(served: Served) -> None:
    ours = bearer(await client_key(served, "ours"))
    for headers in ({"X-Tenant": "theirs"}, {"Tenant": "theirs"}):
        answer = await served.http.post("/jobs", json=BODY, headers=ours | headers)
        assert (await served.engine.reads.get(answer.json()["jobId"])).tenant == "ours"
    assert (await served.http.post("/jobs", json={**BODY, "tenant": "theirs"}, headers=ours)).status_code == 422
    assert (await served.http.get("/jobs?tenant=theirs", headers=ours)).status_code == 422
