"""Operators look at jobs, and move one by hand."""

from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import HeldLease, Progress, Retention
from holdfast.lifecycle import State
from holdfast.model import NewJob, Part
from tests.engine.steps import UNKNOWN_ID, ask
from tests.server.admin_client import Operator, dead, operator, retrying, started, with_key
from tests.server.steps import ADMIN, Served, serving

CARRIED = "what only this job carries"


@pytest.fixture
def op(served: Served) -> Operator:
    return operator(served)


# -- looking -----------------------------------------------------------------------------------------------------


async def test_jobs_are_listed_by_filter_the_newest_first_and_page_by_page(op: Operator) -> None:
    await op.engine.create_many([NewJob(type="a"), NewJob(type="b", queue="mail", tags=["x"])])
    await op.engine.create_many([NewJob(type="b", tenant="acme"), NewJob(type="b")])
    whole = (await op.get("/jobs"))["jobs"]
    assert [job["jobType"] for job in whole] == ["b", "b", "b", "a"]
    assert [job["tenant"] for job in (await op.get("/jobs", tenant="acme"))["jobs"]] == ["acme"]
    assert [job["queue"] for job in (await op.get("/jobs", tag="x", queue="mail"))["jobs"]] == ["mail"]
    assert (await op.get("/jobs", jobType="b", createdBefore="2020-01-01T00:00:00Z"))["jobs"] == []
    assert len((await op.get("/jobs", createdAfter="2020-01-01T00:00:00Z"))["jobs"]) == 4

    first = await op.get("/jobs", limit=3)
    rest = await op.get("/jobs", limit=3, cursor=first["nextCursor"])
    assert first["jobs"] + rest["jobs"] == whole
    assert rest["nextCursor"] is None


async def test_jobs_are_found_by_state_and_by_status(op: Operator) -> None:
    lost, waiting = await dead(op.engine, code="E_DISK"), (await op.engine.create(NewJob(type="a"))).id

    async def found(**query: str) -> list[str]:
        answer = await op.served.http.get("/api/admin/jobs", params=query, headers=op.headers)
        return [job["jobId"] for job in answer.json()["jobs"]]

    assert await found(state="dead") == await found(status="FAILED") == await found(errorCode="E_DISK") == [lost]
    assert await found(state="queued,dead") == await found(status="PENDING,FAILED") == [waiting, lost]
    refused = await op.get("/jobs", state="deaf", status=422)
    assert (refused["code"], "did you mean 'dead'?" in refused["detail"]) == ("unknown_state", True)


async def test_the_derived_name_of_a_job_follows_its_claim_and_its_error(fresh_sqlite_url: str) -> None:
    """R003-18, R003-19, R003-20, R003-21, R003-22, R003-23, C-31: one word for each moment, in lists and alone."""
    clock = MovableClock()
    async with serving(fresh_sqlite_url, clock=clock) as served:
        op = operator(served)
        worker = (await op.engine.workers.register()).id
        job = (await op.engine.create(NewJob(type="film", lifecycle="transcode", max_attempts=2))).id

        async def derived() -> str:
            [listed], alone = (await op.get("/jobs"))["jobs"], await op.get(f"/jobs/{job}")
            assert listed["derived"] == alone["derived"]
            return str(alone["derived"])

        assert await derived() == "Unclaimed"
        [lease] = await op.engine.claim(worker)
        assert await derived() == "Claimed"
        clock.advance(1800)
        assert await derived() == "Expired"
        await op.engine.heartbeat(worker, [HeldLease(lease.id, lease.token)])
        assert await derived() == "Claimed"
        await op.engine.fail(worker, lease.id, lease.token, "E")
        assert await derived() == "Retrying"
        [lease] = await op.engine.claim(worker)
        assert await derived() == "Claimed"
        await op.engine.release(worker, lease.id, lease.token)
        assert await derived() == "Retrying"
        [lease] = await op.engine.claim(worker)
        await op.engine.fail(worker, lease.id, lease.token, "E")
        assert await derived() == "Failed"


async def test_a_completed_job_is_derived_as_such_and_a_canceled_one_as_nothing(op: Operator) -> None:
    """R003-21, C-31: the last error of a job that succeeded is gone, and 003 knows no cancel."""
    worker = (await op.engine.workers.register()).id
    done, gone = [(await op.engine.create(NewJob(type="a"))).id for _ in range(2)]
    await op.engine.cancel(gone)
    [lease] = await op.engine.claim(worker)
    await op.engine.complete(worker, lease.id, lease.token)
    assert (await op.get(f"/jobs/{done}"))["derived"] == "Completed"
    assert "derived" not in await op.get(f"/jobs/{gone}")


