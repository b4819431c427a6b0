"""The worker API over HTTP: register, heartbeat, claim, report."""

import asyncio
from datetime import datetime
from typing import Any

from holdfast.model import NewJob
from tests.engine.steps import UNKNOWN_ID, stored
from tests.server.http_worker import Hand, hand, held
from tests.server.steps import ADMIN, Served

# -- register ---------------------------------------------------------------------------------------------------------


async def test_a_worker_is_registered_by_an_admin_and_gets_a_key_once(served: Served) -> None:
    """R003-91, R003-93, R003-96, R003-97: the row and its key are one commit, and only a digest is kept."""
    answer = await served.http.post(
        "/api/worker/register",
        json={"name": "shed", "capabilities": {"gpu": True}, "metadata": {"rack": 3}},
        headers=ADMIN,
    )
    assert answer.status_code == 201
    assert set(answer.json()) == {"workerId", "apiKey"}
    worker = await served.engine.workers.get(answer.json()["workerId"])
    assert (worker.name, worker.kind, worker.status, worker.offers) == ("shed", "remote", "active", ["gpu"])
    assert worker.metadata == {"rack": 3}
    assert (await Hand(served.http, worker.id, answer.json()["apiKey"]).claim()) == []


async def test_only_an_admin_registers_workers(served: Served) -> None:
    """R003-92."""
    me = await hand(served)
    for headers in ({}, {"X-Admin-Secret": "a guess"}, {"Authorization": f"Bearer {me.key}"}):
        answer = await served.http.post("/api/worker/register", json={}, headers=headers)
        assert answer.status_code in (401, 403), headers
    assert len(await served.engine.workers.all()) == 1


async def test_worker_metadata_is_an_object_of_at_most_ten_kilobytes(served: Served) -> None:
    """R003-95."""

    async def refusal(**body: Any) -> tuple[int, str]:
        answer = await served.http.post("/api/worker/register", json=body, headers=ADMIN)
        return answer.status_code, answer.json()["code"]

    assert await refusal(capabilities={"x": "y" * 10_300}) == (413, "capabilities_too_large")
    assert await refusal(metadata={"x": "y" * 10_300}) == (413, "metadata_too_large")
    assert await refusal(capabilities=["gpu"]) == (422, "invalid_body")
    assert await served.engine.workers.all() == []


async def test_the_worker_api_requires_a_key(served: Served) -> None:
    """R003-99."""
    for verb in ("claim", "heartbeat", "complete", "report"):
        answer = await served.http.post(f"/api/worker/{verb}", json={})
        assert answer.status_code in (401, 403), verb


# -- the walk of a job ------------------------------------------------------------------------------------------------


async def test_a_job_is_claimed_advanced_and_completed(served: Served) -> None:
    """R003-39, R003-45, R003-51, R003-54, R003-58: the whole way, and every answer says what the worker needs."""
    me = await hand(served)
    made = await served.engine.create(NewJob(type="resize", payload={"url": "a.png"}, tags=["t"], priority=3))
    job = await me.claim_one(instanceId="one")
    assert (job["jobId"], job["jobType"], job["payload"]) == (made.id, "resize", {"url": "a.png"})
    assert (job["attempt"], job["epoch"], job["maxAttempts"], job["checkpoint"], job["parts"]) == (1, 1, 5, None, [])
    assert (job["priority"], job["tags"], job["lifecycle"], job["queue"]) == (3, ["t"], "default", "default")
    assert job["clocks"] == {"leaseSeconds": 30.0, "heartbeatSeconds": 10.0, "cancelGraceSeconds": 30.0}
    running = await served.engine.reads.get(made.id)
    assert (running.lease_worker, running.lease_instance) == (me.id, "one")

    advanced = await me.told("progress", **held(job), currentStep="fetch", progressPercent=20, counters={"rows": 3})
    assert advanced["jobId"] == made.id
    assert advanced["cancel"] is False
    assert datetime.fromisoformat(advanced["leaseExpiresAt"]) > datetime.fromisoformat(job["leaseExpiresAt"])
    running = await served.engine.reads.get(made.id)
    assert (running.step, running.percent, running.counters) == ("fetch", 20, {"rows": 3})

    done = await me.told("complete", **held(job), result={"width": 10})
    assert done == {"jobId": made.id, "status": "COMPLETED", "state": "succeeded"}
    assert (await served.engine.reads.get(made.id)).result == {"width": 10}


