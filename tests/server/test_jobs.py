"""The control plane as a client sees it: hand in, ask, wait, cancel; and what it never gets to see."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Progress
from holdfast.lifecycle import STATUS, Lifecycles, State
from holdfast.model import JobType, Lease, NewJob, Part
from holdfast.model.key import NewKey
from holdfast.server.api import prefer_wait
from tests.engine.steps import ask, bring, stored
from tests.server.steps import ADMIN, Served, bearer, serving

BODY: dict[str, Any] = {"jobType": "SEND", "payload": {"to": "a"}}
UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def hand_in(served: Served, **body: Any) -> str:
    answer = await served.http.post("/jobs", json={**BODY, **body})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


# -- handing in -----------------------------------------------------------------------------------------------


async def test_a_created_job_is_stored_and_its_id_and_location_returned(served: Served) -> None:
    """R001-32, R001-35..39."""
    answer = await served.http.post("/jobs", json=BODY)
    assert answer.status_code == 202
    assert answer.json().keys() == {"jobId", "status"}
    assert answer.json()["status"] == "PENDING"
    assert answer.headers["location"] == f"/jobs/{answer.json()['jobId']}"
    job = await served.engine.reads.get(answer.json()["jobId"])
    assert (job.type, job.payload, job.tenant, job.queue, job.state) == (
        "SEND",
        {"to": "a"},
        "default",
        "default",
        "queued",
    )


async def test_all_options_of_a_job_are_stored(served: Served) -> None:
    """C-36: in either case."""
    said = {"queue": "mail", "priority": 7, "maxAttempts": 3, "tags": ["b", "a"], "runAt": "2030-01-01T00:00:00+02:00"}
    snake = {
        "max_attempts" if name == "maxAttempts" else "run_at" if name == "runAt" else name: said[name] for name in said
    }
    for body in (said, snake):
        job = await served.engine.reads.get(await hand_in(served, **body))
        assert (job.queue, job.priority, job.max_attempts, job.tags) == ("mail", 7, 3, ["a", "b"])
        assert job.run_at.isoformat() == "2029-12-31T22:00:00+00:00"


async def test_names_in_the_payload_are_not_converted(served: Served) -> None:
    """Both cases are taken for our names, and none of theirs is touched."""
    payload = {"snake_case": 1, "camelCase": {"inner_name": [2]}, "job_type": "x"}
    answer = await served.http.post("/jobs", json={"job_type": "SEND", "payload": payload})
    job = await served.engine.reads.get(answer.json()["jobId"])
    assert job.payload == payload


async def test_a_batch_of_jobs_is_stored_together(served: Served) -> None:
    answer = await served.http.post("/jobs/batch", json={"jobs": [{**BODY, "priority": n} for n in range(5)]})
    assert answer.status_code == 202
    ids = [one["jobId"] for one in answer.json()["jobs"]]
    assert [(await served.engine.reads.get(job_id)).priority for job_id in ids] == [0, 1, 2, 3, 4]
    assert {one["status"] for one in answer.json()["jobs"]} == {"PENDING"}


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"priority": 101}, 422, "invalid_field"),
    ({"jobType": ""}, 422, "invalid_field"),
    ({"payload": {"a": "\x00"}}, 422, "payload_not_json"),
    ({"payload": {"a": "x" * 300_000}}, 413, "payload_too_large"),
    ({"jobType": 5}, 422, "invalid_body"),
    ({"state": "succeeded"}, 422, "invalid_body"),
]


async def test_an_invalid_job_of_a_batch_is_named_and_none_is_stored(served: Served) -> None:
    for wrong, status, code in WRONG:
        answer = await served.http.post("/jobs/batch", json={"jobs": [BODY, BODY, {**BODY, **wrong}]})
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "jobs[2]" in answer.json()["detail"], answer.text
    assert (await served.engine.reads.page()).jobs == []


async def test_a_batch_holds_up_to_a_thousand(served: Served) -> None:
    """SEC-15."""
    small = {"jobType": "S", "payload": {}}
    assert (await served.http.post("/jobs/batch", json={"jobs": [small] * 1000})).status_code == 202
    answer = await served.http.post("/jobs/batch", json={"jobs": [small] * 1001})
    assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_large")
    assert (await served.http.post("/jobs/batch", json={"jobs": []})).json() == {"jobs": []}


async def test_fields_that_a_client_may_not_set_are_rejected(served: Served) -> None:
    """SEC-12: mass assignment."""
    for field in (
        "state",
        "status",
        "tenant",
        "attempts",
        "attempt",
        "policy",
        "leaseToken",
        "id",
        "jobId",
    ):
        answer = await served.http.post("/jobs", json={**BODY, field: "x"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body"), field
    assert (await served.engine.reads.page()).jobs == []


# -- asking ---------------------------------------------------------------------------------------------------


async def test_a_job_shows_progress_counters_and_result(served: Served, worker: str) -> None:
    """R001-46, C-24."""
    job_id = await hand_in(served)
    [lease] = await served.engine.claim(worker)
    report = Progress(id=job_id, token=lease.token, percent=40.0, step="render", eta_seconds=90, counters={"pages": 3})
    await served.engine.progress(worker, report)
    view = (await served.http.get(f"/jobs/{job_id}")).json()
    assert view["status"] == "RUNNING"
    assert 0 < view["progress"].pop("etaSeconds") <= 90
    assert (view["progress"], view["counters"]) == ({"percent": 40.0, "step": "render"}, {"pages": 3})
    await served.engine.complete(worker, job_id, lease.token, {"url": "s3://x", "n": [1, None]})
    view = (await served.http.get(f"/jobs/{job_id}")).json()
    assert (view["status"], view["result"]) == ("COMPLETED", {"url": "s3://x", "n": [1, None]})
    assert "etaSeconds" not in view["progress"]


async def test_a_failure_shows_its_code_and_message_and_nothing_else(served: Served, worker: str) -> None:
    """R001-49..53: neither traceback nor context; and no error at all while there is hope."""
    job_id = await hand_in(served, maxAttempts=2)
    for _ in range(2):
        view = (await served.http.get(f"/jobs/{job_id}")).json()
        assert "error" not in view
        [lease] = await served.engine.claim(worker)
        traceback = {"traceback": "File secret.py, line 1, in host-17"}
        await served.engine.fail(
            worker, job_id, lease.token, "E_SMTP", "no such mailbox", context=traceback, retry_after_seconds=0
        )
    answer = await served.http.get(f"/jobs/{job_id}")
    assert answer.json()["error"] == {"code": "E_SMTP", "message": "no such mailbox"}
    assert "secret.py" not in answer.text


SHOWN = {"jobId", "jobType", "status", "createdAt", "updatedAt", "progress", "counters", "result", "error"}
SHOWN |= {"canceledAt", "partial", "durationSeconds"}
CANARY = "canary-7f3a"


async def test_only_client_fields_are_shown_in_every_state(served: Served, worker: str) -> None:
    """R001-45..54, C-1, C-24, SEC-12: the allow-list, over all states of all lifecycles, alone and in a list."""
    for machine, state in [(each, state) for each in Lifecycles() for state in each.words]:
        key = f"{CANARY}-{machine.name}-{state}"
        job = await bring(served.engine, worker, machine, state, payload={"secret": CANARY}, idempotency_key=key)
        before = await stored(served.engine, job.id)
        answer = await served.http.get(f"/jobs/{job.id}")
        view = answer.json()
        assert view["status"] == STATUS[state]
        assert {"jobId", "jobType", "status", "createdAt", "updatedAt"} <= view.keys() <= SHOWN
        assert view.get("error", {"code": "", "message": ""}).keys() == {"code", "message"}
        assert ("error" in view) == (state in (State.DEAD, State.CANCELED, State.REJECTED))
        assert not [secret for secret in (CANARY, worker, job.token) if secret in answer.text]
        assert await stored(served.engine, job.id) == before, "asking changed something"
    page = await served.http.get("/jobs", params={"limit": 500})
    assert all(view.keys() <= SHOWN for view in page.json()["jobs"])
    assert not [secret for secret in (CANARY, worker) if secret in page.text]


async def test_a_finished_job_shows_its_duration(fresh_sqlite_url: str) -> None:
    """R002-38: from its first start, over all its attempts; of a job that never started there is nothing to say."""
    clock = MovableClock()
    async with serving(fresh_sqlite_url, clock=clock) as served:
        worker = (await served.engine.workers.register()).id
        job_id, waiting = await hand_in(served), await hand_in(served)

        async def told(job_id: str) -> set[float | None]:
            view, listed = await served.http.get(f"/jobs/{job_id}"), await served.http.get("/jobs")
            whole = await served.http.get(f"/api/admin/jobs/{job_id}", headers=ADMIN)
            [row] = [one for one in listed.json()["jobs"] if one["jobId"] == job_id]
            return {seen.get("durationSeconds") for seen in (view.json(), row, whole.json())}

        clock.advance(100)
        [lease] = await served.engine.claim(worker)
        clock.advance(5)
        await served.engine.fail(worker, job_id, lease.token, "E", retry_after_seconds=0)
        [lease] = await served.engine.claim(worker)
        assert (lease.id, await told(job_id)) == (job_id, {None})
        clock.advance(2.5)
        await served.engine.complete(worker, job_id, lease.token)
        await served.engine.cancel(waiting)
        clock.advance(60)
        assert (await told(job_id), await told(waiting)) == ({7.5}, {None})


async def test_a_canceled_job_shows_when_and_that_its_results_are_partial(served: Served, worker: str) -> None:
    """R002-30, R002-31, C-43: what it has reported stays; only of a job that never started there is nothing."""
    running, waiting = await hand_in(served), await hand_in(served)
    [lease] = await served.engine.claim(worker)
    counted = Progress(id=running, token=lease.token, counters={"urls_processed": 7}, parts=[Part(name="1080p")])
    await served.engine.progress(worker, counted)
    before = (await served.http.get(f"/jobs/{running}")).json()
    for job_id in (running, waiting):
        assert (await served.http.post(f"/jobs/{job_id}/cancel")).status_code < 300
    asked = (await served.http.get(f"/jobs/{running}")).json()
    await served.engine.fail(worker, running, lease.token, "stopped")

    view = (await served.http.get(f"/jobs/{running}")).json()
    stored = await served.engine.reads.get(running)
    assert (view["status"], view["partial"], view["counters"]) == ("CANCELED", True, {"urls_processed": 7})
    assert datetime.fromisoformat(view["canceledAt"]) == stored.canceled_at == stored.finished_at
    for earlier in (before, asked):
        assert not {"canceledAt", "partial"} & earlier.keys(), "it is not canceled before it has ended"
    never = (await served.http.get(f"/jobs/{waiting}")).json()
    assert (never["status"], "canceledAt" in never, "partial" in never) == ("CANCELED", True, False)

    whole = (await served.http.get(f"/api/admin/jobs/{running}", headers=ADMIN)).json()
    assert (whole["canceledAt"], whole["partial"], len(whole["parts"])) == (view["canceledAt"], True, 1)


async def test_an_unknown_id_is_not_found_and_nothing_changes(served: Served) -> None:
    """R001-55."""
    for job_id in (UNKNOWN, "nonsense", "%00", "a" * 5000, "%F0%9F%92%A9", "..%2F..%2Fetc"):
        for answer in (await served.http.get(f"/jobs/{job_id}"), await served.http.post(f"/jobs/{job_id}/cancel")):
            assert answer.status_code == 404, job_id
            assert answer.json()["code"] in ("job_not_found", "route_not_found")
    assert [row["n"] for row in await ask(served.engine, "SELECT count(*) AS n FROM holdfast_jobs")] == [0]


async def test_an_unchanged_job_is_304_with_its_etag(served: Served, worker: str) -> None:
    """C-39: each change of the view has another tag."""
    job_id = await hand_in(served)
    first = await served.http.get(f"/jobs/{job_id}")
    tags = [first.headers["etag"]]
    again = await served.http.get(f"/jobs/{job_id}", headers={"If-None-Match": f'"other", {tags[0]}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tags[0])
    [lease] = await served.engine.claim(worker)
    for percent in (None, 10.0, 20.0, None):
        if percent is not None:
            await served.engine.progress(worker, Progress(id=job_id, token=lease.token, percent=percent))
        elif len(tags) > 1:
            await served.engine.complete(worker, job_id, lease.token)
        answer = await served.http.get(f"/jobs/{job_id}", headers={"If-None-Match": tags[-1]})
        assert answer.status_code == 200
        tags.append(answer.headers["etag"])
    assert len(set(tags)) == len(tags)


# -- waiting --------------------------------------------------------------------------------------------------


async def finish(served: Served, worker: str, job_id: str) -> None:
    [lease] = await served.engine.claim(worker)
    await asyncio.sleep(0.1)
    await served.engine.complete(worker, job_id, lease.token, {"done": True})


async def test_prefer_wait_returns_the_finished_job(served: Served, worker: str) -> None:
    job_id = await hand_in(served)
    asking = served.http.get(f"/jobs/{job_id}", headers={"Prefer": "respond-async, wait=30"})
    answer, _ = await asyncio.gather(asking, finish(served, worker, job_id))
    assert (answer.json()["status"], answer.headers["preference-applied"]) == ("COMPLETED", "wait=30")


async def test_prefer_wait_with_an_etag_waits_for_a_change(served: Served, worker: str) -> None:
    job_id = await hand_in(served)
    known = (await served.http.get(f"/jobs/{job_id}")).headers["etag"]
    headers = {"Prefer": "wait=30", "If-None-Match": known}
    answer, _ = await asyncio.gather(served.http.get(f"/jobs/{job_id}", headers=headers), served.engine.claim(worker))
    assert (answer.status_code, answer.json()["status"]) == (200, "RUNNING")


async def test_prefer_wait_of_a_finished_job_returns_at_once(served: Served) -> None:
    job_id = await hand_in(served)
    await served.engine.cancel(job_id)
    known = (await served.http.get(f"/jobs/{job_id}")).headers["etag"]
    async with asyncio.timeout(60):
        answer = await served.http.get(f"/jobs/{job_id}", headers={"Prefer": "wait=60", "If-None-Match": known})
    assert answer.status_code == 304


async def test_prefer_wait_ends_after_its_time(served: Served) -> None:
    job_id = await hand_in(served)
    known = (await served.http.get(f"/jobs/{job_id}")).headers["etag"]
    for headers, status in (({}, 200), ({"If-None-Match": known}, 304)):
        answer = await served.http.get(f"/jobs/{job_id}", headers={"Prefer": "wait=1", **headers})
        assert (answer.status_code, answer.headers["preference-applied"]) == (status, "wait=1")


async def test_a_create_can_wait_for_the_result(served: Served, worker: str) -> None:
    asking = asyncio.create_task(served.http.post("/jobs", json=BODY, headers={"Prefer": "wait=30"}))
    leases: list[Lease] = []
    for _ in range(1000):
        if leases := await served.engine.claim(worker):
            break
        await asyncio.sleep(0.01)
    await served.engine.complete(worker, leases[0].id, leases[0].token)
    answer = await asking
    assert (answer.status_code, answer.json()["status"]) == (202, "COMPLETED")
    assert answer.headers["preference-applied"] == "wait=30"


async def test_revoking_a_key_ends_its_waiting_requests(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-4: what was handed in is said to be, and nothing else is told."""
    monkeypatch.setattr(prefer_wait, "RECHECK_SECONDS", 0.1)
    key, text = await served.engine.keys.create(NewKey())
    headers = {**bearer(text), "Prefer": "wait=60"}
    job_id = (await served.http.post("/jobs", json=BODY, headers=bearer(text))).json()["jobId"]
    asking = [
        served.http.get(f"/jobs/{job_id}", headers=headers),
        served.http.post("/jobs", json=BODY, headers=headers),
    ]
    both = asyncio.gather(*asking)
    for _ in range(1000):
        if len((await served.engine.reads.page()).jobs) == 2:
            break
        await asyncio.sleep(0.01)
    await served.engine.keys.revoke(key.id)
    async with asyncio.timeout(60):
        assert [answer.status_code for answer in await both] == [401, 202]


