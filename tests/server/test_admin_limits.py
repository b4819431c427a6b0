"""Operators and limits: list, set and reset them over HTTP, with the weights of tenants."""

from typing import Any
from urllib.parse import quote

import pytest

from holdfast.engine.admin.limits import declare_limits
from holdfast.model.limits import Limit
from tests.server.admin_client import Operator, operator, started
from tests.server.steps import Served


@pytest.fixture
def op(served: Served) -> Operator:
    return operator(served)


async def listed(op: Operator) -> dict[str, Any]:
    return {each["name"]: each for each in (await op.get("/limits"))["limits"]}


async def test_a_limit_is_set_listed_and_reset(op: Operator) -> None:
    body = {"concurrency": 4, "rate": "600/min", "burst": 20}
    made = await op.put("/limits/queue:video", body)
    assert made.pop("updatedAt") is not None
    assert made == {
        "name": "queue:video",
        "concurrency": 4,
        "rate": 10.0,
        "burst": 20.0,
        "used": 0,
        "setBy": "admin secret",
    }
    await started(op.engine, queue="video")
    assert (await listed(op))["queue:video"]["used"] == 1
    assert await op.delete("/limits/queue:video") == {"name": "queue:video"}
    assert await listed(op) == {}


async def test_put_replaces_all_of_a_limit(op: Operator) -> None:
    await op.put("/limits/tenant:acme", {"concurrency": 4, "rate": 2.5, "weight": 3})
    left = await op.put("/limits/tenant:acme", {"concurrency": 5})
    assert (left["concurrency"], left["weight"], left.get("rate")) == (5, 1, None)
    assert await op.put("/limits/tenant:acme", {"weight": 7}) == {"name": "tenant:acme", "weight": 7, "used": 0}
    assert await op.put("/limits/tenant:acme", {"concurrency": None}) == {"name": "tenant:acme"}


async def test_a_limit_that_the_app_declares_is_lifted_until_it_is_reset(op: Operator) -> None:
    await op.engine.store.write(lambda tx: declare_limits(tx, {"gpu": Limit.of(4)}))
    lifted = await op.put("/limits/gpu", {"concurrency": None})
    assert (lifted.get("concurrency"), lifted["declared"], lifted["setBy"]) == (
        None,
        {"concurrency": 4},
        "admin secret",
    )
    reset = await op.delete("/limits/gpu")
    assert (reset["concurrency"], reset.get("setBy")) == (4, None)


@pytest.mark.parametrize(
    "name",
    ["gpu", "type:a", "key:crawl", "key:crawl example.com", "key:crawl https://example.com/a?b#c%2F", "queue:a/b"],
)
async def test_any_name_can_be_set_and_reset(op: Operator, name: str) -> None:
    """Also with a slash, which is sent percent-encoded."""
    path = f"/limits/{quote(name, safe=':')}"
    assert (await op.put(path, {"concurrency": 1}))["name"] == name
    assert list(await listed(op)) == [name]
    assert await op.delete(path) == {"name": name}


@pytest.mark.parametrize(
    ("name", "body", "status", "code", "field"),
    [
        ("gpu", {}, 422, "invalid_field", "concurrency"),
        ("gpu", {"concurrency": None}, 404, "limit_not_found", None),
        ("gpu", {"rate": "10/0s"}, 422, "invalid_field", "rate"),
        ("gpu", {"rate": "1/99999999999999d"}, 422, "invalid_field", "rate"),
        ("key:crawl ", {"rate": 1}, 422, "invalid_field", "name"),
        ("gpu", {"weight": 2}, 422, "invalid_field", "weight"),
        ("tenant:a", {"weight": 1001}, 422, "invalid_field", "weight"),
        ("gpu", {"concurrency": -1}, 422, "invalid_field", "concurrency"),
        ("gpu", {"rate": "5/x"}, 422, "invalid_field", "rate"),
        ("gpu", {"burst": 2}, 422, "invalid_field", "burst"),
        ("team:a", {"rate": 1}, 422, "invalid_field", "name"),
        ("gpu", {"concurency": 1}, 422, "invalid_body", None),
    ],
)
async def test_an_invalid_limit_is_refused(
    op: Operator, name: str, body: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    refused = await op.put(f"/limits/{name}", body, status=status)
    assert (refused["code"], refused.get("field")) == (code, field)
    assert await listed(op) == {}


async def test_resetting_an_unknown_limit_is_not_found(op: Operator) -> None:
    refused = await op.delete("/limits/gpu", status=404)
    assert (refused["code"], refused["detail"]) == (
        "limit_not_found",
        "there is no limit 'gpu'; holdfast limits list shows all",
    )


async def test_changes_are_in_the_audit_log(op: Operator) -> None:
    await op.put("/limits/tenant:acme", {"concurrency": 4, "weight": 3})
    await op.delete("/limits/tenant:acme")
    reset, was_set = (await op.get("/audit"))["lines"]
    assert (was_set["actor"], was_set["action"], was_set["subject"]) == ("admin secret", "limit.set", "tenant:acme")
    assert was_set["detail"] == {"concurrency": 4, "weight": 3}
    assert (reset["action"], reset["subject"]) == ("limit.reset", "tenant:acme")


async def test_a_refused_change_is_not_in_the_audit_log(op: Operator) -> None:
    await op.put("/limits/gpu", {"weight": 3}, status=422)
    await op.delete("/limits/gpu", status=404)
    assert (await op.get("/audit"))["lines"] == []


async def test_a_queue_with_a_slash_in_its_name_is_paused(op: Operator) -> None:
    assert (await op.post("/queues/a%2Fb/pause"))["queue"] == "a/b"