async def test_the_status_has_the_name_of_the_lifecycle(served: Served) -> None:
    """C-31: also on a server that did not give out the lease, and has to look."""
    me = await hand(served)
    for lifecycle in ("transcode", "images", "generation"):
        await served.engine.create(NewJob(type=lifecycle, lifecycle=lifecycle))
    words = {}
    for job in await me.claim(limit=3):
        served.server.policies._policies.clear()
        words[job["lifecycle"]] = (await me.told("complete", **held(job)))["state"]
    assert words == {"transcode": "ready", "images": "completed", "generation": "completed"}


async def test_names_may_be_written_in_either_case(served: Served) -> None:
    """C-36."""
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    [job] = (await me.told("claim", job_types=["echo"], wait_seconds=0))["jobs"]
    await me.told("complete", job_id=job["jobId"], lease_token=job["leaseToken"])


async def test_finished_parts_and_the_checkpoint_come_back_with_the_next_attempt(served: Served) -> None:
    """R003-55, R003-80, R003-81, R003-112."""
    me = await hand(served)
    await served.engine.create(NewJob(type="transcode"))
    job = await me.claim_one()
    parts = [{"name": "1080p", "status": "completed", "data": {"file": "a"}}, {"name": "720p", "status": "in_progress"}]
    await me.told("progress", **held(job), parts=parts, checkpoint={"segment": 7})
    failed = await me.told("fail", **held(job), errorCode="E_DISK", message="full", retryAfterSeconds=0)
    assert (failed["status"], failed["state"]) == ("PENDING", "retrying")
    await served.engine.maintenance.requeue_due()
    again = await me.claim_one()
    assert (again["attempt"], again["epoch"], again["checkpoint"]) == (2, 2, {"segment": 7})
    assert [(part["name"], part["status"]) for part in again["parts"]] == [("1080p", "completed"), ("720p", "pending")]
    assert again["parts"][0]["data"] == {"file": "a"}


async def test_fail_returns_the_next_state_of_the_job(served: Served) -> None:
    """R003-72..R003-77."""
    me = await hand(served)
    await served.engine.create(NewJob(type="echo", max_attempts=2))
    job = await me.claim_one()
    first = await me.told("fail", **held(job), errorCode="E_NET", message="reset", retryAfterSeconds=0)
    assert first == {"jobId": job["jobId"], "status": "PENDING", "state": "retrying"}
    await served.engine.maintenance.requeue_due()
    last = await me.told("fail", **held(await me.claim_one()), errorCode="E_NET", message="reset")
    assert (last["status"], last["state"]) == ("FAILED", "dead")

    await served.engine.create(NewJob(type="echo"))
    buried = await me.told("fail", **held(await me.claim_one()), errorCode="E_BAD", permanent=True)
    assert buried["status"] == "FAILED"


async def test_a_long_error_message_is_truncated_not_rejected(served: Served) -> None:
    """R003-73."""
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    job = await me.claim_one()
    await me.told("fail", **held(job), errorCode="E_LONG", message="é\x00" * 50_000, permanent=True)
    error = (await served.engine.reads.get(job["jobId"])).error
    assert error["code"] == "E_LONG"
    assert len(error["message"]) <= 4001


async def test_a_job_is_released_or_rejected(served: Served) -> None:
    me = await hand(served)
    await served.engine.create(NewJob(type="draw", lifecycle="generation"))
    job = await me.claim_one()
    freed = await me.told("release", **held(job))
    assert (freed["status"], freed["state"]) == ("PENDING", "queued")
    again = await me.claim_one()
    assert (again["attempt"], again["epoch"]) == (1, 2)
    said = await me.told("reject", **held(again), errorCode="E_POLICY", message="no", context={"rule": 7})
    assert (said["status"], said["state"]) == ("REJECTED", "rejected")
    error = (await served.engine.reads.get(again["jobId"])).error
    assert error["context"] == {"rule": 7, "attempt": 1, "workerId": me.id}, "R002-40"


# -- heartbeat --------------------------------------------------------------------------------------------------------


async def test_a_heartbeat_renews_held_leases_and_lists_lost_ones(served: Served) -> None:
    """C-38: an unknown job is lost, not an error."""
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    job = await me.claim_one()
    strange = [{"jobId": UNKNOWN_ID, "leaseToken": UNKNOWN_ID}, {"jobId": "what?", "leaseToken": ""}]
    beat = await me.told("heartbeat", status="busy", slots=4, leases=[held(job), *strange])
    assert (beat["lost"], beat["cancel"], beat["drain"]) == ([UNKNOWN_ID, "what?"], [], False)
    assert list(beat["leaseExpiresAt"]) == [job["jobId"]]
    assert beat["leaseExpiresAt"][job["jobId"]] > job["leaseExpiresAt"]
    assert datetime.fromisoformat(beat["serverTime"]).tzinfo is not None
    worker = await served.engine.workers.get(me.id)
    assert (worker.status, worker.slots) == ("busy", 4)