async def test_an_invalid_prefer_header_is_ignored(served: Served) -> None:
    for preference in ("wait", "wait=", "wait=soon", "wait=-1", "wait=0", "return=minimal", "await=5"):
        answer = await served.http.post("/jobs", json=BODY, headers={"Prefer": preference})
        assert answer.status_code == 202
        assert "preference-applied" not in answer.headers, preference


async def test_waiting_requests_hold_no_database_connections(served: Served) -> None:
    """More of them than there are connections to the database, and others still get through."""
    job_id = await hand_in(served)
    waiting = [
        asyncio.create_task(served.http.get(f"/jobs/{job_id}", headers={"Prefer": "wait=60"})) for _ in range(50)
    ]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(60):
        await served.http.post(f"/jobs/{job_id}/cancel")
        answers = await asyncio.gather(*waiting)
    assert {answer.json()["status"] for answer in answers} == {"CANCELED"}


# -- canceling ------------------------------------------------------------------------------------------------


async def test_canceling_a_waiting_job_is_immediate_and_idempotent(served: Served) -> None:
    job_id = await hand_in(served)
    answers = [await served.http.post(f"/jobs/{job_id}/cancel") for _ in range(2)]
    assert [(one.status_code, one.json()) for one in answers] == [(202, {"jobId": job_id, "status": "CANCELED"})] * 2
    assert (await served.http.get(f"/jobs/{job_id}")).json()["error"]["code"] == "canceled"


