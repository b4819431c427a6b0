"""Admin routes of webhooks over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.errors import Invalid, UnknownName
from holdfast.model import NewJob
from holdfast.server.app import ROUTES
from holdfast.server.http import endpoint
from tests.engine.steps import UNKNOWN_ID
from tests.server.steps import ADMIN, Served, serving
from tests.webhooks.receiver import OK, Got, Receiver, answer, receiving

HOOKS = "/api/admin/webhooks"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    """A server that may send to this machine."""
    async with serving(store_url, unsafe_private_webhooks=True) as served:
        yield served


async def post(served: Served, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await served.http.post(path, json=body, headers=ADMIN) if body is not None else await bare(served, path)
    assert answer.status_code == status, answer.text
    return answer.json()


async def bare(served: Served, path: str) -> Any:
    return await served.http.post(path, headers=ADMIN)


async def get(served: Served, path: str, status: int = 200) -> Any:
    answer = await served.http.get(path, headers=ADMIN)
    assert answer.status_code == status, answer.text
    return answer.json()


async def subscribe(served: Served, url: str, **body: Any) -> str:
    made = await post(served, HOOKS, {"url": url, **body}, 201)
    return str(made["webhook"]["webhookId"])


async def test_a_webhook_receives_the_events_of_a_job(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url, events=["job.created", "job.canceled"], name="books")
    job = (await served.engine.create(NewJob(type="T"))).id
    await served.engine.cancel(job)
    got = await receiver.has(2)
    assert {each.said["type"] for each in got} == {"job.created", "job.canceled"}
    shown = await get(served, f"{HOOKS}/{webhook}")
    assert (shown["name"], shown["enabled"], shown["secrets"]) == ("books", True, 1)


async def test_a_secret_is_shown_once(served: Served, receiver: Receiver) -> None:
    made = await post(served, HOOKS, {"url": receiver.url}, 201)
    assert made["secret"].startswith("whsec_")
    webhook = made["webhook"]["webhookId"]
    rotated = await post(served, f"{HOOKS}/{webhook}/rotate?overlapSeconds=60")
    assert rotated["secret"] != made["secret"]
    assert rotated["webhook"]["secrets"] == 2
    shown = [
        await get(served, HOOKS),
        await get(served, f"{HOOKS}/{webhook}"),
        await post(served, f"{HOOKS}/{webhook}", {"name": "x"}),
        await post(served, f"{HOOKS}/{webhook}/test"),
        await get(served, f"{HOOKS}/{webhook}/deliveries"),
    ]
    for secret in (made["secret"], rotated["secret"]):
        assert secret not in repr(shown)
    assert (await post(served, f"{HOOKS}/{webhook}", {"dropOldSecrets": True}))["secrets"] == 1


async def test_an_update_keeps_the_other_fields(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url, jobTypes=["A"], queues=["q"], name="n")
    changed = await post(served, f"{HOOKS}/{webhook}", {"job_types": None, "enabled": False})
    assert "jobTypes" not in changed
    assert (changed["queues"], changed["name"], changed["enabled"]) == (["q"], "n", False)
    assert changed["disabledReason"] == "switched off"
    assert len(changed["events"]) == 4
    changed = await post(served, f"{HOOKS}/{webhook}", {"enabled": True, "events": ["job.created"]})
    assert (changed["enabled"], changed["events"]) == (True, ["job.created"])
    assert "disabledReason" not in changed


async def test_a_test_delivery_returns_the_response(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url)
    receiver.answers = [answer(418, b"short and stout")]
    tested = await post(served, f"{HOOKS}/{webhook}/test")
    assert (tested["state"], tested["tries"]) == ("failed", 1)
    assert (tested["log"][0]["status"], tested["log"][0]["excerpt"]) == (418, "short and stout")
    assert tested["message"]["type"] == "webhook.test"


async def test_a_test_delivery_waits_for_a_slow_receiver(
    served: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the database has for any other answer: it is not the database that is waited for."""
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS_MAX", 1.0)

    async def slow(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)
        await OK(got, writer)

    webhook = await subscribe(served, receiver.url)
    receiver.answers = [slow]
    assert (await post(served, f"{HOOKS}/{webhook}/test"))["state"] == "delivered"


async def test_deliveries_are_listed_in_pages_and_replayed(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url, events=["job.created"])
    for _ in range(3):
        await served.engine.create(NewJob(type="T"))
    await receiver.has(3)
    first = await get(served, f"{HOOKS}/{webhook}/deliveries?limit=2")
    rest = await get(served, f"{HOOKS}/{webhook}/deliveries?limit=2&cursor={first['nextCursor']}")
    assert (len(first["deliveries"]), len(rest["deliveries"]), rest["nextCursor"]) == (2, 1, None)
    delivery = rest["deliveries"][0]["deliveryId"]
    assert (await post(served, f"/api/admin/deliveries/{delivery}/replay", status=202))["state"] == "pending"
    got = await receiver.has(4)
    assert got[3].id == delivery


async def test_a_deleted_webhook_is_gone(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url)
    assert (await served.http.delete(f"{HOOKS}/{webhook}", headers=ADMIN)).status_code == 204
    assert (await served.http.delete(f"{HOOKS}/{webhook}", headers=ADMIN)).status_code == 404
    assert (await get(served, HOOKS))["webhooks"] == []


