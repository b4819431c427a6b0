"""A server dies before and after each commit: one job, one outcome, and whoever asks again gets the same answer."""

from typing import Any

import httpx2
import pytest

from holdfast.model import JobType
from tests.server.crashing import DIED
from tests.server.processes import Process, server_process
from tests.server.steps import bearer, serving

MOMENTS = ["before", "after"]


def crashing(url: str, verb: str, moment: str) -> Any:
    return server_process(url, module="tests.server.crashing", HOLDFAST_TEST_CRASH=f"{verb}:{moment}")


async def dies_of(dying: Process, path: str, body: Any, headers: dict[str, str]) -> None:
    with pytest.raises(httpx2.TransportError):
        await dying.http.post(path, json=body, headers=headers)
    assert await dying.ended() == DIED


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_create_that_is_repeated_after_a_crash_makes_one_job(store_url: str, moment: str) -> None:
    """R001-33, R001-43, R001-83."""
    body = {"jobType": "SEND", "payload": {"to": "a"}, "idempotencyKey": "once"}
    async with crashing(store_url, "create", moment) as dying:
        await dies_of(dying, "/jobs", body, {})
    async with serving(store_url) as served:
        answers = [await served.http.post("/jobs", json=body) for _ in range(2)]
        page = await served.engine.reads.page()
    assert [answer.status_code for answer in answers] == [202, 202]
    assert {answer.json()["jobId"] for answer in answers} == {page.jobs[0].id}
    assert len(page.jobs) == 1


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_job_whose_server_died_before_accepting_it_is_accepted_by_the_repeat(
    store_url: str, moment: str
) -> None:
    """C-9: in `orchestration` a job is created, then accepted, in two commits."""
    body = {"jobType": "REPORT", "payload": {}, "idempotencyKey": "once"}
    async with serving(store_url) as served:
        await served.engine.job_types.declare(JobType(name="REPORT", lifecycle="orchestration"))
    async with crashing(store_url, "accept", moment) as dying:
        await dies_of(dying, "/jobs", body, {})
    async with serving(store_url) as served:
        [before] = (await served.engine.reads.page()).jobs
        assert before.state == ("created" if moment == "before" else "queued")
        again = await served.http.post("/jobs", json=body)
        assert again.json() == {"jobId": before.id, "status": "PENDING"}
        assert [event.to_state for event in await served.engine.reads.history(before.id)] == ["created", "queued"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_claim_that_is_repeated_after_a_crash_is_one_lease(store_url: str, moment: str) -> None:
    body = {"requestId": "once"}
    async with serving(store_url) as served:
        key = bearer((await served.register(name="w"))["apiKey"])
        for _ in range(2):
            await served.http.post("/jobs", json={"jobType": "SEND", "payload": {}})
    async with crashing(store_url, "claim", moment) as dying:
        await dies_of(dying, "/api/worker/claim", body, key)
    async with serving(store_url) as served:
        answers = [await served.http.post("/api/worker/claim", json=body, headers=key) for _ in range(2)]
        [first], [again] = (answer.json()["jobs"] for answer in answers)
        assert (first["jobId"], first["leaseToken"]) == (again["jobId"], again["leaseToken"])
        assert sorted(job.state for job in (await served.engine.reads.page()).jobs) == ["queued", "running"]


ENDINGS = {
    "complete": ({"result": {"n": 1}}, "COMPLETED", "succeeded"),
    "fail": ({"errorCode": "E_BAD", "message": "no", "permanent": True}, "FAILED", "failed"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("verb", ENDINGS)
async def test_a_report_that_is_repeated_after_a_crash_is_one_outcome(store_url: str, verb: str, moment: str) -> None:
    words, status, outcome = ENDINGS[verb]
    async with serving(store_url) as served:
        registered = await served.register(name="w")
        await served.http.post("/jobs", json={"jobType": "SEND", "payload": {}})
        key = bearer(registered["apiKey"])
        claimed = await served.http.post("/api/worker/claim", json={}, headers=key)
        [job] = claimed.json()["jobs"]
    body = {"jobId": job["jobId"], "leaseToken": job["leaseToken"], **words}
    async with crashing(store_url, verb, moment) as dying:
        await dies_of(dying, f"/api/worker/{verb}", body, key)
    async with serving(store_url) as served:
        answers = [await served.http.post(f"/api/worker/{verb}", json=body, headers=key) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        assert {answer.json()["status"] for answer in answers} == {status}
        attempts = await served.engine.reads.attempts(job["jobId"])
        assert [attempt.outcome for attempt in attempts] == [outcome]
        assert (await served.http.get(f"/jobs/{job['jobId']}")).json()["status"] == status


async def test_without_an_idempotency_key_a_repeat_makes_a_second_job(store_url: str) -> None:
    """Without a key, two requests are two jobs: otherwise the counts above would prove nothing."""
    async with serving(store_url) as served:
        for _ in range(2):
            await served.http.post("/jobs", json={"jobType": "SEND", "payload": {}})
        assert len((await served.engine.reads.page()).jobs) == 2
