"""Credits over HTTP: what a user has, the statement, grants of operators, costs, and generations that are run again."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.model.key import Kind
from holdfast.workloads.generation import ledger
from holdfast.workloads.generation.ledger_check import check_ledger
from tests.server.steps import ADMIN
from tests.worker.in_process import until
from tests.workloads.generation.provider_stub import provider_stub
from tests.workloads.generation.provider_stub import status as replies
from tests.workloads.generation.steps import ON_SQLITE, Service, Sets

GRANT = "/api/admin/credits/grant"
CREDITS = "/api/admin/credits"


async def operator(service: Service, method: str, path: str, **request: Any) -> Any:
    headers = {**ADMIN, **request.pop("headers", {})}
    return await service.http.request(method, path, headers=headers, **request)


async def is_consistent(service: Service) -> None:
    """balance = grants - commits - forfeits, reserved = what was not settled, and the ledger is valid."""
    sums: dict[str, int] = {}
    for kind, amount in await service.statement():
        sums[kind] = sums.get(kind, 0) + amount
    balance = sums.get("grant", 0) - sums.get("commit", 0) - sums.get("forfeit", 0)
    settled = sums.get("commit", 0) + sums.get("release", 0) + sums.get("forfeit", 0)
    reserved = sums.get("reserve", 0) - settled
    assert await service.credits() == (balance, reserved, balance - reserved)
    assert (await check_ledger(service.served.engine.store.read)).faults == []


# -- of a user -----------------------------------------------------------------------------------------------------


async def test_each_user_starts_with_credits(service: Service, generation_settings: Sets) -> None:
    rows = service.rows()
    assert await service.get("/credits") == {"balance": 100, "reserved": 0, "available": 100}
    assert service.rows() == rows, "to read is not to write"
    generation_settings(starting_credits=7)
    assert await service.credits() == (7, 0, 7)
    assert await service.statement() == [("grant", 7)]
    generation_settings(starting_credits=50)
    assert await service.credits() == (7, 0, 7), "it is of those who are new"


async def test_the_statement_tells_every_movement(service: Service) -> None:
    made = await service.made(count=2)
    accepted = await service.accepted("another", count=3)
    await service.ask("POST", f"/generations/{accepted['generationId']}/cancel")
    await service.grant("default", 25, "a refund")
    page = await service.get("/credits/statement")
    entries = page["entries"]
    assert page["nextCursor"] is None
    assert [(each["kind"], each["amount"], each["jobId"], each.get("reason")) for each in entries] == [
        ("grant", 25, None, "a refund"),
        ("release", 3, accepted["jobId"], None),
        ("reserve", 3, accepted["jobId"], None),
        ("commit", 2, made["jobId"], None),
        ("reserve", 2, made["jobId"], None),
        ("grant", 100, None, "starting credits"),
    ]
    assert len({each["entryId"] for each in entries}) == 6
    assert {each["at"] for each in entries} == {made["createdAt"]}
    await is_consistent(service)


async def test_pages_of_the_statement(service: Service) -> None:
    for n in range(1, 7):
        await service.grant("default", n)
    found, cursor = [], {}
    for expected in (3, 3, 1):
        page = await service.get("/credits/statement", limit=3, **cursor)
        assert len(page["entries"]) == expected
        found += [each["amount"] for each in page["entries"]]
        cursor = {"cursor": page["nextCursor"]}
        await service.grant("default", 1000)  # what is new does not move a page
    assert (found, page["nextCursor"]) == ([6, 5, 4, 3, 2, 1, 100], None)


# -- grants --------------------------------------------------------------------------------------------------------


async def test_a_grant(service: Service) -> None:
    answer = await service.grant("alice", 50, "a refund")
    assert answer.status_code == 201, answer.text
    granted = answer.json()
    assert granted.keys() == {"entryId", "balance"}
    assert granted["balance"] == 150
    alice = await service.user("alice")
    assert await alice.credits() == (150, 0, 150)
    assert (await alice.get("/credits/statement"))["entries"][0]["entryId"] == granted["entryId"]
    assert (await service.grant("alice", 1)).json()["balance"] == 151
    line = (await service.audit_lines())[0]
    assert (line["action"], line["subject"]) == ("CREDITS_GRANTED", "alice")
    expected = {"amount": 50, "reason": "a refund", "tenant": "default", "by": "admin secret"}
    assert expected.items() <= line["detail"].items()
    assert (await operator(service, "GET", "/api/admin/audit/verify")).json()["valid"] is True
    await is_consistent(alice)


async def test_a_repeated_grant_with_its_key_grants_once(service: Service) -> None:
    key = {"Idempotency-Key": "refund-4711"}
    first = await service.grant("alice", 50, headers=key)
    await service.grant("alice", 1)
    again = await service.grant("alice", 50, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    reused = (422, "idempotency_key_reused")
    for user, amount in (("alice", 51), ("bob", 50)):
        answer = await service.grant(user, amount, headers=key)
        assert (answer.status_code, answer.json()["code"]) == reused
    alice, bob = await service.user("alice"), await service.user("bob")
    assert (await alice.credits(), await bob.credits()) == ((151, 0, 151), (100, 0, 100))
    assert await alice.statement() == [("grant", 100), ("grant", 50), ("grant", 1)]
    assert await service.audit() == ["CREDITS_GRANTED"] * 2, "what was not granted is not in the audit log"


async def test_grants_at_once_with_one_key_grant_once(service: Service) -> None:
    key = {"Idempotency-Key": "refund-4711"}
    answers = await asyncio.gather(*(service.grant("alice", 50, headers=key) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert {answer.json()["balance"] for answer in answers} == {150}
    assert await (await service.user("alice")).statement() == [("grant", 100), ("grant", 50)]


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"amount": 0}, "amount"),
    ({"amount": -5}, "amount"),
    ({"amount": 1.5}, "amount"),
    ({"amount": "5"}, "amount"),
    ({"amount": 10**12 + 1}, "amount"),
    ({"amount": 2**70}, "amount"),
    ({"user": ""}, "user"),
    ({"user": "x" * 201}, "user"),
    ({"user": None}, "user"),
    ({"reason": ""}, "reason"),
    ({"reason": "x" * 501}, "reason"),
    ({"tenant": ""}, "tenant"),
    ({"other": 1}, "other"),
]


@ON_SQLITE
async def test_an_invalid_grant_is_422_and_leaves_nothing(service: Service) -> None:
    rows = service.rows()
    for body, field in INVALID:
        answer = await service.grant("alice", 5, body=body)
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", field)
    for missing in ("user", "amount", "reason"):
        body = {"user": "alice", "amount": 5, "reason": "a test"}
        del body[missing]
        answer = await operator(service, "POST", GRANT, json=body)
        assert answer.status_code == 422, answer.text
        assert missing in answer.text
    assert service.rows() == rows


async def test_a_user_has_a_largest_balance(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CREDITS_MAX", 1000)
    await service.grant("alice", 890)
    rows = service.rows()
    answer = await service.grant("alice", 11)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", "amount")
    assert service.rows() == rows
    assert (await service.grant("alice", 10)).json()["balance"] == 1000


@ON_SQLITE
@pytest.mark.parametrize("key", ["", "é", "x" * 256])
async def test_an_invalid_key_of_a_grant_is_422(service: Service, key: str) -> None:
    answer = await operator(
        service,
        "POST",
        GRANT,
        json={"user": "alice", "amount": 5, "reason": "a test"},
        headers={"Idempotency-Key": key.encode()},
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")


@ON_SQLITE
async def test_the_credits_of_tenants_are_separate(service: Service) -> None:
    assert (await service.grant("alice", 5, body={"tenant": "other"})).json()["balance"] == 105
    here, there = await service.user("alice"), await service.user("alice", tenant="other")
    assert (await here.credits(), await there.credits()) == ((100, 0, 100), (105, 0, 105))
    for tenant, expected in ((None, 100), ("default", 100), ("other", 105)):
        query = {"user": "alice"} if tenant is None else {"user": "alice", "tenant": tenant}
        answer = await operator(service, "GET", CREDITS, params=query)
        assert answer.json() == {"balance": expected, "reserved": 0, "available": expected}


@ON_SQLITE
async def test_the_credits_of_a_user_of_any_name(service: Service) -> None:
    for user in ("grant", "a/b", "a?b&c", "ü", "x" * 200, " ", ".."):
        await service.grant(user, 5)
        answer = await operator(service, "GET", CREDITS, params={"user": user})
        assert (answer.status_code, answer.json()["balance"]) == (200, 105), user
    for query in ({}, {"user": ""}, {"user": "x" * 201}, {"user": "a", "other": "b"}):
        answer = await operator(service, "GET", CREDITS, params=query)
        assert answer.status_code == 422, (query, answer.text)


async def test_text_that_a_database_cannot_store_is_422(service: Service) -> None:
    rows = service.rows()
    for field in ("user", "reason", "tenant"):
        answer = await service.grant("alice", 5, body={field: "a\0b"})
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", field)
        content = json.dumps({"user": "alice", "amount": 5, "reason": "a test", field: "a\ud800b"})
        answer = await operator(service, "POST", GRANT, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
    for field in ("user", "tenant"):
        answer = await operator(service, "GET", CREDITS, params={"user": "alice", field: "a\0b"})
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", field)
    assert service.rows() == rows


@ON_SQLITE
async def test_a_grant_without_the_scope_of_operators_is_403(service: Service) -> None:
    body = {"user": "alice", "amount": 5, "reason": "a test"}
    for scopes, kind, expected in (
        (("generation:write", "generation:read"), Kind.CLIENT, 403),
        (("admin:read",), Kind.ADMIN, 403),
        (("admin:operate",), Kind.ADMIN, 201),
    ):
        user = await service.user("alice", scopes=scopes, kind=kind)
        answer = await user.ask("POST", GRANT, json=body)
        assert answer.status_code == expected, answer.text
    assert await service.audit() == ["CREDITS_GRANTED"]


# -- costs ---------------------------------------------------------------------------------------------------------


async def test_the_costs_of_providers(service: Service, generation_settings: Sets) -> None:
    path = "/api/admin/generations/costs"
    assert (await operator(service, "GET", path)).json() == {"costs": []}
    with provider_stub() as stub:
        generation_settings(openai_url=stub.openai_url, openai_key="sk-test", openai_cost_micros=40_000)
        made = await service.made(count=3, provider="openai")
    assert made["status"] == "completed", made
    expected = {"costs": [{"provider": "openai", "images": 3, "micros": 120_000}]}
    assert (await operator(service, "GET", path)).json() == expected
    assert (await operator(service, "GET", path, params={"tenant": "other"})).json() == {"costs": []}
    service.clock.advance(2 * 86_400)
    assert (await operator(service, "GET", path, params={"days": 1})).json() == {"costs": []}
    assert (await operator(service, "GET", path, params={"days": 3})).json() == expected
    assert (await operator(service, "GET", path, params={"days": 0})).status_code == 422


# -- again ---------------------------------------------------------------------------------------------------------


async def dead(service: Service, generation_settings: Sets) -> dict[str, Any]:
    """A generation that the provider has refused for good."""
    with provider_stub() as stub:
        stub.otherwise_create = replies(400)
        generation_settings(openai_url=stub.openai_url, openai_key="sk-test")
        made = await service.made(count=2, provider="openai")
    assert made["status"] == "dead_letter", made
    return made


async def redrive(service: Service, job_id: str) -> Any:
    return await operator(service, "POST", f"/api/admin/jobs/{job_id}/redrive", json={})


async def test_a_dead_letter_that_is_redriven_reserves_again(service: Service, generation_settings: Sets) -> None:
    """R004-7, R004-23"""
    lost = await dead(service, generation_settings)
    assert await service.statement() == [("grant", 100), ("reserve", 2), ("release", 2)]
    assert (lost["creditsReserved"], lost["creditsCharged"], lost["retryCount"]) == (0, 0, 0)
    with provider_stub() as stub:
        generation_settings(openai_url=stub.openai_url)
        answer = await redrive(service, lost["jobId"])
        assert answer.status_code == 202, answer.text
        again = await service.generation(lost["generationId"])
        assert again["jobId"] == answer.json()["jobId"] != lost["jobId"]
        assert (again["status"], again["creditsReserved"]) == ("queued", 2)
        assert {"error", "finishedAt"}.isdisjoint(again)
        assert await service.credits() == (100, 2, 98)
        async with service.working():
            made = await service.ended(lost["generationId"])
    assert (made["status"], made["creditsCharged"], len(made["assets"])) == ("completed", 2, 2)
    listed = (await service.get("/generations"))["generations"]
    assert [each["jobId"] for each in listed] == [made["jobId"]], "it is the same one"
    assert (await service.statement())[3:] == [("reserve", 2), ("commit", 2)]
    await is_consistent(service)


async def test_redriven_twice_it_runs_once(service: Service, generation_settings: Sets) -> None:
    lost = await dead(service, generation_settings)
    answers = await asyncio.gather(*(redrive(service, lost["jobId"]) for _ in range(4)))
    codes = sorted((answer.status_code, answer.json().get("code", "")) for answer in answers)
    assert codes == [(202, ""), *[(409, "already_redriven")] * 3]
    assert await service.credits() == (100, 2, 98)
    assert (await redrive(service, lost["jobId"])).json()["code"] == "already_redriven"
    await is_consistent(service)


async def test_a_redrive_needs_credits(service: Service, generation_settings: Sets) -> None:
    generation_settings(starting_credits=2)
    lost = await dead(service, generation_settings)
    await service.accepted("another")
    answer = await redrive(service, lost["jobId"])
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credits")
    assert (await service.generation(lost["generationId"])) == lost
    await service.grant("default", 1)
    assert (await redrive(service, lost["jobId"])).status_code == 202
    await is_consistent(service)


async def test_a_redrive_is_guarded(service: Service, generation_settings: Sets, blocklist: Any) -> None:
    """R004-9"""
    lost = await dead(service, generation_settings)
    blocklist("lighthouse")
    answer = await redrive(service, lost["jobId"])
    assert (answer.status_code, answer.json()["code"]) == (422, "prompt_rejected")
    assert await service.generation(lost["generationId"]) == lost
    assert await service.statement() == [("grant", 100), ("reserve", 2), ("release", 2)]
    assert "SAFE_BLOCK" in await service.audit()
    await is_consistent(service)


async def test_a_canceled_generation_can_be_redriven(service: Service) -> None:
    accepted = await service.accepted()
    await service.ask("POST", f"/generations/{accepted['generationId']}/cancel")
    assert (await redrive(service, accepted["jobId"])).status_code == 202
    async with service.working():
        assert (await service.ended(accepted["generationId"]))["status"] == "completed"
    assert [kind for kind, _ in await service.statement()] == ["grant", "reserve", "release", "reserve", "commit"]


# -- everything at once --------------------------------------------------------------------------------------------


async def test_the_balance_is_always_what_the_entries_say(
    service: Service, generation_settings: Sets, blocklist: Any
) -> None:
    generation_settings(starting_credits=12)
    await service.made("one", count=3)
    await is_consistent(service)
    rejected, waiting = await service.accepted("a pangolin", count=2), await service.accepted("waits", count=2)
    await is_consistent(service)
    blocklist("pangolin")
    await service.ask("POST", f"/generations/{waiting['generationId']}/cancel")
    await is_consistent(service)
    async with service.working():
        await service.ended(rejected["generationId"])
        await is_consistent(service)
        answers = await asyncio.gather(*(service.create(f"number {n}", count=2) for n in range(6)))
        assert sorted(answer.status_code for answer in answers) == [202] * 3 + [402] * 3
        ids = [answer.json()["generationId"] for answer in answers if answer.status_code == 202]
        await asyncio.gather(*(service.ended(id_) for id_ in ids))
    await until(lambda: all_settled(service))
    assert await service.credits() == (1, 0, 1)
    await is_consistent(service)


async def all_settled(service: Service) -> bool:
    return (await service.credits())[1] == 0
