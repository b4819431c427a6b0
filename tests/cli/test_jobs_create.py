"""`holdfast jobs create`."""

import io
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast


def test_a_created_job_is_shown_with_all_its_options(holdfast: Holdfast) -> None:
    created = holdfast(
        *("jobs", "create", "send-email", "--payload", '{"to": "a@example.com"}', "--queue", "mail", "--priority", "7"),
        *("--max-attempts", "2", "--tag", "urgent", "--tag", "paid", "--idempotency-key", "mail-1", "--delay", "1h30m"),
        *("--subject", "order 7", "--lifecycle", "crawl"),
    )
    assert created.code == 0, created.err
    job = holdfast("jobs", "show", created.out.strip(), "--json").json
    assert (job["jobType"], job["queue"], job["priority"], job["maxAttempts"]) == ("send-email", "mail", 7, 2)
    assert (job["payload"], job["tags"]) == ({"to": "a@example.com"}, ["paid", "urgent"])
    assert (job["idempotencyKey"], job["status"], job["state"]) == ("mail-1", "PENDING", "queued")
    assert (job["subject"], job["lifecycle"]) == ("order 7", "crawl")
    assert job["runAt"] > job["createdAt"]


def test_json_says_whether_the_idempotency_key_already_existed(holdfast: Holdfast) -> None:
    first, second = (holdfast("jobs", "create", "a", "--idempotency-key", "k", "--json").json for _ in range(2))
    assert first == {"jobId": first["jobId"], "status": "PENDING", "existed": False}
    assert second == {**first, "existed": True}


def test_the_payload_may_come_from_a_file_or_from_standard_input(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.json").write_text('{"from": "a file"}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"from": "stdin ü"}'.encode())))
    for given, expected in (("@payload.json", "a file"), ("-", "stdin ü")):
        job_id = holdfast("jobs", "create", "a", "--payload", given).out.strip()
        assert holdfast("jobs", "show", job_id, "--json").json["payload"] == {"from": expected}


def test_a_time_without_a_zone_is_in_utc(holdfast: Holdfast) -> None:
    job_id = holdfast("jobs", "create", "a", "--run-at", "2100-01-01T12:00").out.strip()
    assert holdfast("jobs", "show", job_id, "--json").json["runAt"] == "2100-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--payload", "{oops"], "--payload is not JSON: "),
        (["--payload", "[1]"], "payload must be a JSON object, got list"),
        (["--payload", "@absent.json"], "--payload: cannot read absent.json: No such file or directory"),
        (["--delay", "soon"], "'soon' is not a duration; write 90s, 30m, 1h30m or 2d"),
        (["--run-at", "tomorrow"], "'tomorrow' is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z"),
        (["--run-at", "2100-01-01", "--delay", "5"], "give run_at or delay_seconds, not both"),
        (["--priority", "1000"], "priority must be a whole number from -100 to 100, got 1000"),
        (["--max-attempts", "0"], "max_attempts must be a whole number from 1 to 1000"),
        (["--tag", " x"], "must be 1 to 200 printable characters"),
    ],
)
def test_invalid_options_are_usage_errors_with_a_message(holdfast: Holdfast, arguments: list[str], said: str) -> None:
    answer = holdfast("jobs", "create", "a", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert holdfast("jobs", "list", "--json").json["jobs"] == []


def test_an_idempotency_key_of_another_request_is_rejected(holdfast: Holdfast) -> None:
    holdfast("jobs", "create", "a", "--idempotency-key", "k")
    answer = holdfast("jobs", "create", "b", "--idempotency-key", "k")
    assert answer.code == 4
    assert "idempotency key 'k' belongs to job" in answer.err