async def test_a_cursor_belongs_to_its_filter(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    await op.engine.create_many([NewJob(type="a")] * 3)
    cursor = (await op.get("/jobs", limit=1))["nextCursor"]
    for changed in ({"jobType": "a"}, {"tenant": "acme"}):
        assert (await op.get("/jobs", cursor=cursor, status=422, **changed))["code"] == "invalid_cursor"


async def test_a_job_is_shown_with_the_status_names_of_its_lifecycle_and_without_its_token(op: Operator) -> None:
    """C-24, the operator's view: lease, attempts, links and policy; a token would let its reader write."""
    worker, lease = await started(op.engine, lifecycle="orchestration", tags=["x"], idempotency_key="k")
    part = Part(name="360p", percent=50, data=CARRIED)
    await op.engine.progress(worker, Progress(id=lease.id, token=lease.token, percent=25, step="mux", parts=[part]))
    shown = await op.get(f"/jobs/{lease.id}")
    assert (shown["status"], shown["state"], shown["storedState"]) == ("RUNNING", "RUNNING", "running")
    assert (shown["lease"]["workerId"], "expiresAt" in shown["lease"]) == (worker, True)
    assert (shown["attempt"], shown["epoch"], shown["tags"], shown["idempotencyKey"]) == (1, 1, ["x"], "k")
    assert shown["progress"] == {"percent": 25, "step": "mux"}
    assert [(part["name"], part["percent"]) for part in shown["parts"]] == [("360p", 50)]
    assert shown["policy"]["leaseSeconds"] == 30
    for path in ("", "/attempts", "/events"):
        answer = await op.served.http.get(f"/api/admin/jobs/{lease.id}{path}", headers=op.headers)
        assert lease.token not in answer.text
        assert CARRIED not in answer.text


async def test_reading_a_payload_requires_its_scope_and_is_audited(op: Operator) -> None:
    """SEC-36: payloads are hidden until asked for with the scope, and that read is audited."""
    worker, lease = await started(op.engine, payload={"to": CARRIED})
    await op.engine.progress(worker, Progress(id=lease.id, token=lease.token, checkpoint={"at": CARRIED}))
    await op.engine.complete(worker, lease.id, lease.token, {"sent": CARRIED})
    for path in ("/jobs", f"/jobs/{lease.id}"):
        assert CARRIED not in str(await op.get(path))
    assert (await op.get("/audit"))["lines"] == []

    shown = await op.get(f"/jobs/{lease.id}", payload=True)
    assert shown["contents"] == {"payload": {"to": CARRIED}, "checkpoint": {"at": CARRIED}, "result": {"sent": CARRIED}}
    [line] = (await op.get("/audit"))["lines"]
    assert (line["actor"], line["action"], line["subject"]) == ("admin secret", "job.read", lease.id)
    assert CARRIED not in str(line)


async def test_without_the_scope_payloads_are_hidden(served: Served) -> None:
    """SEC-5, SEC-36."""
    made = await served.engine.create(NewJob(type="a", payload={"to": CARRIED}))
    reader = await with_key(served, "admin:read")
    refused = await reader.get(f"/jobs/{made.id}", payload=True, status=403)
    assert (refused["code"], "admin:payload" in refused["detail"]) == ("forbidden", True)
    assert CARRIED not in str(await reader.get(f"/jobs/{made.id}"))
    assert (await reader.get("/audit"))["lines"] == [], "nothing was read"
    both = await with_key(served, "admin:read", "admin:payload")
    assert (await both.get(f"/jobs/{made.id}", payload=True))["contents"]["payload"] == {"to": CARRIED}


async def test_attempts_and_history_of_a_job_are_listed(op: Operator) -> None:
    lost = await dead(op.engine, lifecycle="crawl")
    [attempt] = (await op.get(f"/jobs/{lost}/attempts"))["attempts"]
    assert (attempt["attempt"], attempt["outcome"], attempt["state"]) == (1, "failed", "failed")
    assert attempt["error"]["message"] == "it is full"

    events = (await op.get(f"/jobs/{lost}/events"))["events"]
    assert [(event["verb"], event.get("from"), event.get("to")) for event in events] == [
        ("create", None, "queued"),
        ("claim", "queued", "running"),
        ("fail", "running", "failed"),
    ]
    first = await op.get(f"/jobs/{lost}/events", limit=2)
    rest = await op.get(f"/jobs/{lost}/events", after=first["next"])
    assert (first["events"] + rest["events"], rest["next"]) == (events, None)


async def test_the_attempts_of_a_pruned_job_are_listed(op: Operator) -> None:
    worker, lease = await started(op.engine)
    await op.engine.complete(worker, lease.id, lease.token)
    await op.engine.maintenance.prune(Retention(succeeded=0))

    assert (await op.get(f"/jobs/{lease.id}", status=404))["code"] == "job_pruned"
    [attempt] = (await op.get(f"/jobs/{lease.id}/attempts"))["attempts"]
    assert (attempt["workerId"], attempt["outcome"], attempt["state"]) == (worker, "succeeded", "succeeded")


async def test_an_attempt_names_its_deleted_worker(op: Operator) -> None:
    worker = (await op.engine.workers.register(name="press-1")).id
    await op.engine.create(NewJob(type="t"))
    [lease] = await op.engine.claim(worker)
    await op.engine.complete(worker, lease.id, lease.token)
    await ask(op.engine, "UPDATE holdfast_workers SET liveness = 'offline' RETURNING id")
    assert await op.engine.maintenance.forget_workers(0) == 1
    [attempt] = (await op.get(f"/jobs/{lease.id}/attempts"))["attempts"]
    assert (attempt["workerId"], attempt["workerName"]) == (worker, "press-1")


async def test_why_explains_why_a_job_does_not_run(op: Operator) -> None:
    made = await op.engine.create(NewJob(type="a"))
    told = await op.get(f"/jobs/{made.id}/why")
    assert told["answer"] == "None of 0 registered workers is enabled and alive."
    assert [clause["name"] for clause in told["clauses"]] == ["state", "time", "queue", "workers", "turn"]
    await op.post("/queues/default/pause")
    told = await op.get(f"/jobs/{made.id}/why")
    assert told["answer"].startswith("Queue 'default' is paused since ")
    assert told["answer"].endswith(" by admin secret.")


async def test_an_unknown_job_is_not_found_and_not_audited(op: Operator) -> None:
    for job_id in (UNKNOWN_ID, "no-id", "%00"):
        for path in ("", "/attempts", "/events", "/why"):
            assert (await op.get(f"/jobs/{job_id}{path}", status=404))["code"] == "job_not_found"
        for verb in ("cancel", "requeue", "discard", "redrive"):
            assert (await op.post(f"/jobs/{job_id}/{verb}", status=404))["code"] == "job_not_found"
    assert (await op.get("/audit"))["lines"] == []


# -- doing -------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_canceled_at_once_and_a_running_one_by_its_worker(op: Operator) -> None:
    _, lease = await started(op.engine)
    waiting = (await op.engine.create(NewJob(type="a"))).id
    for _ in range(2):
        moved = await op.post(f"/jobs/{waiting}/cancel", reason="a mistake", status=202)
        assert moved == {"jobId": waiting, "status": "CANCELED", "state": "canceled"}
    assert (await op.engine.reads.get(waiting)).reason == "a mistake"
    assert (await op.post(f"/jobs/{lease.id}/cancel", status=202))["status"] == "RUNNING"
    assert "cancelRequestedAt" in await op.get(f"/jobs/{lease.id}")
    assert (await op.post(f"/jobs/{await dead(op.engine)}/cancel", status=409))["code"] == "already_final"


async def test_a_waiting_retry_can_be_run_now_or_ended(op: Operator) -> None:
    soon, never = await retrying(op.engine), await retrying(op.engine)
    assert (await op.post(f"/jobs/{soon}/requeue"))["state"] == "queued"
    assert (await op.post(f"/jobs/{never}/discard", reason="hopeless"))["status"] == "FAILED"
    job = await op.engine.reads.get(never)
    assert (job.state, job.reason) == (State.DEAD, "hopeless")
    for verb in ("requeue", "discard"):
        assert (await op.post(f"/jobs/{never}/{verb}", status=409))["code"] == "not_retrying"


async def test_a_finished_job_is_redriven_as_a_new_job(op: Operator) -> None:
    """C-6: final rows never move; the successor is found through the link."""
    lost = await dead(op.engine, payload={"to": "a"}, queue="mail")
    answer = await op.served.http.post(f"/api/admin/jobs/{lost}/redrive", headers=op.headers)
    made = answer.json()
    assert (answer.status_code, made["redriveOf"]) == (202, lost)
    assert answer.headers["location"] == f"/api/admin/jobs/{made['jobId']}"
    new = await op.engine.reads.get(made["jobId"])
    assert (new.payload, new.queue, new.redrive_of, new.root_id) == ({"to": "a"}, "mail", lost, lost)
    assert (await op.get(f"/jobs/{lost}"))["redrivenAs"] == [new.id]
    assert (await op.engine.reads.get(lost)).state is State.DEAD
    assert (await op.post(f"/jobs/{new.id}/redrive", {}, status=409))["code"] == "not_final"


async def test_a_redrive_takes_another_payload_and_an_idempotency_key(op: Operator) -> None:
    lost = await dead(op.engine, payload={"to": "a"})
    asked = {"payload": {"to": CARRIED}, "idempotencyKey": "again-1"}
    made = {(await op.post(f"/jobs/{lost}/redrive", asked, status=202))["jobId"] for _ in range(3)}
    assert [(await op.engine.reads.get(job_id)).payload for job_id in made] == [{"to": CARRIED}]
    [line, *_] = (await op.get("/audit"))["lines"]
    assert (line["action"], line["detail"]["edited"], line["detail"]["made"]) == ("job.redrive", True, *made)
    assert CARRIED not in str(line)
    other = await op.post(f"/jobs/{lost}/redrive", {"idempotencyKey": "again-1"}, status=422)
    assert other["code"] == "idempotency_key_reused"


# -- whoever may not, and whatever is wrong ------------------------------------------------------------------------


UNKNOWN: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/jobs", {"params": {"stat": "dead"}}),
    ("GET", "/jobs", {"params": {"limit": 501}}),
    ("GET", "/jobs", {"params": {"createdAfter": "yesterday"}}),
    ("GET", f"/jobs/{UNKNOWN_ID}", {"params": {"payloads": "true"}}),
    ("GET", f"/jobs/{UNKNOWN_ID}/why", {"params": {"verbose": "1"}}),
    ("GET", f"/jobs/{UNKNOWN_ID}/events", {"params": {"after": "-1"}}),
    ("POST", f"/jobs/{UNKNOWN_ID}/redrive", {"json": {"payload": [1]}}),
    ("POST", f"/jobs/{UNKNOWN_ID}/redrive", {"json": {"tenant": "acme"}}),
    ("POST", "/redrive", {"json": {"state": "dead", "dry": False}}),
    ("POST", "/cancel", {"json": {"queue": "a", "limit": 1001}}),
    ("GET", "/audit", {"params": {"cursor": "abc"}}),
    ("POST", "/keys", {"json": {"secret": "abc"}}),
]


