"""What `POST /generations` refuses: blocked prompts, too few credits, used-up quotas. Nothing is left of it but a line
in the audit log."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.workloads.generation.guard import prompt_guard as guard_module
from tests.server.steps import ADMIN
from tests.workloads.generation.steps import BLOCKED, ON_SQLITE, Service, Sets

AUDIT = "holdfast_audit"
DISGUISES = {
    "as listed": "a forbidden-test-word",
    "case": "a FORBIDDEN-Test-Word",
    "spaces": "f o r b i d d e n t e s t w o r d",
    "separators": "forbidden_test.word",
    "joined": "forbiddentestword",
    "confusables": "f\u043erbidden-t\u0435st-w\u043erd",
    "full width": "".join(chr(ord(char) + 0xFEE0) for char in BLOCKED),
    "zero width": "for\u200bbidden\u2060-te\u00adst-word",
    "leetspeak": "f0rb1dd3n-t3st-w0rd",
    "accents": "förbiddén-tést-wörd",
    "in the middle": "a red forbidden-test-word in the rain",
}


def audit_table(service: Service) -> dict[str, int]:
    """Rows of all tables but the audit log."""
    return {name: rows for name, rows in service.rows().items() if AUDIT not in name}


async def leaves_only_a_line(service: Service, action: str, refused: Any) -> dict[str, Any]:
    """The line in the audit log; what the user has, and everything else, is as before."""
    rows, has, lines = audit_table(service), await service.credits(), await service.audit_lines()
    answer = await refused()
    after = await service.audit_lines()
    assert (audit_table(service), await service.credits()) == (rows, has)
    assert [line["action"] for line in after[len(lines) :]] == [action]
    assert after[: len(lines)] == lines
    assert answer.headers["content-type"] == "application/problem+json"
    assert "location" not in answer.headers
    return {**after[-1], "answer": answer}


# -- prompts -------------------------------------------------------------------------------------------------------


async def test_a_blocked_prompt_leaves_one_audit_entry(service: Service) -> None:
    """R004-9, R004-26: the answer does not tell which word it was."""
    for disguise, prompt in DISGUISES.items():
        line = await leaves_only_a_line(service, "SAFE_BLOCK", lambda prompt=prompt: service.create(prompt))
        problem = line["answer"].json()
        assert (line["answer"].status_code, problem["code"]) == (422, "prompt_rejected"), disguise
        for word in ("forbidden", "test-word", prompt):
            assert word not in line["answer"].text
            assert word not in str(line["detail"])
        assert (line["subject"], line["detail"]["stage"]) == ("default", "request")
    assert await service.get("/generations") == {"generations": [], "nextCursor": None}
    assert (await service.http.get("/api/admin/audit/verify", headers=ADMIN)).json()["valid"] is True


@ON_SQLITE
async def test_a_style_can_be_blocked_too(service: Service) -> None:
    line = await leaves_only_a_line(service, "SAFE_BLOCK", lambda: service.create(style=BLOCKED))
    assert line["answer"].json()["code"] == "prompt_rejected"


@ON_SQLITE
async def test_a_negative_prompt_may_name_what_must_not_be_shown(service: Service) -> None:
    await service.accepted(negativePrompt=BLOCKED)


@ON_SQLITE
async def test_each_blocked_request_is_one_entry(service: Service) -> None:
    for _ in range(3):
        await service.rejected(BLOCKED)
        await service.rejected(BLOCKED, key="the same")
    assert await service.audit() == ["SAFE_BLOCK"] * 6


@ON_SQLITE
async def test_a_blocked_prompt_uses_no_quota(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_day=1)
    for _ in range(3):
        assert await service.rejected(BLOCKED) == (422, "prompt_rejected")
    await service.accepted()


@ON_SQLITE
async def test_words_of_the_operator_are_blocked(service: Service, blocklist: Callable[..., None]) -> None:
    blocklist("pangolin")
    line = await leaves_only_a_line(service, "SAFE_BLOCK", lambda: service.create("a PANG0LIN"))
    assert line["answer"].json()["code"] == "prompt_rejected"
    assert "pang" not in line["answer"].text.lower()


# -- at dispatch ---------------------------------------------------------------------------------------------------


async def test_a_word_that_was_listed_meanwhile_rejects_at_dispatch(
    service: Service, tmp_path: Path, generation_settings: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R004-2, R004-6, R004-25, R004-26: the file is read again, no image is made, and the credits are lost."""
    monkeypatch.setattr(guard_module, "CHECK_SECONDS", 0)
    file = tmp_path / "blocklist"
    file.write_text("something else\n")
    generation_settings(blocklist_file=file)
    accepted, other = await service.accepted("a pangolin", count=2), await service.accepted("a lighthouse")
    file.write_text("something else\npangolin\n")

    async with service.working():
        rejected = await service.ended(accepted["generationId"])
        assert (await service.ended(other["generationId"]))["status"] == "completed"

    assert (rejected["status"], rejected["error"]["code"]) == ("rejected", "prompt_rejected")
    assert "pangolin" not in rejected["error"]["message"]
    assert (rejected["assets"], rejected["creditsReserved"], rejected["creditsCharged"]) == ([], 0, 2)
    assert "startedAt" not in rejected
    assert await service.credits() == (97, 0, 97)
    assert [each for each in await service.statement() if each[0] != "commit"] == [
        ("grant", 100),
        ("reserve", 2),
        ("reserve", 1),
        ("forfeit", 2),
    ]
    assert len(service.files("originals/")) == 1
    [line] = await service.audit_lines()
    assert (line["action"], line["subject"]) == ("SAFE_BLOCK", "default")
    assert line["detail"] == {"stage": "dispatch", "code": "prompt_rejected", "job": accepted["jobId"]}
    job = (await service.http.get(f"/jobs/{accepted['jobId']}")).json()
    assert (job["status"], job["error"]["code"]) == ("REJECTED", "prompt_rejected")