async def test_a_heartbeat_stores_the_status_of_the_worker(served: Served) -> None:
    me = await hand(served)
    for status in ("idle", "busy", "offline", "active"):
        await me.told("heartbeat", status=status)
        assert (await served.engine.workers.get(me.id)).liveness == status


async def test_an_unknown_worker_status_is_rejected(served: Served) -> None:
    me = await hand(served)
    answer = await me.say("heartbeat", status="tired")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")


async def test_a_cancel_is_returned_by_the_next_heartbeat_and_progress(served: Served) -> None:
    me = await hand(served)
    await served.engine.create(NewJob(type="echo"))
    job = await me.claim_one()
    await served.engine.cancel(job["jobId"])
    assert (await me.told("heartbeat", leases=[held(job)]))["cancel"] == [job["jobId"]]
    assert (await me.told("progress", **held(job)))["cancel"] is True
    stopped = await me.told("release", **held(job))
    assert stopped["status"] == "CANCELED"


# -- who may --------------------------------------------------------------------------------------------------------

WORDS: dict[str, dict[str, Any]] = {
    "progress": {"currentStep": "stolen"},
    "complete": {"result": "stolen"},
    "fail": {"errorCode": "E_STOLEN", "message": "stolen"},
    "release": {},
    "reject": {"errorCode": "E_STOLEN", "message": "stolen"},
}


async def test_neither_an_id_nor_a_stolen_token_lets_another_worker_write(served: Served) -> None:
    """SEC-13, R003-52: job, token and the worker of the key must all be right."""
    owner, thief = await hand(served, name="owner"), await hand(served, name="thief")
    for name in ("one", "two"):
        await served.engine.create(NewJob(type=name))
    job, other = await owner.claim_one(jobTypes=["one"]), await thief.claim_one(jobTypes=["two"])
    before = await stored(served.engine, job["jobId"])
    for verb, words in WORDS.items():
        for token in (other["leaseToken"], job["leaseToken"], UNKNOWN_ID, "", "no token"):
            refusal = await thief.refused(verb, jobId=job["jobId"], leaseToken=token, **words)
            assert refusal["jobId"] == job["jobId"]
            assert "payload" not in refusal
    assert await stored(served.engine, job["jobId"]) == before
    await owner.told("complete", **held(job))


async def test_a_heartbeat_with_a_stolen_token_renews_nothing(served: Served) -> None:
    """SEC-13."""
    owner, thief = await hand(served), await hand(served)
    await served.engine.create(NewJob(type="echo"))
    job = await owner.claim_one()
    before = await stored(served.engine, job["jobId"])
    assert (await thief.told("heartbeat", leases=[held(job)]))["lost"] == [job["jobId"]]
    assert await stored(served.engine, job["jobId"]) == before


async def test_a_worker_of_some_tenants_gets_only_their_jobs(served: Served) -> None:
    """SEC-13: payloads of others are not for it."""
    me = await hand(served, tenants=["acme"])
    await served.engine.create(NewJob(type="echo", tenant="other", payload={"secret": 1}))
    assert await me.claim() == []
    await served.engine.create(NewJob(type="echo", tenant="acme"))
    assert (await me.claim_one())["tenant"] == "acme"


# -- many at once ---------------------------------------------------------------------------------------------------


async def claimed(served: Served, me: Hand, count: int, **job: Any) -> list[dict[str, Any]]:
    await served.engine.create_many([NewJob(type="echo", **job) for _ in range(count)])
    jobs = await me.claim(limit=count)
    assert len(jobs) == count
    return jobs


async def test_each_report_of_a_batch_gets_its_own_result(served: Served) -> None:
    me = await hand(served)
    jobs = await claimed(served, me, 6, lifecycle="generation")
    answer = await me.told(
        "report",
        progress=[{**held(jobs[0]), "progressPercent": 10}, {"jobId": UNKNOWN_ID, "leaseToken": UNKNOWN_ID}],
        complete=[{**held(jobs[0]), "result": 1}, held(jobs[1]), {**held(jobs[2]), "leaseToken": UNKNOWN_ID}],
        fail=[{**held(jobs[3]), "errorCode": "E"}],
        release=[held(jobs[4])],
        reject=[{**held(jobs[5]), "errorCode": "E_NO"}],
    )
    assert answer["progress"][0]["leaseExpiresAt"]
    assert answer["progress"][1]["code"] == "lease_lost"
    assert [report.get("state") for report in answer["complete"]] == ["completed", "completed", None]
    assert answer["complete"][2]["code"] == "lease_lost"
    assert answer["complete"][2]["reassigned"] is True
    assert [report["state"] for verb in ("fail", "release", "reject") for report in answer[verb]] == [
        *("failed", "queued", "rejected")
    ]
    assert (await served.engine.reads.get(jobs[0]["jobId"])).result == 1


