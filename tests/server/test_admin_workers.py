"""Operators and what they run: workers, queues, keys, lifecycles, settings."""

import pytest

from holdfast.lifecycle import Lifecycles, State
from holdfast.model import NewJob
from holdfast.settings import NAMES
from tests.engine.steps import UNKNOWN_ID
from tests.server.admin_client import Operator, operator, started, with_key
from tests.server.steps import SECRET, Served, bearer, serving


@pytest.fixture
def op(served: Served) -> Operator:
    return operator(served)


# -- workers -----------------------------------------------------------------------------------------------------


async def test_a_worker_is_shown_with_its_jobs(op: Operator) -> None:
    worker, lease = await started(op.engine, type="render", queue="video")
    await started(op.engine, type="other")
    idle = (await op.engine.workers.register(name="encoder-1", capabilities={"gpu": True})).id
    listed = {each["workerId"]: each for each in (await op.get("/workers"))["workers"]}
    assert (listed[worker]["holds"], listed[idle]["holds"]) == (1, 0)
    assert (listed[idle]["name"], listed[idle]["offers"], listed[idle]["status"]) == ("encoder-1", ["gpu"], "active")
    shown = await op.get(f"/workers/{worker}")
    [held] = shown["jobs"]
    assert (held["jobId"], held["jobType"], held["queue"], held["attempt"]) == (lease.id, "render", "video", 1)
    assert lease.token not in str(shown)
    assert (await op.get(f"/workers/{idle}")).get("jobs") is None


async def test_a_remote_worker_is_busy_while_it_has_a_job(op: Operator) -> None:
    """R003-26, R003-29, R003-47, R003-63: what was said at the registration is told again under the same name."""
    registered = await op.served.register(name="remote-1", workerType="encoder")
    worker, key = registered["workerId"], bearer(registered["apiKey"])
    await op.engine.create(NewJob(type="a"))

    async def seen() -> tuple[str, str | None]:
        [listed], alone = (await op.get("/workers"))["workers"], await op.get(f"/workers/{worker}")
        assert listed["workerType"] == alone["workerType"] == "encoder"
        assert listed["status"] == alone["status"]
        return alone["status"], alone.get("currentJobId")

    assert await seen() == ("active", None)
    [job] = (await op.served.http.post("/api/worker/claim", json={}, headers=key)).json()["jobs"]
    assert await seen() == ("busy", job["jobId"])
    done = {"jobId": job["jobId"], "leaseToken": job["leaseToken"]}
    assert (await op.served.http.post("/api/worker/complete", json=done, headers=key)).status_code == 200
    assert await seen() == ("idle", None)


async def test_a_disabled_worker_claims_nothing_until_it_is_enabled(op: Operator) -> None:
    registered = await op.served.register(name="remote-1")
    worker, key = registered["workerId"], bearer(registered["apiKey"])
    await op.engine.create(NewJob(type="a"))
    assert (await op.post(f"/workers/{worker}/disable"))["status"] == "disabled"
    assert (await op.served.http.post("/api/worker/claim", json={}, headers=key)).status_code == 403
    assert (await op.post(f"/workers/{worker}/enable"))["enabled"] is True
    assert (await op.served.http.post("/api/worker/claim", json={}, headers=key)).status_code == 200


async def test_revoking_a_worker_disables_it_and_its_keys(op: Operator) -> None:
    worker = (await op.served.register())["workerId"]
    assert (await op.post(f"/workers/{worker}/revoke"))["status"] == "disabled"
    [key] = [key for key in (await op.get("/keys"))["keys"] if key["workerId"] == worker]
    assert key["status"] == "revoked"
    [line] = [line for line in (await op.get("/audit"))["lines"] if line["action"] == "worker.revoke"]
    assert (line["subject"], line["detail"]["keys"]) == (worker, [key["keyId"]])