async def test_canceling_a_running_job_requests_a_stop(served: Served, worker: str) -> None:
    job_id = await hand_in(served)
    [lease] = await served.engine.claim(worker)
    answers = [await served.http.post(f"/jobs/{job_id}/cancel") for _ in range(2)]
    assert [one.json()["status"] for one in answers] == ["RUNNING"] * 2
    assert await served.engine.fail(worker, job_id, lease.token, "E_STOPPED")
    assert (await served.http.get(f"/jobs/{job_id}")).json()["status"] == "CANCELED"


async def test_canceling_a_finished_or_uncancelable_job_is_a_conflict(served: Served, worker: str) -> None:
    job_id = await hand_in(served)
    [lease] = await served.engine.claim(worker)
    await served.engine.complete(worker, job_id, lease.token)
    answer = await served.http.post(f"/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "already_final")
    await served.engine.job_types.declare(JobType(name="RESIZE", lifecycle="images"))
    answer = await served.http.post(f"/jobs/{await hand_in(served, jobType='RESIZE')}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_move")


async def test_a_cancel_needs_no_body(served: Served) -> None:
    for content in (b"", b"not json", b"{}" * 100):
        made = await served.engine.create(NewJob(type="a"))
        headers = {"Content-Type": "text/plain"} if content else {}
        answer = await served.http.post(f"/jobs/{made.id}/cancel", content=content, headers=headers)
        assert answer.status_code == 202
