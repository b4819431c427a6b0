"""A request that is repeated within the minute, or with its key, is the same generation and costs nothing more."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.engine.steps import ask
from tests.workloads.generation.steps import BLOCKED, ON_SQLITE, START, Service, Sets

RESERVED_ONCE = (100, 1, 99)


def move_to(service: Service, at: datetime) -> None:
    service.clock.advance((at - service.clock.now()).total_seconds())


async def same(service: Service, prompt: str = "a lighthouse", **more: Any) -> bool:
    """Whether the request is the same one as the only one before it. Either way the ledger is consistent with that."""
    before, entries = await service.credits(), await service.statement()
    known = {each["generationId"] for each in (await service.get("/generations"))["generations"]}
    answer = await service.create(prompt, **more)
    assert answer.status_code == 202, answer.text
    existed = answer.json()["generationId"] in known
    assert answer.headers["location"] == f"/generations/{answer.json()['generationId']}"
    if existed:
        assert (await service.credits(), await service.statement()) == (before, entries)
    else:
        assert len(await service.statement()) == len(entries) + 1
    return existed


async def test_a_double_click_is_one_generation(service: Service) -> None:
    """R004-11, R004-27, R004-28, R004-29"""
    first = await service.accepted()
    rows = service.rows()
    assert await service.accepted() == first
    assert await service.credits() == RESERVED_ONCE
    assert service.rows() == rows


@pytest.mark.parametrize("second", [0, 30, 59.9])
async def test_the_minute_and_the_next_one_are_the_same(service: Service, second: float) -> None:
    """R004-27 (C-18), R004-29: also across the edge of the minute, wherever in it the first request was."""
    minute = START.replace(second=0)
    move_to(service, minute + timedelta(seconds=second))
    first = await service.accepted()
    for later in (59.95, 60, 61, 119, 119.9):
        move_to(service, minute + timedelta(seconds=later))
        assert await service.accepted() == first, later
    assert await service.credits() == RESERVED_ONCE
    move_to(service, minute + timedelta(seconds=120 + second % 1))
    again = await service.accepted()
    assert again["generationId"] != first["generationId"]
    assert await service.credits() == (100, 2, 98)


@ON_SQLITE
async def test_repeats_do_not_prolong_the_minute(service: Service) -> None:
    first = await service.accepted()
    service.clock.advance(60)
    assert await service.accepted() == first
    service.clock.advance(60)
    assert (await service.accepted())["generationId"] != first["generationId"]


@ON_SQLITE
async def test_white_space_and_normalization_make_no_other_prompt(service: Service) -> None:
    await service.accepted("a caf\u00e9")
    for prompt in (" a caf\u00e9\n", "a   caf\u00e9", "a\tcaf\u00e9", "a cafe\u0301", "a\u00a0caf\u00e9"):
        assert await same(service, prompt), prompt


@ON_SQLITE
async def test_another_prompt_is_another_generation(service: Service) -> None:
    await service.accepted("a caf\u00e9")
    for prompt in ("a cafe", "a caf\u00e9!", "acaf\u00e9", "a caf\u00e9 a"):
        assert not await same(service, prompt), prompt


@ON_SQLITE
async def test_other_parameters_are_another_generation(service: Service) -> None:
    await service.accepted()
    others: list[dict[str, Any]] = [{"width": 65}, {"height": 65}, {"count": 2}, {"seed": 1}, {"style": "ink"}]
    for other in (*others, {"negativePrompt": "people"}):
        assert not await same(service, **other), other
    assert await same(service)


@ON_SQLITE
async def test_a_default_that_is_said_is_the_same_request(service: Service) -> None:
    first = await service.accepted(width=1024, height=1024)
    answer = await service.ask("POST", "/generations", json={"prompt": "a lighthouse", "provider": "local", "count": 1})
    assert answer.json() == first


@ON_SQLITE
async def test_width_and_height_are_not_interchangeable(service: Service) -> None:
    await service.accepted(width=64, height=128)
    assert not await same(service, width=128, height=64)


async def test_a_repeat_after_the_end_shows_the_end(service: Service) -> None:
    first = await service.made()
    again = await service.accepted()
    assert again == {
        "generationId": first["generationId"],
        "jobId": first["jobId"],
        "status": "completed",
        "creditsReserved": 0,
    }
    assert await service.statement() == [("grant", 100), ("reserve", 1), ("commit", 1)]


async def test_a_repeat_needs_neither_credits_nor_quota(service: Service, generation_settings: Sets) -> None:
    """It was paid for: the last credit is not asked for twice."""
    generation_settings(starting_credits=1, quota_per_day=1)
    first = await service.accepted()
    assert await service.rejected("another") == (429, "quota_exceeded")
    assert await service.accepted() == first
    generation_settings(quota_per_day=5)
    assert await service.rejected("another") == (402, "insufficient_credits")
    assert await service.accepted() == first


async def test_after_a_cancel_the_request_is_a_new_one(service: Service) -> None:
    """R004-28: what has failed can be requested again."""
    first = await service.accepted()
    assert (await service.ask("POST", f"/generations/{first['generationId']}/cancel")).status_code == 202
    again = await service.accepted()
    assert again["generationId"] != first["generationId"]
    assert await service.statement() == [("grant", 100), ("reserve", 1), ("release", 1), ("reserve", 1)]


async def test_after_a_dead_letter_the_request_is_a_new_one(service: Service) -> None:
    """R004-28"""
    first = await service.accepted(key="poster")
    await discard(service, first["jobId"])
    assert (await service.generation(first["generationId"]))["status"] == "dead_letter"
    again = await service.accepted(key="poster")
    assert again["generationId"] != first["generationId"]
    assert await service.credits() == RESERVED_ONCE


async def discard(service: Service, job_id: str) -> None:
    """The job ends dead: a worker reports an error that is not retried."""
    worker = (await service.served.engine.workers.register()).id
    [lease] = await service.served.engine.claim(worker, types=["GENERATION_RUN"])
    assert lease.id == job_id
    await service.served.engine.fail(worker, lease.id, lease.token, "provider_failed", permanent=True)


async def test_a_rejected_request_keeps_its_key(service: Service, blocklist: Callable[[str], None]) -> None:
    """R004-25, R004-28: the same request again does not cost again, and is not tried again."""
    first = await service.accepted("a pangolin", key="poster")
    other = await service.accepted("a pangolin and more")
    blocklist("pangolin")
    async with service.working():
        assert (await service.ended(first["generationId"]))["status"] == "rejected"
        assert (await service.ended(other["generationId"]))["status"] == "rejected"
    blocklist("something else")
    rejected = {"status": "rejected", "creditsReserved": 0}
    assert await service.accepted("a pangolin", key="poster") == {**first, **rejected}
    assert await service.accepted("a pangolin and more") == {**other, **rejected}
    assert await service.credits() == (98, 0, 98)


# -- keys of the client --------------------------------------------------------------------------------------------


async def test_a_key_of_the_client_wins(service: Service) -> None:
    """The minute does not matter then: neither for the same key later, nor for another one at once."""
    first = await service.accepted(key="poster")
    assert (await service.accepted(key="poster-2"))["generationId"] != first["generationId"]
    assert (await service.accepted())["generationId"] != first["generationId"]
    service.clock.advance(600)
    assert await service.accepted(key="poster") == first
    assert await service.credits() == (100, 3, 97)


async def test_a_key_with_another_request_is_422(service: Service) -> None:
    first = await service.accepted(key="poster")
    rows, has = service.rows(), await service.credits()
    reused = (422, "idempotency_key_reused")
    assert await service.rejected("another", key="poster") == reused
    assert await service.rejected(count=2, key="poster") == reused
    assert await service.rejected(seed=1, key="poster") == reused
    said = (await service.create("another", key="poster")).json()["detail"]
    assert said == "this Idempotency-Key was used for another request; use a new one"
    assert (service.rows(), await service.credits()) == (rows, has)
    assert await service.accepted(key="poster") == first


async def test_a_key_of_a_blocked_prompt_is_free(service: Service) -> None:
    assert await service.rejected(BLOCKED, key="poster") == (422, "prompt_rejected")
    await service.accepted(key="poster")


async def test_keys_are_of_one_user(service: Service) -> None:
    alice, bob = await service.user("alice"), await service.user("bob")
    first = await alice.accepted(key="poster")
    other = await bob.accepted("another prompt", key="poster")
    assert other["generationId"] != first["generationId"]
    assert await (await service.user("alice")).accepted(key="poster") == first, "another key of the same user"


async def test_the_same_request_of_two_users_is_two(service: Service) -> None:
    """R004-27: the user is a part of the key."""
    users = [await service.user("alice"), await service.user("bob"), await service.user("alice", tenant="other")]
    ids = [(await user.accepted())["generationId"] for user in users]
    assert len({*ids}) == 3
    assert [await user.credits() for user in users] == [RESERVED_ONCE] * 3


@ON_SQLITE
async def test_an_invalid_key_is_422(service: Service) -> None:
    before = service.rows()
    for key in ("", "é", "a\tb", "x" * 256):
        headers = {"Idempotency-Key": key.encode()}
        answer = await service.ask("POST", "/generations", json={"prompt": "a"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")
    assert service.rows() == before


async def test_nobody_can_use_the_key_of_another_user_first(service: Service) -> None:
    """Keys that are derived from requests could be computed, and are reserved; those of `Idempotency-Key` cannot."""
    alice, bob = await service.user("alice"), await service.user("bob")
    first = await alice.accepted()
    assert (await key_of(service, first)).startswith("derived-")
    body = {"jobType": "GENERATION_RUN", "payload": {"prompt": "x"}, "idempotencyKey": f"derived-{'0' * 64}"}
    answer = await bob.ask("POST", "/jobs", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (
        *(422, "invalid_field"),
        "idempotencyKey",
    )
    of_header = await alice.accepted("with a key", key="poster")
    guess = hashlib.sha256(msgspec.json.encode(["alice", "poster"])).hexdigest()
    assert await key_of(service, of_header) != f"generation-{guess}"


async def key_of(service: Service, generation: dict[str, Any]) -> str:
    query = "SELECT idempotency_key FROM holdfast_jobs WHERE id = :id"
    [row] = await ask(service.served.engine, query, id=generation["jobId"])
    return str(row["idempotency_key"])
