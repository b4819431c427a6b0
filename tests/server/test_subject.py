"""The subject of a job, and the lifecycle in a request."""

from contextlib import aclosing
from typing import Any

import pytest

from holdfast import Client
from holdfast.engine import Filter
from holdfast.lifecycle import State
from holdfast.model import JobType, NewJob
from tests.server.event_reader import watching
from tests.server.steps import ADMIN, Served


async def create(served: Served, **body: Any) -> str:
    answer = await served.http.post("/jobs", json={"jobType": "TRANSCODE", "payload": {}, **body})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def refused(served: Served, **body: Any) -> tuple[int, str, str]:
    answer = await served.http.post("/jobs", json={"jobType": "TRANSCODE", "payload": {}, **body})
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


async def listed(served: Served, path: str, **query: str) -> list[str]:
    answer = await served.http.get(path, params=query, headers=ADMIN if "admin" in path else {})
    return [job["jobId"] for job in answer.json()["jobs"]]


async def test_clients_and_operators_see_the_subject_and_find_jobs_by_it(served: Served) -> None:
    job, other = await create(served, subject="video 7"), await create(served)
    child = (await served.engine.create(NewJob(type="A", parent_id=job))).id
    assert (await served.http.get(f"/jobs/{job}")).json()["subject"] == "video 7"
    assert "subject" not in (await served.http.get(f"/jobs/{other}")).json()
    assert (await served.http.get(f"/api/admin/jobs/{job}", headers=ADMIN)).json()["subject"] == "video 7"
    for path in ("/jobs", "/api/admin/jobs"):
        assert await listed(served, path, subject="video 7") == [job]
        assert await listed(served, path, parentId=job) == [child]
        assert await listed(served, path, subject="video 8") == []


async def test_each_event_of_a_job_names_its_subject(served: Served, worker: str) -> None:
    job = await create(served, subject="video 7")
    async with watching(served, "/api/admin/events", headers=ADMIN) as operators:
        await operators.block()
        [lease] = await served.engine.claim(worker)
        await served.engine.complete(worker, lease.id, lease.token)
        said = await operators.next()
        while said is not None and "jobId" not in said.data:  # about the worker
            said = await operators.next()
        assert said is not None
        assert (said.data["jobId"], said.data["subject"]) == (job, "video 7")
    async with watching(served, f"/jobs/{job}/events") as clients:
        assert [said.data["subject"] for said in await clients.rest()] == ["video 7"] * 3


async def test_each_job_of_a_batch_has_its_own_subject(served: Served) -> None:
    jobs = [{"jobType": "A", "payload": {}, "subject": subject} for subject in ("a", "b", None)]
    answer = await served.http.post("/jobs/batch", json={"jobs": jobs})
    made = [(await served.engine.reads.get(job["jobId"])).subject for job in answer.json()["jobs"]]
    assert made == ["a", "b", None]


async def test_the_client_sends_the_subject_and_the_lifecycle_and_lists_by_them(served: Served) -> None:
    async with Client(served.url) as client:
        job = await client.create("A", subject="video 7", lifecycle="transcode")
        [other] = await client.create_many([{"job_type": "A", "subject": "video 8"}])
        stored = await served.engine.reads.get(job.id)
        assert (stored.subject, stored.lifecycle) == ("video 7", "transcode")
        async with aclosing(client.list(subject="video 8")) as found:
            assert [(view.job_id, view.subject) async for view in found] == [(other.id, "video 8")]


async def test_a_redrive_keeps_the_subject(served: Served, worker: str) -> None:
    old = await create(served, subject="video 7")
    [lease] = await served.engine.claim(worker)
    await served.engine.fail(worker, lease.id, lease.token, "E_X", permanent=True)
    new = (await served.engine.redrive(old)).id
    assert (await served.engine.reads.get(new)).subject == "video 7"
    found = await served.engine.reads.page(Filter(subject="video 7", states=[State.QUEUED]))
    assert [job.id for job in found.jobs] == [new]


@pytest.mark.parametrize("subject", ["", " ", "x" * 201, "a\nb", "a\0b"])
async def test_a_subject_is_at_most_200_printable_characters(served_on_sqlite: Served, subject: str) -> None:
    assert await create(served_on_sqlite, subject="é" * 200)
    assert (await refused(served_on_sqlite, subject=subject))[:2] == (422, "invalid_field")
    assert (await served_on_sqlite.http.get("/jobs", params={"subject": subject})).status_code == 422
    assert (await served_on_sqlite.http.get("/jobs", params={"parentId": subject})).status_code == 422


async def test_another_subject_under_the_same_key_is_another_request(served_on_sqlite: Served) -> None:
    await create(served_on_sqlite, idempotencyKey="k", subject="a")
    assert (await refused(served_on_sqlite, idempotencyKey="k", subject="b"))[1] == "idempotency_key_reused"


async def test_a_request_may_name_the_lifecycle_of_a_type_that_no_app_declared(served: Served) -> None:
    job = await served.engine.reads.get(await create(served, lifecycle="transcode"))
    assert (job.lifecycle, job.max_attempts) == ("transcode", 3)
    status, code, detail = await refused(served, lifecycle="transcod")
    assert (status, code) == (422, "unknown_lifecycle")
    assert "did you mean 'transcode'?" in detail
    assert (await refused(served, lifecycle="x" * 500))[:2] == (422, "invalid_field")


async def test_a_declared_type_keeps_its_lifecycle(served: Served) -> None:
    await served.engine.job_types.declare(JobType(name="TRANSCODE", lifecycle="transcode"))
    await create(served, lifecycle="transcode")
    status, code, detail = await refused(served, lifecycle="default")
    assert (status, code) == (422, "lifecycle_conflict")
    assert "'TRANSCODE' is declared with lifecycle 'transcode'" in detail
    assert len(await listed(served, "/jobs")) == 1
