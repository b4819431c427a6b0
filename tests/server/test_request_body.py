"""Request bodies and query strings: limits, and a clear error for every malformed input."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.server.http.request_body import read_body
from holdfast.server.http.route import DEFAULT_LIMIT
from tests.server.steps import Served, serving

JSON = {"Content-Type": "application/json"}
DEEP = 10_000


def around(payload: bytes) -> bytes:
    return b'{"jobType":"A","payload":' + payload + b"}"


# What is sent, and the status and the code that come back.
HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "nested objects": (around(b'{"a":' * DEEP + b"1" + b"}" * DEEP), 400, "malformed_json"),
    "nested lists": (around(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"), 400, "malformed_json"),
    "deeper than we store": (around(b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"), 422, "payload_not_json"),
    "never closed": (b"[" * 500_000, 400, "malformed_json"),
    "5,000 digits": (around(b'{"n":' + b"9" * 5000 + b"}"), 400, "malformed_json"),
    "beyond 64 bits": (around(b'{"n":36893488147419103232}'), 422, "payload_not_json"),
    "a huge exponent": (around(b'{"n":1e999}'), 400, "malformed_json"),
    "NaN": (around(b'{"n":NaN}'), 400, "malformed_json"),
    "too wide": (around(b'{"a":[' + b"1," * 20_000 + b"1]}"), 422, "payload_not_json"),
    "invalid UTF-8": (around(b'{"a":"\xff\xfe"}'), 400, "malformed_json"),
    "UTF-16": (around(b"{}").decode().encode("utf-16"), 400, "malformed_json"),
    "a byte order mark": (b"\xef\xbb\xbf" + around(b"{}"), 400, "malformed_json"),
    "a lone surrogate": (around(b'{"a":"\\ud800"}'), 400, "malformed_json"),
    "NUL": (around(b'{"a":"\\u0000"}'), 422, "payload_not_json"),
    "a raw NUL": (around(b'{"a":"\x00"}'), 400, "malformed_json"),
    "empty": (b"", 400, "malformed_json"),
    "blank": (b" \n ", 400, "malformed_json"),
    "null": (b"null", 422, "invalid_body"),
    "a list": (b"[]", 422, "invalid_body"),
    "text behind": (around(b"{}") + b"x", 400, "malformed_json"),
    "a payload that is a list": (around(b"[]"), 422, "invalid_body"),
    "a long unknown name": (b'{"' + b"x" * 100_000 + b'":1}', 422, "invalid_body"),
    "two spellings": (b'{"jobType":"A","job_type":"A","payload":{}}', 400, "conflicting_input"),
    "a priority of 5,000 digits": (
        b'{"jobType":"A","payload":{},"priority":' + b"9" * 5000 + b"}",
        400,
        "malformed_json",
    ),
    "a time without a zone": (b'{"jobType":"A","payload":{},"runAt":"2030-01-01T00:00:00"}', 422, "invalid_body"),
    "a payload too large": (around(b'{"a":"' + b"x" * 262_144 + b'"}'), 413, "payload_too_large"),
    "a body too large": (around(b'{"a":"' + b"x" * 1_048_576 + b'"}'), 413, "body_too_large"),
}


@pytest.fixture
async def served(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    """Nothing of this gets as far as a database."""
    async with serving(fresh_sqlite_url) as served:
        yield served


async def test_a_malformed_body_is_a_problem_that_names_the_error(served: Served) -> None:
    """SEC-15, F33."""
    for what, (body, status, code) in HOSTILE.items():
        answer = await served.http.post("/jobs", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (status, code), what
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < 1000, f"{what}: the problem repeats what was sent"
    assert (await served.engine.reads.page()).jobs == []


@pytest.mark.parametrize(
    "name", ["Authorization", "X-Admin-Secret", "Idempotency-Key", "Content-Type", "Last-Event-ID"]
)
async def test_a_singleton_header_may_appear_once(served: Served, name: str) -> None:
    """Whoever stands between us and the client may have looked at the other one."""
    headers = [("Content-Type", "application/json"), *[(name, value) for value in ("application/json", "text/plain")]]
    answer = await served.http.post("/jobs", content=around(b"{}"), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "conflicting_input")
    assert name.lower() in answer.json()["detail"]


async def test_a_list_header_may_be_repeated(served: Served) -> None:
    wishes = [("Prefer", "wait=1"), ("Prefer", "respond-async")]
    answer = await served.http.post("/jobs", content=around(b"{}"), headers=[*JSON.items(), *wishes])
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "wait=1")


async def test_the_last_of_two_equal_json_keys_counts(served: Served) -> None:
    answer = await served.http.post("/jobs", content=b'{"jobType":"A","jobType":"B","payload":{}}', headers=JSON)
    assert (await served.engine.reads.get(answer.json()["jobId"])).type == "B"


async def test_a_body_of_the_maximum_size_is_accepted(served: Served) -> None:
    payload = {"a": "x" * (262_144 - len('{"a":""}'))}
    assert (await served.http.post("/jobs", json={"jobType": "A", "payload": payload})).status_code == 202
    padded = around(b"{}").ljust(1_048_576)
    assert (await served.http.post("/jobs", content=padded, headers=JSON)).status_code == 202


async def test_a_chunked_body_is_stopped_at_the_limit(served: Served) -> None:
    """SEC-15: counted while it arrives, not before."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 65_536

    answer = await served.http.post("/jobs", content=pieces(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_reading_stops_at_the_chunk_that_exceeds_the_limit() -> None:
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    with pytest.raises(Invalid, match="longer than 1048576 bytes"):
        await read_body(receive, {}, limit=DEFAULT_LIMIT)
    assert taken == 17
    with pytest.raises(Invalid, match="longer than 1048576 bytes"):
        await read_body(receive, {b"content-length": b"1048577"}, limit=DEFAULT_LIMIT)
    assert taken == 17


async def test_a_chunked_body_is_read_like_any_other(served: Served) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in around(b'{"a":1}'):
            yield bytes([byte])

    assert (await served.http.post("/jobs", content=pieces(), headers=JSON)).status_code == 202


KINDS = {
    "application/json": 202,
    "application/json; charset=utf-8": 202,
    "APPLICATION/JSON": 202,
    "application/vnd.api+json": 202,
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data": 415,
    "application/jsonp": 415,
}


async def test_only_json_bodies_are_accepted(served: Served) -> None:
    """What a form on any web page could send to a server on its visitor's machine is not taken."""
    for kind, status in KINDS.items():
        answer = await served.http.post("/jobs", content=around(b"{}"), headers={"Content-Type": kind})
        assert answer.status_code == status, kind
    packed = await served.http.post("/jobs", content=around(b"{}"), headers={**JSON, "Content-Encoding": "gzip"})
    assert (packed.status_code, packed.json()["code"]) == (415, "unsupported_media_type")


QUERIES = {
    "limit=x": (422, "invalid_query"),
    "createdAfter=null": (422, "invalid_query"),
    "limit=" + "9" * 5000: (422, "invalid_query"),
    "limit=0": (422, "invalid_field"),
    "limit=501": (422, "invalid_field"),
    "limit=1&limit=2": (400, "conflicting_input"),
    "jobType=a&job_type=a": (400, "conflicting_input"),
    "colour=red": (422, "invalid_query"),
    "status=%ff": (400, "malformed_query"),
    "status=Running": (422, "unknown_status"),
    "status=RUNNING,": (422, "unknown_status"),
    "status=" + "x" * 5000: (422, "unknown_status"),
    "jobType=%00": (422, "invalid_field"),
    "queue=": (422, "invalid_field"),
    "tag=%20": (422, "invalid_field"),
    "cursor=%F0%9F%92%A9": (422, "invalid_cursor"),
    "&" * 100: (400, "malformed_query"),
}


async def test_invalid_query_parameters_are_rejected(served: Served) -> None:
    for query, (status, code) in QUERIES.items():
        answer = await served.http.get(f"/jobs?{query}")
        assert (answer.status_code, answer.json()["code"]) == (status, code), query[:40]
        assert len(answer.content) < 1000


async def test_the_invalid_item_of_a_list_is_named(served: Served) -> None:
    job: dict[str, Any] = {"jobType": "A", "payload": {}}
    for wrong in ({"jobType": "A"}, {**job, "colour": "red"}, {**job, "tags": [1]}, 5):
        answer = await served.http.post("/jobs/batch", content=json.dumps({"jobs": [job, wrong]}), headers=JSON)
        assert answer.status_code == 422
        assert "jobs[1]: " in answer.json()["detail"]