async def test_concurrent_reports_share_a_commit_and_succeed_independently(served: Served, asked: list[str]) -> None:
    me = await hand(served)
    jobs = await claimed(served, me, 40)
    said = [{**held(job), "result": place} for place, job in enumerate(jobs)]
    said[7]["leaseToken"], said[8]["result"] = UNKNOWN_ID, "x" * 300_000
    asked.clear()
    answers = await asyncio.gather(*(me.say("complete", **each) for each in said))
    assert [answer.status_code for answer in answers] == [*[200] * 7, 409, 413, *[200] * 31]
    assert asked.count("complete_jobs") < 30
    results = [(await served.engine.reads.get(job["jobId"])).result for job in jobs]
    assert results == [*range(7), None, None, *range(9, 40)]


async def test_reject_is_an_error_in_a_lifecycle_without_it(served: Served) -> None:
    me = await hand(served)
    await served.engine.create(NewJob(type="echo", lifecycle="images"))
    answer = await me.say("reject", **held(await me.claim_one()), errorCode="E")
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_move")


async def test_an_invalid_report_does_not_fail_the_others(served: Served) -> None:
    me = await hand(served)
    jobs = await claimed(served, me, 5)
    results: list[Any] = ["a", "b", "x" * 300_000, "d", "e"]
    said = [{**held(job), "result": result} for job, result in zip(jobs, results, strict=True)]
    answer = await me.told(
        "report", complete=said, progress=[{**held(jobs[0]), "parts": [{"name": "p", "status": "?"}]}]
    )
    assert [report.get("code") for report in answer["complete"]] == [None, None, "result_too_large", None, None]
    assert answer["progress"][0]["code"] == "invalid_field"
    assert [(await served.engine.reads.get(job["jobId"])).final for job in jobs] == [True, True, False, True, True]


async def test_the_number_of_reports_in_a_request_is_limited(served: Served) -> None:
    me = await hand(served)
    words = [{"jobId": UNKNOWN_ID, "leaseToken": UNKNOWN_ID}] * 501
    answer = await me.say("report", complete=words, release=words)
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (413, "report_too_large", 1000)
    assert (await me.told("report"))["complete"] == []


async def test_an_invalid_report_is_a_client_error(served: Served) -> None:
    """Never a 500."""
    me = await hand(served)
    job = (await claimed(served, me, 1))[0]
    before = await stored(served.engine, job["jobId"])
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("progress", {**held(job), "progressPercent": 101}),
        ("progress", {**held(job), "currentStep": "\n"}),
        ("progress", {**held(job), "etaSeconds": -1}),
        ("complete", {**held(job), "result": {"a": "\u0000"}}),
        ("complete", {**held(job), "outcome": "misspelt"}),
        ("fail", {**held(job), "errorCode": ""}),
        ("fail", {**held(job), "errorCode": "E", "retryAfterSeconds": -1}),
        ("release", {**held(job), "delaySeconds": -1}),
        ("heartbeat", {"slots": -1}),
        ("heartbeat", {"instanceId": ""}),
        ("claim", {"limit": 0}),
        ("claim", {"limit": 101}),
        ("claim", {"waitSeconds": 31}),
        ("claim", {"waitSeconds": -1}),
        ("claim", {"queues": [""]}),
        ("claim", {"jobTypes": "echo"}),
        ("claim", {"requestId": ""}),
        ("claim", {"requestId": "x" * 201}),
        ("claim", {"instanceId": "\u0000"}),
    ]
    for verb, body in wrong:
        answer = await me.say(verb, **body)
        assert answer.status_code == 422, (verb, body, answer.text)
    assert await stored(served.engine, job["jobId"]) == before


async def test_a_report_about_a_finished_job_is_rejected(served: Served) -> None:
    me = await hand(served)
    job = (await claimed(served, me, 1))[0]
    await me.told("complete", **held(job))
    assert (await me.refused("progress", **held(job)))["reassigned"] is False
    assert (await me.told("heartbeat", leases=[held(job)]))["lost"] == [job["jobId"]]
