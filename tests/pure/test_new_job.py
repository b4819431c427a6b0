"""A bad request is refused before anything is written: a typed error, a stable code, the thing, and what to do."""

import hashlib
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from holdfast.engine import Filter, Retention
from holdfast.errors import Invalid, UnknownName
from holdfast.model import JobType, NewJob
from holdfast.model.job import DELAY_SECONDS_MAX, PAYLOAD_BYTES_MAX
from tests.codes import code_of

ID = "01900000-0000-7000-8000-000000000000"
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
DAY = timedelta(hours=23, minutes=59)
FIRST, LAST = datetime.min.replace(tzinfo=timezone(DAY)), datetime.max.replace(tzinfo=timezone(-DAY))
HUGE = 10**5000  # Python refuses to write out a number of more than 4300 digits
LONE = "\ud800"
BAD = [
    ({"type": ""}, "invalid_field job_type", "job_type must be 1 to 200 printable characters"),
    ({"type": "line\nbreak"}, "invalid_field job_type", "got 'line\\nbreak'"),
    ({"tenant": ""}, "invalid_field tenant", "tenant must be 1 to 200 printable characters"),
    ({"queue": "bell\x07"}, "invalid_field queue", "got 'bell\\x07'"),
    ({"queue": "nul\x00"}, "invalid_field queue", "queue must be 1 to 200 printable characters"),
    ({"queue": ""}, "invalid_field queue", "queue must be 1 to 200 printable characters"),
    ({"queue": 7}, "invalid_field queue", "got 7"),
    ({"payload": [1]}, "payload_not_json", "payload must be a JSON object, got list"),
    ({"payload": None}, "payload_not_json", "payload must be a JSON object, got NoneType"),
    ({"payload": "{}"}, "payload_not_json", "payload must be a JSON object, got str"),
    ({"priority": 101}, "invalid_field priority", "a whole number from -100 to 100, got 101"),
    ({"priority": -101}, "invalid_field priority", "a whole number from -100 to 100, got -101"),
    ({"priority": 1.0}, "invalid_field priority", "got 1.0"),
    ({"priority": True}, "invalid_field priority", "got True"),
    ({"max_attempts": 0}, "invalid_field max_attempts", "a whole number from 1 to 1000 (executions in all), got 0"),
    ({"max_attempts": -1}, "invalid_field max_attempts", "got -1"),
    ({"max_attempts": 1001}, "invalid_field max_attempts", "got 1001"),
    ({"max_attempts": 2.0}, "invalid_field max_attempts", "got 2.0"),
    ({"delay_seconds": -1}, "invalid_field delay_seconds", "delay_seconds must be 0 to"),
    ({"delay_seconds": math.nan}, "invalid_field delay_seconds", "got nan"),
    ({"delay_seconds": math.inf}, "invalid_field delay_seconds", "got inf"),
    ({"delay_seconds": DELAY_SECONDS_MAX + 1}, "invalid_field delay_seconds", "(ten years)"),
    ({"delay_seconds": "5"}, "invalid_field delay_seconds", "got '5'"),
    ({"delay_seconds": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}, "invalid_field delay_seconds", "not both"),
    ({"run_at": NAIVE}, "invalid_field run_at", "run_at must be a time with a time zone, got '2026-01-01 00:00:00'"),
    ({"run_at": "tomorrow"}, "invalid_field run_at", "got 'tomorrow'"),
    ({"run_at": 0}, "invalid_field run_at", "run_at must be a time with a time zone, got 0"),
    (
        {"run_at": datetime(1969, 12, 31, tzinfo=UTC)},
        "invalid_field run_at",
        "must lie between 1970-01-01 and 2200-01-01",
    ),
    (
        {"run_at": datetime(2200, 1, 2, tzinfo=UTC)},
        "invalid_field run_at",
        "must lie between 1970-01-01 and 2200-01-01",
    ),
    ({"run_at": FIRST}, "invalid_field run_at", "must lie between"),
    ({"run_at": LAST}, "invalid_field run_at", "must lie between"),
    ({"lifecycle": 5}, "invalid_field lifecycle", "got 5"),
    ({"lifecycle": ""}, "invalid_field lifecycle", "lifecycle must be 1 to 200 printable characters"),
    ({"lifecycle": ["default"]}, "invalid_field lifecycle", "got ['default']"),
    ({"policy": [1]}, "policy_not_json", "policy must be a JSON object, got list"),
    ({"policy": {"errors": {LONE: "permanent"}}}, "policy_not_json", "policy.errors contains a lone surrogate"),
    ({"policy": {"lease_seconds": math.nan}}, "policy_not_json", "policy.lease_seconds is nan"),
    ({"policy": {"errors": {1: "permanent"}}}, "policy_not_json", "a key that is an int"),
    ({"policy": {"errors": object()}}, "policy_not_json", "policy.errors is an object, which is not JSON"),
    ({"policy": {"errors": "x" * 16_384}}, "policy_too_large", "the limit is 16384"),
    ({"trace": [1]}, "trace_not_json", "trace must be an object of text by name, got [1]"),
    ({"trace": {"a": 1}}, "trace_not_json", "got {'a': 1}"),
    ({"trace": {1: "a"}}, "trace_not_json", "got {1: 'a'}"),
    ({"tenant": None}, "invalid_field tenant", "got None"),
    ({"type": ["a"]}, "invalid_field job_type", "got ['a']"),
    ({"priority": None}, "invalid_field priority", "got None"),
    ({"priority": HUGE}, "invalid_field priority", "got an int that cannot be shown"),
    ({"max_attempts": "3"}, "invalid_field max_attempts", "got '3'"),
    ({"max_attempts": HUGE}, "invalid_field max_attempts", "got an int that cannot be shown"),
    ({"delay_seconds": HUGE}, "invalid_field delay_seconds", "got an int that cannot be shown"),
    ({"delay_seconds": True}, "invalid_field delay_seconds", "got True"),
    ({"tags": None}, "invalid_field tags", "tags must be a list of at most 50 names, got None"),
    ({"tags": 0}, "invalid_field tags", "got 0"),
    ({"tags": [[]]}, "invalid_field tags", "got []"),
    ({"requires": ""}, "invalid_field requires", "got ''"),
    ({"prefers": {}}, "invalid_field prefers", "got {}"),
    ({"partition_key": 7}, "invalid_field partition_key", "got 7"),
    ({"parent_id": HUGE}, "invalid_field parent_id", "got an int that cannot be shown"),
    ({"idempotency_key": ""}, "invalid_field idempotency_key", "1 to 255 printable ASCII characters"),
    ({"idempotency_key": "k" * 256}, "invalid_field idempotency_key", "1 to 255 printable ASCII characters"),
    ({"idempotency_key": "ä"}, "invalid_field idempotency_key", "1 to 255 printable ASCII characters"),
    ({"idempotency_key": "a\nb"}, "invalid_field idempotency_key", "1 to 255 printable ASCII characters"),
    ({"idempotency_key": 7}, "invalid_field idempotency_key", "1 to 255 printable ASCII characters"),
    ({"tags": ["ok", ""]}, "invalid_field tags", "each of tags must be 1 to 200 printable characters"),
    ({"tags": "urgent"}, "invalid_field tags", "tags must be a list of at most 50 names, got 'urgent'"),
    ({"tags": [str(n) for n in range(51)]}, "invalid_field tags", "tags must be a list of at most 50 names"),
    ({"requires": ["\x00"]}, "invalid_field requires", "each of requires must be 1 to 200 printable characters"),
    ({"prefers": "gpu"}, "invalid_field prefers", "prefers must be a list of at most 50 names, got 'gpu'"),
    (
        {"partition_key": "nul\x00"},
        "invalid_field partition_key",
        "partition_key must be 1 to 200 printable characters",
    ),
    ({"parent_id": "me"}, "invalid_field parent_id", "parent_id must be a UUID, got 'me'"),
    ({"root_id": "' OR 1"}, "invalid_field root_id", "root_id must be a UUID"),
    ({"redrive_of": 7}, "invalid_field redrive_of", "redrive_of must be a UUID, got 7"),
]