async def test_unknown_webhooks_and_deliveries_are_not_found(served: Served) -> None:
    for unknown in (UNKNOWN_ID, "nothing", "%00"):
        for path in (f"{HOOKS}/{unknown}", f"{HOOKS}/{unknown}/deliveries"):
            assert (await get(served, path, 404))["code"] == "webhook_not_found"
        for path in (f"{HOOKS}/{unknown}/rotate", f"{HOOKS}/{unknown}/test"):
            assert (await post(served, path, status=404))["code"] == "webhook_not_found"
        assert (await post(served, f"{HOOKS}/{unknown}", {}, 404))["code"] == "webhook_not_found"
        replay = await post(served, f"/api/admin/deliveries/{unknown}/replay", status=404)
        assert replay["code"] == "delivery_not_found"


async def test_a_replay_to_a_disabled_webhook_is_a_conflict(served: Served, receiver: Receiver) -> None:
    webhook = await subscribe(served, receiver.url)
    delivery = (await post(served, f"{HOOKS}/{webhook}/test"))["deliveryId"]
    await post(served, f"{HOOKS}/{webhook}", {"enabled": False})
    assert (await post(served, f"/api/admin/deliveries/{delivery}/replay", status=409))["code"] == "webhook_disabled"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"url": "https://169.254.169.254/"}, "invalid_webhook_url"),
        ({"url": "http://example.com/"}, "invalid_webhook_url"),
        ({"url": "https://example.com/", "events": ["job.exploded"]}, "unknown_event"),
        ({"url": "https://example.com/", "events": None}, "invalid_body"),
        ({"url": "https://example.com/", "jobTypes": ["\x00"]}, "invalid_field"),
        ({"url": "https://example.com/", "name": ""}, "invalid_field"),
        ({"url": "https://example.com/", "secret": "mine"}, "invalid_body"),
        ({}, "invalid_body"),
    ],
)
async def test_an_invalid_webhook_is_rejected(fresh_sqlite_url: str, body: dict[str, Any], code: str) -> None:
    """SEC-30, over HTTP."""
    async with serving(fresh_sqlite_url) as served:
        assert (await post(served, HOOKS, body, 422))["code"] == code
        assert (await get(served, HOOKS))["webhooks"] == []


async def test_an_update_to_an_internal_address_is_rejected(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url) as served:
        webhook = await subscribe(served, "https://example.com/")
        refused = await post(served, f"{HOOKS}/{webhook}", {"url": "https://[::ffff:127.0.0.1]/"}, 422)
        assert refused["code"] == "invalid_webhook_url"
        assert (await get(served, f"{HOOKS}/{webhook}"))["url"] == "https://example.com/"


async def test_with_an_allow_list_only_its_hosts_are_accepted(fresh_sqlite_url: str) -> None:
    """SEC-33."""
    async with serving(fresh_sqlite_url, webhook_hosts="*.example.com") as served:
        await subscribe(served, "https://hooks.example.com/")
        assert (await post(served, HOOKS, {"url": "https://example.org/"}, 422))["code"] == "invalid_webhook_url"


async def test_webhook_routes_need_their_scope(fresh_sqlite_url: str) -> None:
    """SEC-33: even on loopback, where clients need no key."""
    async with serving(fresh_sqlite_url) as served:
        routes = [route for route in ROUTES if route.path.startswith((HOOKS, "/api/admin/deliveries"))]
        assert len(routes) == 9
        for route in routes:
            path = route.path.format(webhook_id=UNKNOWN_ID, delivery_id=UNKNOWN_ID)
            refused = await served.http.request(route.method, path, json={})
            assert refused.status_code in (401, 403), route.name


async def test_an_unknown_kind_of_alert_is_an_error_at_startup(fresh_sqlite_url: str) -> None:
    with pytest.raises(UnknownName) as refused:
        async with serving(fresh_sqlite_url, alert_on="job_exploded"):
            pass
    assert refused.value.code == "unknown_alert"


async def test_an_invalid_alert_url_is_an_error_at_startup_that_does_not_show_it(fresh_sqlite_url: str) -> None:
    with pytest.raises(Invalid) as refused:
        async with serving(fresh_sqlite_url, alert_webhook_url="http://127.0.0.1/canary"):
            pass
    assert refused.value.code == "invalid_webhook_url"
    assert "canary" not in str(refused.value)


async def test_alerts_are_sent_to_the_configured_url(fresh_sqlite_url: str, receiver: Receiver) -> None:
    """R003-129."""
    settings = {"alert_webhook_url": receiver.url, "unsafe_private_webhooks": True}
    async with serving(fresh_sqlite_url, **settings) as served:
        worker = (await served.engine.workers.register(name="w")).id
        await served.server.deliverer.fan_out()
        await served.engine.create(NewJob(type="T", max_attempts=1))
        [lease] = await served.engine.claim(worker)
        await served.engine.fail(worker, lease.id, lease.token, "E_X")
        [got] = await receiver.has(1)
        assert got.said["alert"] == "job_max_retries_exceeded"
