"""Generations as jobs, by `POST /jobs` and `POST /jobs/batch`: the guards, credits and audit are the same."""

from typing import Any

import httpx2
import pytest

from tests.workloads.generation.steps import BLOCKED, ON_SQLITE, SMALL, Service, Sets

RUN = "GENERATION_RUN"


def job(prompt: str = "a lighthouse", **payload: Any) -> dict[str, Any]:
    return {"jobType": RUN, "payload": {"prompt": prompt, **SMALL, **payload}}


async def post(service: Service, prompt: str = "a lighthouse", key: str | None = None, **payload: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await service.ask("POST", "/jobs", json=job(prompt, **payload), headers=headers)


async def batch(service: Service, *jobs: dict[str, Any]) -> httpx2.Response:
    return await service.ask("POST", "/jobs/batch", json={"jobs": [*jobs]})


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def all_but_audit(service: Service) -> dict[str, int]:
    return {name: rows for name, rows in service.rows().items() if "audit" not in name}


async def test_a_job_is_a_generation_of_the_caller(service: Service) -> None:
    alice = await service.user("alice")
    answer = await post(alice, count=2, negative_prompt="people", seed=7)
    assert answer.status_code == 202, answer.text
    id_ = answer.json()["jobId"]
    generation = await alice.generation(id_)
    assert {"jobId": id_, "status": "queued", "negativePrompt": "people", "seed": 7}.items() <= generation.items()
    assert await alice.credits() == (100, 2, 98)
    async with alice.working():
        assert (await alice.ended(id_))["status"] == "completed"
    assert await alice.statement() == [("grant", 100), ("reserve", 2), ("commit", 2)]
    shown = await alice.get(f"/jobs/{id_}")
    assert shown["status"] == "COMPLETED"
    assert len(shown["result"]["assets"]) == 2
    assert (await (await service.user("bob")).get("/generations"))["generations"] == []


async def test_both_routes_make_the_same_generation(service: Service) -> None:
    """R004-28"""
    first = await service.accepted()
    again = await post(service)
    assert (again.status_code, again.json()["jobId"]) == (202, first["jobId"])
    assert await service.credits() == (100, 1, 99)


async def test_the_payload_cannot_name_a_user(service: Service) -> None:
    alice = await service.user("alice")
    rows = service.rows()
    for user in ("bob", "alice", None, ""):
        assert problem(await post(alice, user=user)) == (422, "invalid_payload")
        assert problem(await batch(alice, job(), job(user=user))) == (422, "invalid_payload")
    assert service.rows() == rows


INVALID: list[dict[str, Any]] = [
    {"width": 63},
    {"height": 4096},
    {"count": 5},
    {"count": 0},
    {"count": "2"},
    {"seed": -1},
    {"prompt": " "},
    {"prompt": None},
    {"provider": "openai"},
    {"negativePrompt": "people"},
    {"model": "x"},
    {"style": "x" * 101},
]


@ON_SQLITE
async def test_an_invalid_payload_is_422_and_leaves_nothing(service: Service) -> None:
    rows = service.rows()
    for payload in INVALID:
        answer = await post(service, **{"prompt": "a lighthouse", **payload})
        assert (answer.status_code, answer.json()["code"]) in {(422, "invalid_field"), (422, "invalid_payload")}, (
            payload
        )
        assert service.rows() == rows


async def test_guards_and_their_audit_are_the_same(service: Service, generation_settings: Sets) -> None:
    """R004-9, R004-10, R004-12, R004-26"""
    generation_settings(starting_credits=2, quota_per_day=3)
    rows = all_but_audit(service)
    refused = {
        (422, "prompt_rejected"): await post(service, BLOCKED),
        (402, "insufficient_credits"): await post(service, count=3),
        (429, "quota_exceeded"): await post(service, count=4),
    }
    assert {wanted: problem(answer) for wanted, answer in refused.items()} == {wanted: wanted for wanted in refused}
    assert "forbidden" not in refused[422, "prompt_rejected"].text
    assert int(refused[429, "quota_exceeded"].headers["retry-after"]) > 3600
    assert all_but_audit(service) == rows
    assert sorted(await service.audit()) == ["INSUFFICIENT_CREDITS", "QUOTA_EXCEEDED", "SAFE_BLOCK"]
    assert (await service.audit_lines())[0]["subject"] == "default"


async def test_a_key_of_the_client_wins(service: Service) -> None:
    first = (await post(service, key="poster")).json()
    service.clock.advance(600)
    assert (await post(service, key="poster")).json() == first
    assert problem(await post(service, "another", key="poster")) == (422, "idempotency_key_reused")
    assert await service.credits() == (100, 1, 99)


@ON_SQLITE
async def test_the_routes_have_keys_of_their_own(service: Service) -> None:
    """Those of `POST /generations` are of the user."""
    first = await service.accepted(key="poster")
    assert (await post(service, key="poster")).json()["jobId"] != first["jobId"]


@ON_SQLITE
@pytest.mark.parametrize("scopes", [("jobs:create",), ("generation:read", "jobs:create"), ("generation:write",)])
async def test_both_scopes_are_needed(service: Service, scopes: tuple[str, ...]) -> None:
    user = await service.user("alice", scopes=scopes)
    assert problem(await post(user)) == (403, "forbidden")
    assert problem(await batch(user, job())) == (403, "forbidden")


# -- batches -------------------------------------------------------------------------------------------------------


async def test_a_batch_reserves_for_each_job(service: Service) -> None:
    answer = await batch(service, job("one", count=2), job("two"), job("three", count=3))
    assert answer.status_code == 202, answer.text
    ids = [each["jobId"] for each in answer.json()["jobs"]]
    assert len({*ids}) == 3
    assert await service.credits() == (100, 6, 94)
    async with service.working():
        assert [(await service.ended(id_))["status"] for id_ in ids] == ["completed"] * 3
    assert await service.credits() == (94, 0, 94)


async def test_a_batch_of_the_same_request_is_one_generation(service: Service) -> None:
    """R004-29"""
    answer = await batch(service, job("one"), job("two"), job("one"))
    assert answer.status_code == 202, answer.text
    first, second, third = [each["jobId"] for each in answer.json()["jobs"]]
    assert first == third != second
    assert await service.credits() == (100, 2, 98)
    assert await service.statement() == [("grant", 100), ("reserve", 1), ("reserve", 1)]


@pytest.mark.parametrize("has", [0, 1, 4, 5])
async def test_a_batch_that_exceeds_the_credits_makes_nothing(
    service: Service, generation_settings: Sets, has: int
) -> None:
    generation_settings(starting_credits=has)
    rows = all_but_audit(service)
    jobs = [job(f"number {n}", count=n) for n in (1, 2, 3)]
    assert problem(await batch(service, *jobs)) == (402, "insufficient_credits")
    assert all_but_audit(service) == rows
    assert await service.credits() == (has, 0, has)
    assert await service.audit() == ["INSUFFICIENT_CREDITS"]
    await service.grant("default", 6 - has)
    assert (await batch(service, *jobs)).status_code == 202
    assert await service.credits() == (6, 6, 0)


async def test_a_batch_that_exceeds_the_quota_makes_nothing(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_day=3)
    rows = all_but_audit(service)
    assert problem(await batch(service, job("one", count=2), job("two", count=2))) == (429, "quota_exceeded")
    assert all_but_audit(service) == rows
    assert (await batch(service, job("one", count=2), job("two", count=1))).status_code == 202


async def test_a_batch_with_a_blocked_prompt_makes_nothing(service: Service) -> None:
    rows = all_but_audit(service)
    answer = await batch(service, job("one"), job(BLOCKED), job("two"))
    assert problem(answer) == (422, "prompt_rejected")
    assert "forbidden" not in answer.text
    assert all_but_audit(service) == rows
    assert await service.audit() == ["SAFE_BLOCK"]
    assert await service.credits() == (100, 0, 100)