@pytest.mark.parametrize(("fields", "code", "says"), BAD, ids=[f"{code}-{n}" for n, (_, code, _) in enumerate(BAD)])
def test_a_bad_request_is_refused_with_a_code_and_a_reason(fields: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        NewJob(**{"type": "echo", **fields}).check()
    assert code_of(caught.value) == code
    assert says in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": -100, "max_attempts": 1, "delay_seconds": 0, "idempotency_key": "k" * 255},
        {"priority": 100, "max_attempts": 1000, "delay_seconds": float(DELAY_SECONDS_MAX), "tags": ["a"] * 50},
        {"run_at": datetime(1970, 1, 1, tzinfo=UTC), "parent_id": ID, "root_id": ID, "redrive_of": ID},
        {"run_at": datetime(2199, 12, 31, 23, tzinfo=timezone(timedelta(hours=-1)))},
        {"policy": {}, "trace": {}, "tags": (), "requires": [], "prefers": set()},
        {"policy": {"errors": "x" * (16_384 - len('{"errors":""}'))}, "trace": {"traceparent": "00-1-2-01"}},
        {"queue": "größe", "partition_key": "user 7", "requires": ["gpu"], "prefers": ["cuda:12"]},
    ],
)
def test_a_request_at_the_edge_of_what_is_allowed_passes(fields: dict[str, Any]) -> None:
    NewJob(type="echo", **fields).check()


def test_a_payload_one_byte_over_the_limit_is_refused() -> None:
    """F33."""
    assert NewJob(type="echo", payload={"a": "x" * (PAYLOAD_BYTES_MAX - 8)}).encoded_payload()
    with pytest.raises(Invalid) as caught:
        NewJob(type="echo", payload={"a": "x" * (PAYLOAD_BYTES_MAX - 7)}).encoded_payload()
    assert caught.value.code == "payload_too_large"
    assert f"{PAYLOAD_BYTES_MAX + 1} bytes" in caught.value.message