# -- credits -------------------------------------------------------------------------------------------------------


async def test_too_few_credits_are_402(service: Service, generation_settings: Sets) -> None:
    """R004-12"""
    generation_settings(starting_credits=3, cost=2)
    line = await leaves_only_a_line(service, "INSUFFICIENT_CREDITS", lambda: service.create(count=2))
    assert (line["answer"].status_code, line["answer"].json()["code"]) == (402, "insufficient_credits")
    assert line["detail"] == {"needed": 4, "available": 3}
    accepted = await service.accepted(count=1)
    assert accepted["creditsReserved"] == 2
    line = await leaves_only_a_line(service, "INSUFFICIENT_CREDITS", lambda: service.create("another"))
    assert line["detail"] == {"needed": 2, "available": 1}
    assert line["answer"].json()["detail"] == "this needs 2 credits, and 1 is available"
    await service.grant("default", 1)
    await service.accepted("another")
    assert await service.credits() == (4, 4, 0)


async def test_reserved_credits_can_be_used_after_they_are_released(
    service: Service, generation_settings: Sets
) -> None:
    generation_settings(starting_credits=1)
    first = await service.accepted()
    assert await service.rejected("another") == (402, "insufficient_credits")
    await service.ask("POST", f"/generations/{first['generationId']}/cancel")
    await service.accepted("another")


@ON_SQLITE
async def test_without_a_cost_nothing_is_reserved(service: Service, generation_settings: Sets) -> None:
    generation_settings(starting_credits=0, cost=0)
    made = await service.made(count=2)
    assert (made["status"], made["creditsCharged"]) == ("completed", 0)
    assert (await service.credits(), await service.statement()) == ((0, 0, 0), [])


@ON_SQLITE
async def test_the_price_of_a_generation_is_that_of_its_request(service: Service, generation_settings: Sets) -> None:
    generation_settings(cost=3)
    accepted = await service.accepted(count=2)
    generation_settings(cost=5)
    async with service.working():
        assert (await service.ended(accepted["generationId"]))["creditsCharged"] == 6
    assert await service.credits() == (94, 0, 94)


# -- quotas --------------------------------------------------------------------------------------------------------


def retry_after(answer: Any) -> int:
    return int(answer.headers["retry-after"])


async def test_the_quota_of_a_day(service: Service, generation_settings: Sets) -> None:
    """R004-10: images count, not requests; the next day begins at midnight."""
    generation_settings(quota_per_day=3)
    await service.accepted(count=2)
    line = await leaves_only_a_line(service, "QUOTA_EXCEEDED", lambda: service.create("another", count=2))
    assert (line["answer"].status_code, line["answer"].json()["code"]) == (429, "quota_exceeded")
    assert retry_after(line["answer"]) == 11 * 3600 + 59 * 60 + 40, "from 20 seconds after noon until midnight"
    assert line["detail"] == {"period": "day", "used": 2, "quota": 3}
    await service.accepted("another", count=1)
    assert await service.rejected("a third") == (429, "quota_exceeded")
    service.clock.advance(retry_after(line["answer"]) - 1)
    assert await service.rejected("a third") == (429, "quota_exceeded")
    service.clock.advance(1)
    await service.accepted("a third", count=3)


@ON_SQLITE
async def test_the_quota_of_a_month(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_month=3, quota_per_day=2)
    await service.accepted(count=2)
    service.clock.advance(86_400)
    line = await leaves_only_a_line(service, "QUOTA_EXCEEDED", lambda: service.create("another", count=2))
    assert line["detail"] == {"period": "month", "used": 2, "quota": 3}
    assert service.clock.now().day == 11
    assert retry_after(line["answer"]) == 20 * 86_400 + 12 * 3600 - 20, "until 1 April"
    await service.accepted("another", count=1)
    service.clock.advance(retry_after(line["answer"]) - 1)
    assert await service.rejected("a third") == (429, "quota_exceeded")
    service.clock.advance(1)
    await service.accepted("a third", count=2)


