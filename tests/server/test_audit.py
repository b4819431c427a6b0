"""What operators did over HTTP is told, by whom, and shows when somebody changes it."""

import asyncio

import pytest

from holdfast.model import NewJob
from holdfast.server.app import ROUTES
from tests.engine.tampering import tamper
from tests.server.admin_client import Operator, dead, operator, retrying, with_key
from tests.server.steps import SECRET, Served


@pytest.fixture
def op(served: Served) -> Operator:
    return operator(served)


async def everything(op: Operator) -> list[str]:
    """Each action once, and what it is called; the texts of keys that were shown on the way."""
    engine = op.engine
    worker = (await op.served.register())["workerId"]
    await op.post("/queues/mail/pause")
    await op.post("/queues/mail/resume")
    await op.post(f"/workers/{worker}/disable")
    await op.post(f"/workers/{worker}/enable")
    await op.post(f"/workers/{worker}/revoke")
    await op.post(f"/jobs/{(await engine.create(NewJob(type='a'))).id}/cancel", status=202)
    await op.post(f"/jobs/{await retrying(engine)}/requeue")
    await op.post(f"/jobs/{await retrying(engine)}/wake")
    await op.post(f"/jobs/{await retrying(engine)}/discard")
    lost = await dead(engine)
    await op.post(f"/jobs/{lost}/redrive", status=202)
    await op.get(f"/jobs/{lost}", payload=True)
    await op.post("/redrive", {"state": "dead", "dryRun": False})
    await op.post("/cancel", {"state": "queued", "dryRun": False})
    made = await op.post("/keys", {"name": "shop"}, status=201)
    heir = await op.post(f"/keys/{made['key']['keyId']}/rotate", status=201)
    await op.post(f"/keys/{heir['key']['keyId']}/revoke")
    return [made["apiKey"], heir["apiKey"]]


ACTIONS = {
    *("queue.pause", "queue.resume", "worker.register", "worker.disable", "worker.enable", "worker.revoke"),
    *("job.cancel", "job.requeue", "job.wake", "job.discard", "job.redrive", "job.read", "jobs.redrive", "jobs.cancel"),
    *("key.create", "key.rotate", "key.revoke"),
}


async def test_every_operator_action_is_audited_once_without_secrets(op: Operator) -> None:
    """SEC-43; SEC-39: no line holds a secret."""
    texts = await everything(op)
    answer = await op.served.http.get("/api/admin/audit", params={"limit": 500}, headers=op.headers)
    lines = answer.json()["lines"]
    assert sorted(line["action"] for line in lines) == sorted(ACTIONS)
    assert {line["actor"] for line in lines} == {"admin secret"}
    for secret in (SECRET, *texts):
        assert secret not in answer.text
    assert (await op.get("/audit/verify"))["valid"] is True


async def test_the_audit_names_a_key_by_its_id(served_on_sqlite: Served) -> None:
    doer = await with_key(served_on_sqlite, "admin:operate")
    await doer.post("/queues/mail/pause")
    [key] = await served_on_sqlite.engine.keys.all()
    [line] = (await operator(served_on_sqlite).get("/audit"))["lines"]
    assert line["actor"] == key.id
    assert (await operator(served_on_sqlite).get("/queues"))["queues"][0]["pausedBy"] == key.id


async def test_reads_and_rejected_requests_are_not_audited(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    lost = await dead(op.engine)
    for path in ("/jobs", f"/jobs/{lost}", f"/jobs/{lost}/why", "/queues", "/workers", "/keys", "/settings", "/audit"):
        await op.get(path)
    await op.post(f"/jobs/{lost}/cancel", status=409)
    await op.post("/redrive", {"state": "dead"})
    await op.served.http.get("/api/admin/jobs", headers={"X-Admin-Secret": "wrong"})
    assert (await op.get("/audit"))["lines"] == []


async def test_the_audit_is_read_page_by_page(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    for _ in range(3):
        await op.post("/queues/mail/pause")
    first = await op.get("/audit", limit=2)
    rest = await op.get("/audit", limit=2, cursor=first["nextCursor"])
    assert [line["seq"] for line in first["lines"] + rest["lines"]] == [3, 2, 1]
    assert rest["nextCursor"] is None


async def test_concurrent_actions_form_one_audit_chain(op: Operator) -> None:
    """SEC-43."""
    await asyncio.gather(*(op.post(f"/queues/q{place}/pause") for place in range(20)))
    verified = await op.get("/audit/verify")
    assert (verified["valid"], verified["seq"]) == (True, 20)
    assert len({line["subject"] for line in (await op.get("/audit"))["lines"]}) == 20


async def test_a_modified_audit_entry_is_reported(op: Operator) -> None:
    """SEC-43: tamper, and the verification fails."""
    await op.post("/queues/mail/pause")
    kept = await op.get("/audit/verify")
    await op.post("/queues/mail/resume")
    assert (await op.get("/audit/verify", seq=kept["seq"], digest=kept["digest"]))["valid"] is True
    await tamper(op.engine, "UPDATE holdfast_audit SET actor = 'nobody' WHERE seq = 2")
    verified = await op.get("/audit/verify")
    assert (verified["valid"], verified["wrong"], verified["why"]) == (False, 2, "its content was changed")
    assert (verified["seq"], verified["digest"]) == (kept["seq"], kept["digest"])
    assert (await op.get("/audit/verify", seq=1, status=422))["code"] == "invalid_field"


async def test_no_response_to_an_operator_contains_a_secret(op: Operator) -> None:
    """SEC-39, K49: neither the admin secret, nor a key, nor its digest, nor a lease's token."""
    texts = await everything(op)
    lost = await dead(op.engine)
    worker = (await op.engine.workers.all())[0].id
    paths = {"job_id": lost, "worker_id": worker, "name": "default"}
    looked = 0
    for route in ROUTES:
        if route.method == "GET" and route.path.startswith("/api/admin") and "event-stream" not in str(route.answers):
            try:
                path = route.path.format(**paths)
            except KeyError:  # of another noun
                continue
            answer = await op.served.http.get(path, headers=op.headers)
            assert answer.status_code == 200, (path, answer.text)
            for secret in (SECRET, *texts, *(text.split("_")[-2] for text in texts)):
                assert secret not in answer.text, path
            looked += 1
    assert looked >= 13