def test_the_same_request_has_the_same_fingerprint_whatever_the_order_of_its_keys() -> None:
    """C-18, C-19: the fingerprint covers the request as sent, not the time it leads to."""
    one = NewJob(type="echo", payload={"a": 1, "b": {"c": 2, "d": 3}}, delay_seconds=5)
    other = NewJob(type="echo", payload={"b": {"d": 3, "c": 2}, "a": 1}, delay_seconds=5)
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    "fields",
    [{"type": "other"}, {"payload": {"a": 2}}, {"delay_seconds": 6}, {"queue": "q"}, {"priority": 1}, {"tags": ["t"]}],
)
def test_a_different_request_has_a_different_fingerprint(fields: dict[str, Any]) -> None:
    """C-19."""
    base = {"type": "echo", "payload": {"a": 1}, "delay_seconds": 5}
    assert NewJob(**base).fingerprint() != NewJob(**{**base, **fields}).fingerprint()


def test_a_new_optional_field_does_not_change_existing_fingerprints() -> None:
    """C-18: only what was said counts, so a repeat that meets a newer release is still the same request."""

    class Later(NewJob, frozen=True, kw_only=True):
        colour: str | None = None
        flags: list[str] = msgspec.field(default_factory=list)

    said = {"type": "echo", "payload": {"b": 1, "a": 2}, "tags": ["t"]}
    assert Later(**said).fingerprint() == NewJob(**said).fingerprint()
    assert Later(**said, colour="red").fingerprint() != NewJob(**said).fingerprint()
    as_text = b'{"payload":{"a":2,"b":1},"tags":["t"],"type":"echo"}'
    assert NewJob(**said).fingerprint() == hashlib.sha256(as_text).hexdigest()


def test_an_explicit_default_does_not_change_the_fingerprint() -> None:
    spelled_out = NewJob(type="echo", tenant="".join(["def", "ault"]), priority=0, payload={}, tags=[], queue=None)
    assert spelled_out.fingerprint() == NewJob(type="echo").fingerprint()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": 5}, "invalid_field job_type"),
        ({"lifecycle": None}, "invalid_field lifecycle"),
        ({"lifecycle": {}}, "invalid_field lifecycle"),
        ({"queue": None}, "invalid_field queue"),
        ({"policy": None}, "policy_not_json"),
        ({"policy": ["lease_seconds"]}, "policy_not_json"),
        ({"policy": {"errors": {LONE: "permanent"}}}, "policy_not_json"),
        ({"policy": {"errors": "x" * 16_384}}, "policy_too_large"),
        ({"requires": None}, "invalid_field requires"),
        ({"prefers": [5]}, "invalid_field prefers"),
        ({"name": ""}, "invalid_field job_type"),
        ({"queue": "\x00"}, "invalid_field queue"),
        ({"requires": [""]}, "invalid_field requires"),
        ({"prefers": "gpu"}, "invalid_field prefers"),
    ],
)
def test_a_declared_type_obeys_the_same_rules(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Invalid) as caught:
        JobType(**{"name": "echo", **fields}).check()
    assert code_of(caught.value) == code


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"created_after": NAIVE}, "invalid_field created_after", "created_after must be a time with a time zone"),
        ({"created_before": "now"}, "invalid_field created_before", "got 'now'"),
        (
            {"created_after": FIRST},
            "invalid_field created_after",
            "created_after must lie between 1970-01-01 and 2200-01-01",
        ),
        ({"created_before": LAST}, "invalid_field created_before", "created_before must lie between"),
        ({"states": "queued"}, "invalid_field states", "states must be a list, got 'queued'"),
        ({"types": 5}, "invalid_field types", "types must be a list, got 5"),
        ({"queues": {"a": 1}}, "invalid_field queues", "queues must be a list"),
        ({"states": [5]}, "unknown_state", "unknown state '5'"),
        ({"states": [["queued"]]}, "unknown_state", "unknown state"),
        ({"types": [None]}, "invalid_field job_type", "got None"),
        ({"queues": ["\x00"]}, "invalid_field queue", "printable"),
        ({"tenant": 5}, "invalid_field tenant", "got 5"),
        ({"tag": ["a"]}, "invalid_field tag", "got ['a']"),
        ({"error_code": 5}, "invalid_field error_code", "got 5"),
        ({"redrive_of": HUGE}, "invalid_field redrive_of", "redrive_of must be a UUID"),
    ],
)
def test_a_filter_that_no_job_can_match_is_refused(fields: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        Filter(**fields).params()
    assert code_of(caught.value) == code
    assert says in caught.value.message


@pytest.mark.parametrize("keep", [-1, math.nan, math.inf, 10**9 + 1, pytest.param(HUGE, id="huge"), "7", True, [1]])
def test_a_retention_is_a_number_of_seconds(keep: Any) -> None:
    with pytest.raises(Invalid, match="retention_dead must be a number from 0") as caught:
        Retention(dead=keep)
    assert code_of(caught.value) == "invalid_field retention_dead"


def test_an_unknown_state_in_a_filter_is_named_with_its_nearest_neighbour() -> None:
    with pytest.raises(UnknownName, match="unknown state 'runing'; did you mean 'running'") as caught:
        Filter(states=["runing"]).params()
    assert caught.value.code == "unknown_state"
