"""Jobs over HTTP with keys and units of limits."""

from typing import Any

import pytest

from holdfast.model import JobType
from holdfast.model.limits import JobLimits, Limit
from tests.server.steps import ADMIN, Served

KEYS = {"limitKey": "example.com", "fairnessKey": "acme", "limits": {"gpu": 3}}


async def create(served: Served, path: str = "/jobs", **body: Any) -> Any:
    answer = await served.http.post(path, json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def whole(served: Served, job_id: str) -> dict[str, Any]:
    return dict((await served.http.get(f"/api/admin/jobs/{job_id}", headers=ADMIN)).json())


async def test_operators_see_the_keys_of_a_job_and_clients_do_not(served: Served) -> None:
    job = (await create(served, jobType="crawl", payload={}, **KEYS))["jobId"]
    shown = await whole(served, job)
    assert (shown["limitKey"], shown["fairnessKey"]) == ("example.com", "acme")
    [listed] = (await served.http.get("/api/admin/jobs", headers=ADMIN)).json()["jobs"]
    assert (listed["limitKey"], listed["fairnessKey"]) == ("example.com", "acme")
    assert not {"limitKey", "fairnessKey"} & (await served.http.get(f"/jobs/{job}")).json().keys()


async def test_a_job_without_keys_shows_none(served: Served) -> None:
    job = (await create(served, jobType="crawl", payload={}))["jobId"]
    assert not {"limitKey", "fairnessKey"} & (await whole(served, job)).keys()


async def test_each_job_of_a_batch_has_its_own_keys(served: Served, worker: str) -> None:
    await served.engine.job_limits.set("gpu", Limit(6), by="alice")
    jobs = [{"jobType": "crawl", "payload": {}, **KEYS, "limitKey": key} for key in ("a", "b", "c")]
    made = await create(served, "/jobs/batch", jobs=jobs)
    assert [(await whole(served, job["jobId"]))["limitKey"] for job in made["jobs"]] == ["a", "b", "c"]
    assert len(await served.engine.claim(worker, limit=10)) == 2, "each takes 3 of 6 units"


async def test_the_field_of_the_job_type_is_the_key_if_none_is_given(served: Served) -> None:
    await served.engine.job_types.declare(JobType(name="crawl", limits=JobLimits(key_from="domain")))
    by_field = (await create(served, jobType="crawl", payload={"domain": "a.com"}))["jobId"]
    given = (await create(served, jobType="crawl", payload={"domain": "a.com"}, limitKey="b.com"))["jobId"]
    assert [(await whole(served, job))["limitKey"] for job in (by_field, given)] == ["a.com", "b.com"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limitKey": ""}, "limitKey"),
        ({"limitKey": "a" * 256}, "limitKey"),
        ({"fairnessKey": "nul\u0000"}, "fairnessKey"),
        ({"limits": {"gpu": 0}}, "limits"),
        ({"limits": {"type:a": 1}}, "limits"),
        ({"limits": {"": 1}}, "limits"),
    ],
)
async def test_invalid_keys_and_units_are_refused(served: Served, body: dict[str, Any], field: str) -> None:
    answer = await served.http.post("/jobs", json={"jobType": "crawl", "payload": {}, **body})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", field)
