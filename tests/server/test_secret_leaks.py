"""Canary secrets are placed everywhere and must not appear in logs or responses (SEC-39, SEC-40, K49)."""

from typing import Any

import httpx2
import pytest

from holdfast.server.app import ROUTES
from holdfast.store.migrate import dialect_of
from holdfast.store.queries import Query
from tests.server.processes import Process, server_process
from tests.server.steps import SECRET, bearer

ADMIN = {"X-Admin-Secret": SECRET}
PASSWORD = "canary-of-the-database"
PAYLOAD = "canary-of-a-payload"
ALERTS = "https://hooks.example.com/canary-of-the-alerts"
TABLES = (
    "keys",
    "sessions",
    "audit",
    "events",
    "deliveries",
    "workers",
    "claims",
    "readers",
    "alerts",
    "lanes",
    "policies",
)

FORGED = [
    "line\r\n2026-11-15 INFO holdfast: all is well",
    "\x1b[2J\x1b[31mred",
    "<script>alert(1)</script>",
    "\u202egnirts",
    "a" * 5000,
]


def with_password(url: str) -> str:
    """A server that trusts its own machine takes any password."""
    return url.replace("://postgres@", f"://postgres:{PASSWORD}@") if dialect_of(url) == "postgres" else url


async def make_secrets(http: httpx2.AsyncClient) -> dict[str, str]:
    """Everything that is shown once, by what it is."""
    worker = await http.post("/api/worker/register", json={"name": "w"}, headers=ADMIN)
    client = await http.post("/api/admin/keys", json={"kind": "client", "name": "c"}, headers=ADMIN)
    hook = await http.post("/api/admin/webhooks", json={"url": "https://example.com/hook"}, headers=ADMIN)
    assert [answer.status_code for answer in (worker, client, hook)] == [201, 201, 201], (
        worker.text,
        client.text,
        hook.text,
    )
    found = {"worker": worker.json()["apiKey"], "client": client.json()["apiKey"], "hook": hook.json()["secret"]}
    assert all(len(secret) > 30 for secret in found.values())
    return found


async def live(http: httpx2.AsyncClient, keys: dict[str, str]) -> list[httpx2.Response]:
    """A job's life, and all sorts of mistakes; the answers that a client or a worker may log."""
    client, worker = bearer(keys["client"]), bearer(keys["worker"])
    said = []
    for number in range(3):
        body = {"jobType": f"J{number}", "payload": {"password": PAYLOAD}, "tags": ["t"]}
        said.append(await http.post("/jobs", json=body, headers=client))
    claimed = await http.post("/api/worker/claim", json={"limit": 3}, headers=worker)
    held = [{"jobId": job["jobId"], "leaseToken": job["leaseToken"]} for job in claimed.json()["jobs"]]
    said.append(await http.post("/api/worker/progress", json={**held[0], "currentStep": "half"}, headers=worker))
    said.append(await http.post("/api/worker/complete", json={**held[0], "result": {}}, headers=worker))
    said.append(await http.post("/api/worker/fail", json={**held[1], "errorCode": "E", "message": "x"}, headers=worker))
    wrong = (keys["client"] + "x", keys["worker"], SECRET)
    job = {"jobType": "J", "payload": {"p": PAYLOAD}}
    said += [await http.post("/jobs", json=job, headers=bearer(key)) for key in wrong]
    said.append(
        await http.post(
            "/jobs", content=f'{{"jobType": "{PAYLOAD}', headers={**client, "content-type": "application/json"}
        )
    )
    said.append(await http.get("/jobs", params={"cursor": keys["client"]}, headers=client))
    said.append(await http.get("/api/admin/jobs", headers={"X-Admin-Secret": SECRET + "!"}))
    return said


async def everything_an_operator_can_read(http: httpx2.AsyncClient, job: str) -> list[httpx2.Response]:
    """Each route that only reads and needs no more than a job; with every scope, but without asking for payloads."""
    names = {"job_id": job, "name": "default"}
    paths = [route.path.format(**names) for route in ROUTES if route.method == "GET" and _reads_by(route.path, names)]
    assert len(paths) > 15
    return [await http.get(path, headers=ADMIN) for path in paths if "events" not in path.split("/")[-1]]


def _reads_by(path: str, names: dict[str, str]) -> bool:
    try:
        path.format(**names)
    except KeyError:
        return False
    return True


async def dump(served: Process, url: str) -> str:
    """All tables but those that hold payloads by their nature."""
    from holdfast.clock import Clock
    from holdfast.ids import Ids
    from holdfast.store import open_store

    store = await open_store(url, Clock(), Ids())
    try:
        rows: list[Any] = []
        for table in TABLES:
            query = Query(f"dump_{table}", f"SELECT * FROM holdfast_{table}")
            rows += await store.read(lambda tx, query=query: tx.all(query))  # type: ignore[misc]
        return "\n".join(str(list(row)) for row in rows)
    finally:
        await store.close()


async def test_no_secret_is_in_any_log_response_event_or_table(store_url: str) -> None:
    url = with_password(store_url)
    async with server_process(url, HOLDFAST_ALERT_WEBHOOK_URL=ALERTS) as served:
        keys = await make_secrets(served.http)
        said = await live(served.http, keys)
        job = said[0].json()["jobId"]
        said += await everything_an_operator_can_read(served.http, job)
        assert not [answer for answer in said if answer.status_code >= 500]
        stored = await dump(served, url)
    answered = "\n".join(f"{dict(answer.headers)} {answer.text}" for answer in said)
    logged = "".join(served.log)
    parts = [part for key in (keys["worker"], keys["client"]) for part in (key, key.split("_")[3])]
    secrets = [*parts, keys["hook"], SECRET, PASSWORD, PAYLOAD, ALERTS]
    for secret in secrets:
        assert secret not in answered, "in an answer"
        assert secret not in logged, "in the log"
        assert secret not in stored, "in a table"


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
async def test_user_input_cannot_forge_log_lines_or_inject_scripts(fresh_sqlite_url: str, forged: str) -> None:
    async with server_process(fresh_sqlite_url) as served:
        before = len(served.log)
        answers = [
            await served.http.post("/jobs", json={"jobType": forged, "payload": {}}),
            await served.http.post(
                "/jobs", json={"jobType": "J", "payload": {forged: forged}, "queue": "q", "tags": []}
            ),
            await served.http.post("/api/worker/register", json={"name": forged}, headers=ADMIN),
            await served.http.get("/jobs", params={"jobType": forged}),
            await served.http.get(f"/{forged.encode().hex()}/<script>", headers={"x-request-id": "a b"}),
            await served.http.get("/docs", params={"x": forged}),
        ]
    lines = served.log[before:]
    assert not any("all is well" in line or "\x1b" in line or "<script>" in line for line in lines)
    for answer in answers:
        assert answer.status_code < 500
        assert answer.headers["x-content-type-options"] == "nosniff"
        if "html" in answer.headers["content-type"]:
            assert "<script" not in answer.text
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        else:
            assert "json" in answer.headers["content-type"]