async def test_unknown_fields_and_parameters_are_rejected(served_on_sqlite: Served) -> None:
    """SEC-12."""
    for method, path, more in UNKNOWN:
        answer = await served_on_sqlite.http.request(method, f"/api/admin{path}", headers=ADMIN, **more)
        assert answer.status_code == 422, (path, more, answer.text)


async def test_reading_and_changing_need_different_scopes(served_on_sqlite: Served) -> None:
    """SEC-5: deny by default."""
    made = await served_on_sqlite.engine.create(NewJob(type="a"))
    reader, doer = await with_key(served_on_sqlite, "admin:read"), await with_key(served_on_sqlite, "admin:operate")
    for path in (f"/jobs/{made.id}/cancel", f"/jobs/{made.id}/redrive", "/redrive", "/queues/default/pause"):
        assert (await reader.post(path, {} if "redrive" in path else None, status=403))["code"] == "forbidden"
    for path in ("/jobs", f"/jobs/{made.id}", "/workers", "/audit", "/settings"):
        assert (await doer.get(path, status=403))["code"] == "forbidden"
    for nosy in (reader, doer):
        assert (await nosy.get("/keys", status=403))["code"] == "forbidden"
    assert (await doer.post(f"/jobs/{made.id}/cancel", status=202))["status"] == "CANCELED"