@ON_SQLITE
@pytest.mark.parametrize(
    ("zone", "at", "seconds"),
    [
        ("Europe/Berlin", datetime(2026, 1, 15, 22, 59, tzinfo=UTC), 60),
        ("Europe/Berlin", datetime(2026, 7, 15, 21, 59, tzinfo=UTC), 60),
        ("Europe/Berlin", datetime(2026, 3, 28, 23, 0, tzinfo=UTC), 23 * 3600),  # summer time begins
        ("Europe/Berlin", datetime(2026, 10, 24, 22, 0, tzinfo=UTC), 25 * 3600),  # and ends
        ("America/St_Johns", datetime(2026, 1, 15, 3, 29, tzinfo=UTC), 60),
        ("Pacific/Kiritimati", datetime(2026, 1, 15, 9, 59, tzinfo=UTC), 60),
    ],
)
async def test_days_are_those_of_the_time_zone(
    service: Service, generation_settings: Sets, zone: str, at: datetime, seconds: int
) -> None:
    generation_settings(quota_per_day=1, timezone=zone)
    service.clock.advance((at - service.clock.now()).total_seconds())
    await service.accepted()
    answer = await service.create("another")
    assert (answer.status_code, retry_after(answer)) == (429, seconds)
    service.clock.advance(seconds - 1)
    assert await service.rejected("another") == (429, "quota_exceeded")
    service.clock.advance(1)
    await service.accepted("another")


@ON_SQLITE
async def test_months_are_those_of_the_time_zone(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_month=1, timezone="Asia/Tokyo")
    service.clock.advance((datetime(2026, 3, 31, 14, 59, 59, tzinfo=UTC) - service.clock.now()).total_seconds())
    await service.accepted()
    answer = await service.create("another")
    assert (answer.status_code, retry_after(answer)) == (429, 1)
    service.clock.advance(1)
    await service.accepted("another")


@ON_SQLITE
async def test_a_quota_of_zero_is_none(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_day=0, quota_per_month=0)
    for n in range(5):
        await service.accepted(f"number {n}", count=4)


async def test_what_was_not_made_counts_not_against_the_quota(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_day=2)
    first = await service.accepted(count=2)
    assert await service.rejected("another") == (429, "quota_exceeded")
    await service.ask("POST", f"/generations/{first['generationId']}/cancel")
    await service.accepted("another", count=2)


async def test_what_was_rejected_counts_against_the_quota(
    service: Service, generation_settings: Sets, blocklist: Callable[..., None]
) -> None:
    generation_settings(quota_per_day=2)
    accepted = await service.accepted("a pangolin", count=2)
    blocklist("pangolin")
    async with service.working():
        assert (await service.ended(accepted["generationId"]))["status"] == "rejected"
    assert await service.rejected("another") == (429, "quota_exceeded")


@ON_SQLITE
async def test_quotas_are_of_each_user(service: Service, generation_settings: Sets) -> None:
    generation_settings(quota_per_day=1)
    alice, bob = await service.user("alice"), await service.user("bob")
    await alice.accepted()
    assert await alice.rejected("another") == (429, "quota_exceeded")
    await bob.accepted("another")


# -- their order ---------------------------------------------------------------------------------------------------


async def test_guards_have_an_order(service: Service, generation_settings: Sets) -> None:
    """R004-9, R004-10, R004-11, R004-12: the fields, the key of the client, the prompt, the repeated request, the
    quota, the credits."""
    generation_settings(starting_credits=1, quota_per_day=1)
    first = await service.accepted(key="first")
    assert await service.rejected(BLOCKED, width=1) == (422, "invalid_field")
    assert await service.rejected(BLOCKED, key="first") == (422, "idempotency_key_reused")
    assert await service.rejected(BLOCKED) == (422, "prompt_rejected")
    assert await service.accepted(key="first") == first
    assert await service.rejected("another") == (429, "quota_exceeded")
    generation_settings(quota_per_day=10)
    assert await service.rejected("another") == (402, "insufficient_credits")
    assert await service.audit() == ["SAFE_BLOCK", "QUOTA_EXCEEDED", "INSUFFICIENT_CREDITS"]
    assert await service.credits() == (1, 1, 0)
    assert await service.statement() == [("grant", 1), ("reserve", 1)]


async def test_a_new_user_who_is_refused_leaves_no_account(service: Service, generation_settings: Sets) -> None:
    generation_settings(starting_credits=1)
    assert await service.rejected(count=2) == (402, "insufficient_credits")
    assert await service.rejected(BLOCKED) == (422, "prompt_rejected")
    left = [name for name in audit_table(service) if name.startswith(("holdfast_generation", "holdfast_job_events"))]
    assert left == []