async def test_an_unknown_worker_is_not_found(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    for worker in (UNKNOWN_ID, "encoder-1"):
        assert (await op.get(f"/workers/{worker}", status=404))["code"] == "worker_not_found"
        for verb in ("disable", "enable", "revoke"):
            assert (await op.post(f"/workers/{worker}/{verb}", status=404))["code"] == "worker_not_found"


# -- queues ------------------------------------------------------------------------------------------------------


async def test_queues_are_counted_by_tenant_and_state(op: Operator) -> None:
    await started(op.engine, queue="mail")
    await op.engine.create_many([NewJob(type="a", queue="mail"), NewJob(type="a", queue="mail", tenant="acme")])
    acme, ours = (await op.get("/queues"))["queues"]
    assert [(queue["tenant"], queue["queue"]) for queue in (acme, ours)] == [("acme", "mail"), ("default", "mail")]
    assert (ours["jobs"]["running"], ours["jobs"]["queued"], acme["jobs"]["queued"]) == (1, 1, 1)
    assert ("oldestWaitingAt" in ours, ours["paused"]) == (True, False)


async def test_a_paused_queue_dispatches_nothing_until_it_is_resumed(op: Operator) -> None:
    worker = (await op.engine.workers.register()).id
    await op.engine.create(NewJob(type="a", queue="mail"))
    assert await op.post("/queues/mail/pause") == {"tenant": "default", "queue": "mail", "paused": True}
    assert await op.engine.claim(worker) == []
    [mail] = (await op.get("/queues"))["queues"]
    assert (mail["paused"], mail["pausedBy"]) == (True, "admin secret")
    assert (await op.post("/queues/mail/resume"))["paused"] is False
    assert len(await op.engine.claim(worker)) == 1


async def test_a_queue_is_paused_for_one_tenant(op: Operator) -> None:
    worker = (await op.engine.workers.register()).id
    await op.engine.create_many([NewJob(type="a"), NewJob(type="a", tenant="acme")])
    await op.post("/queues/default/pause", tenant="acme")
    assert [lease.tenant for lease in await op.engine.claim(worker, limit=5)] == ["default"]
    assert (await op.post("/queues/default/pause", tenant=" ", status=422))["code"] == "invalid_field"
    assert (await op.post("/queues/%20/pause", status=422))["code"] == "invalid_field"


# -- keys --------------------------------------------------------------------------------------------------------


async def test_a_key_is_shown_once_and_has_its_scopes(op: Operator) -> None:
    """SEC-4: shown once; SEC-5: with the scopes that were asked for."""
    made = await op.post("/keys", {"name": "shop", "scopes": ["jobs:read"], "expiresInSeconds": 3600}, status=201)
    key, text = made["key"], made["apiKey"]
    assert (key["kind"], key["status"], key["scopes"]) == ("client", "live", ["jobs:read"])
    assert (await op.served.http.get("/jobs", headers=bearer(text))).status_code == 200
    refused = await op.served.http.post("/jobs", json={"jobType": "a", "payload": {}}, headers=bearer(text))
    assert refused.status_code == 403
    listed = await op.get("/keys")
    assert [each["keyId"] for each in listed["keys"]] == [key["keyId"]]
    assert text.split("_")[-2] not in str(listed)


async def test_a_key_is_rotated_and_revoked(op: Operator) -> None:
    old = await op.post("/keys", {}, status=201)
    new = await op.post(f"/keys/{old['key']['keyId']}/rotate", overlapSeconds=60, status=201)
    for made in (old, new):
        assert (await op.served.http.get("/jobs", headers=bearer(made["apiKey"]))).status_code == 200
    taken = await op.post(f"/keys/{new['key']['keyId']}/revoke")
    assert (taken["status"], "revokedAt" in taken) == ("revoked", True)
    assert (await op.post(f"/keys/{new['key']['keyId']}/rotate", status=409))["code"] == "key_inactive"
    for verb in ("rotate", "revoke"):
        assert (await op.post(f"/keys/0000000000000000/{verb}", status=404))["code"] == "key_not_found"


async def test_an_invalid_key_is_rejected(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    assert (await op.post("/keys", {"kind": "root"}, status=422))["code"] == "invalid_body"
    assert (await op.post("/keys", {"scopes": ["admin:read"]}, status=422))["code"] == "invalid_scope"
    assert (await op.post("/keys", {"kind": "worker"}, status=422))["code"] == "invalid_field"
    assert (await op.post("/keys", {"kind": "worker", "workerId": UNKNOWN_ID}, status=404))[
        "code"
    ] == "worker_not_found"
    assert (await op.get("/keys"))["keys"] == []


async def test_key_routes_need_their_scope(served_on_sqlite: Served) -> None:
    keeper = await with_key(served_on_sqlite, "admin:keys")
    assert len((await keeper.get("/keys"))["keys"]) == 1
    assert (await keeper.get("/jobs", status=403))["code"] == "forbidden"


# -- lifecycles and settings -----------------------------------------------------------------------------------------


async def test_every_lifecycle_is_shown_with_its_diagram(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    listed = (await op.get("/lifecycles"))["lifecycles"]
    assert [each["name"] for each in listed] == [machine.name for machine in Lifecycles()]
    crawl = await op.get("/lifecycles/crawl")
    assert crawl in listed
    assert crawl["words"][State.DEAD] == "failed"
    assert "claim: queued -> running by worker" in crawl["moves"]
    assert crawl["policy"]["maxAttempts"] == 7
    assert crawl["mermaid"].startswith("stateDiagram-v2\n")
    assert (await op.get("/lifecycles/crawling", status=404))["code"] == "unknown_lifecycle"


async def test_settings_are_shown_with_their_origin_and_without_secrets(
    fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-39."""
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "7")
    hook = "https://hooks.example.com/a-secret-path"
    async with serving(fresh_sqlite_url, concurrency=7, alert_webhook_url=hook) as served:
        shown = {each["name"]: each for each in (await operator(served).get("/settings"))["settings"]}
    assert list(shown) == list(NAMES)
    assert (shown["concurrency"]["value"], shown["concurrency"]["origin"]) == (7, "environment")
    assert (shown["max_attempts"]["value"], shown["max_attempts"]["origin"]) == (5, "default")
    assert shown["database_url"] == {
        "name": "database_url",
        "value": fresh_sqlite_url,
        "origin": "command line",
        "variable": "HOLDFAST_DATABASE_URL",
    }
    assert (shown["admin_secret"]["value"], shown["alert_webhook_url"]["value"]) == ("***", "***")
    assert SECRET not in str(shown)
    assert "a-secret-path" not in str(shown)
