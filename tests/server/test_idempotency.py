"""One request, however often it comes, by whatever way, at however many servers: one job."""

import asyncio
from typing import Any

import pytest

from holdfast.server.http import endpoint
from tests.server.steps import Served, serving

BODY: dict[str, Any] = {"jobType": "SEND", "payload": {"to": "a", "n": 1}}


async def hand_in(served: Served, *, key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await served.http.post("/jobs", json={**BODY, **body}, headers=headers)


async def test_a_retry_gets_the_same_response_as_the_first_request(served: Served) -> None:
    """R001-38..42: the same status, the same body, the same headers."""
    first, again = [await hand_in(served, key="k") for _ in range(2)]
    assert (first.status_code, first.content) == (again.status_code, again.content) == (202, first.content)
    unlike = {"date", "x-request-id"}
    assert [pair for pair in first.headers.items() if pair[0] not in unlike] == [
        pair for pair in again.headers.items() if pair[0] not in unlike
    ]
    assert first.json() == {"jobId": first.headers["location"].removeprefix("/jobs/"), "status": "PENDING"}
    assert len((await served.engine.reads.page()).jobs) == 1


async def test_a_retry_returns_the_current_state_of_the_job(served: Served, worker: str) -> None:
    """R001-40."""
    await hand_in(served, key="k")
    [lease] = await served.engine.claim(worker)
    assert (await hand_in(served, key="k")).json()["status"] == "RUNNING"
    await served.engine.complete(worker, lease.id, lease.token)
    assert (await hand_in(served, key="k")).json() == {"jobId": lease.id, "status": "COMPLETED"}


async def test_the_key_is_read_from_the_header_the_body_or_both(served: Served) -> None:
    """R001-36, R002-17, C-18. In the header also as a quoted string; in the body in either case."""
    answers = [
        await hand_in(served, key="a key"),
        await hand_in(served, idempotencyKey="a key"),
        await hand_in(served, idempotency_key="a key"),
        await hand_in(served, key='"a key"'),
        await hand_in(served, key='"a key"', idempotencyKey="a key"),
    ]
    assert len({answer.text for answer in answers}) == 1
    assert len((await served.engine.reads.page()).jobs) == 1


async def test_quotes_inside_a_quoted_key_are_escaped(served: Served) -> None:
    answers = [await hand_in(served, key=r'"say \"hi\" \\o/"'), await hand_in(served, idempotencyKey=r'say "hi" \o/')]
    assert answers[0].text == answers[1].text
    assert answers[0].status_code == 202


async def test_two_different_keys_in_one_request_are_an_error(served: Served) -> None:
    """C-18."""
    answer = await hand_in(served, key="one", idempotencyKey="other")
    assert (answer.status_code, answer.json()["code"]) == (400, "conflicting_input")
    assert (await served.engine.reads.page()).jobs == []


async def test_an_idempotency_key_reused_with_a_different_request_is_rejected(served: Served) -> None:
    """C-19, SEC-48: nothing changes."""
    made = (await hand_in(served, key="k")).json()["jobId"]
    for other in ({"payload": {"to": "b"}}, {"jobType": "OTHER"}, {"priority": 1}, {"delaySeconds": 5}):
        answer = await hand_in(served, key="k", **other)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused"), other
        assert answer.json()["jobId"] == made
    assert [job.id for job in (await served.engine.reads.page()).jobs] == [made]


async def test_a_key_is_one_to_255_printable_characters(served: Served) -> None:
    """SEC-15."""
    for key in ("", '""', "x" * 256, "caf\xe9", "tab\there"):
        answer = await served.http.post("/jobs", json=BODY, headers={b"Idempotency-Key": key.encode("latin-1")})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field"), key
    assert (await hand_in(served, key="x" * 255)).status_code == 202


async def test_without_a_key_each_request_is_a_job(served: Served) -> None:
    assert len({(await hand_in(served)).json()["jobId"] for _ in range(3)}) == 3


async def test_two_hundred_equal_requests_at_two_servers_make_one_job(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K39, R001-44, R001-59, R001-83: the database decides, and no response is a 5xx."""
    monkeypatch.setattr(endpoint, "ANSWER_SECONDS_MAX", 60.0)  # on a busy machine they take longer than 10 seconds
    async with serving(store_url) as one, serving(store_url) as other:
        answers = await asyncio.gather(*(hand_in(served, key="k") for _ in range(100) for served in (one, other)))
        assert {(answer.status_code, answer.text) for answer in answers} == {(202, answers[0].text)}
        assert len((await one.engine.reads.page()).jobs) == 1


async def test_requests_in_one_commit_succeed_or_fail_independently(served: Served) -> None:
    """New ones, repeats, reused keys and nonsense at once: each gets its own answer."""
    await hand_in(served, key="taken")
    kinds: list[dict[str, Any]] = [
        {"key": "taken"},
        {"key": "taken", "payload": {"other": 1}},
        {"priority": 1000},
        {},
        {"key": "new"},
    ]
    answers = await asyncio.gather(*(hand_in(served, **kind) for _ in range(12) for kind in kinds))
    assert [answer.status_code for answer in answers] == [202, 422, 422, 202, 202] * 12
    assert len((await served.engine.reads.page()).jobs) == 1 + 12 + 1


async def test_a_retry_at_another_server_gets_the_same_response(store_url: str) -> None:
    """R001-34, R001-60: all of it is in the database."""
    async with serving(store_url) as one:
        made = await hand_in(one, key="k")
        first_page = (await one.http.get("/jobs", params={"limit": 1})).json()
        await hand_in(one)
        page = (await one.http.get("/jobs", params={"limit": 1})).json()
    async with serving(store_url) as other:
        assert (await hand_in(other, key="k")).text == made.text
        assert (await other.http.get(made.headers["location"])).json()["jobId"] == made.json()["jobId"]
        following = await other.http.get("/jobs", params={"limit": 1, "cursor": page["nextCursor"]})
        assert following.json() == first_page


async def test_a_key_for_a_batch_is_a_key_for_each_of_its_jobs(served: Served) -> None:
    """R002-17: a batch can be sent again as safely as a single job."""
    bodies = {"jobs": [BODY, {**BODY, "idempotencyKey": "its own"}, BODY]}
    first, again = [
        await served.http.post("/jobs/batch", json=bodies, headers={"Idempotency-Key": "all"}) for _ in range(2)
    ]
    assert (first.status_code, first.text) == (again.status_code, again.text) == (202, first.text)
    assert sorted(job.idempotency_key or "" for job in (await served.engine.reads.page()).jobs) == [
        "all/0",
        "all/2",
        "its own",
    ]


async def test_a_key_reused_in_a_batch_is_named_and_nothing_is_written(served: Served) -> None:
    await hand_in(served, key="taken")
    bodies = {"jobs": [BODY, {**BODY, "idempotencyKey": "taken", "priority": 5}]}
    answer = await served.http.post("/jobs/batch", json=bodies)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert answer.json()["detail"].startswith("jobs[1]: ")
    assert len((await served.engine.reads.page()).jobs) == 1
