"""Lists of jobs: filters, pages and signed cursors."""

import base64

from holdfast.model import NewJob
from holdfast.server.api.cursors import MAC_BYTES
from tests.engine.steps import UNKNOWN_ID
from tests.server.steps import Served, bearer, client_key


async def listed(served: Served, **query: str | int) -> list[str]:
    answer = await served.http.get("/jobs", params=query)
    assert answer.status_code == 200, answer.text
    return [job["jobId"] for job in answer.json()["jobs"]]


async def test_each_filter_narrows_the_list(served: Served, worker: str) -> None:
    """R002-48: the children of a job are found by `parentId`."""
    a, b, c, d = [
        one.id
        for one in await served.engine.create_many(
            [
                NewJob(type="A", tags=["red", "big"]),
                NewJob(type="B", tags=["red"], subject="video 7", parent_id=UNKNOWN_ID),
                NewJob(type="A", queue="slow"),
                NewJob(type="C", priority=100),
            ]
        )
    ]
    [lease] = await served.engine.claim(worker)
    await served.engine.cancel(b)
    assert lease.id == d
    assert await listed(served) == [d, c, b, a]
    assert await listed(served, jobType="A") == await listed(served, job_type="A") == [c, a]
    assert await listed(served, queue="slow") == [c]
    assert await listed(served, tag="red") == [b, a]
    assert await listed(served, tag="red", jobType="A") == [a]
    assert await listed(served, subject="video 7") == await listed(served, parentId=UNKNOWN_ID) == [b]
    assert await listed(served, subject="video") == await listed(served, parentId=a) == []
    assert await listed(served, subject="video 7", jobType="A") == []
    assert await listed(served, status="RUNNING") == [d]
    assert await listed(served, status="CANCELED,RUNNING") == [d, b]
    assert await listed(served, status="PENDING", queue="slow") == [c]
    assert await listed(served, status="FAILED") == []


async def test_pages_follow_each_other_while_jobs_arrive(served: Served) -> None:
    made = [one.id for one in await served.engine.create_many([NewJob(type="A")] * 7)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = (await served.http.get("/jobs", params={"limit": 3, **cursor})).json()
        seen += [job["jobId"] for job in page["jobs"]]
        cursor = {"cursor": page["nextCursor"]}
        await served.engine.create(NewJob(type="A"))
    assert seen == made[::-1]
    assert page["nextCursor"] is None


async def test_a_page_has_fifty_jobs_by_default(served: Served) -> None:
    await served.engine.create_many([NewJob(type="A")] * 60)
    assert len(await listed(served)) == 50
    assert len(await listed(served, limit=500)) == 60


async def test_a_cursor_is_valid_only_for_its_own_filter(served: Served) -> None:
    """SEC-11: bound to tenant and filter, and signed."""
    for tenant in ("default", "them"):
        await served.engine.create_many([NewJob(type="A", tenant=tenant)] * 3)
    ours, theirs = [bearer(await client_key(served, tenant)) for tenant in ("default", "them")]
    asked: dict[str, str | int] = {"limit": 1, "jobType": "A"}
    cursor = (await served.http.get("/jobs", params=asked, headers=ours)).json()["nextCursor"]
    raw = base64.urlsafe_b64decode(cursor + "==")
    forged = [
        base64.urlsafe_b64encode(one).decode().rstrip("=")
        for one in (
            bytes([raw[0] ^ 1]) + raw[1:],
            raw[:-1] + bytes([raw[-1] ^ 1]),
            raw[MAC_BYTES:],
            bytes(MAC_BYTES) + raw[MAC_BYTES:],
            raw[:MAC_BYTES],
        )
    ]
    wrong = [(ours, {**asked, "cursor": one}) for one in ("", "x", "é", "=" * 99, cursor[:-2], cursor + "AA", *forged)]
    wrong += [
        (theirs, {**asked, "cursor": cursor}),
        (ours, {"limit": 1, "cursor": cursor}),
        (ours, {**asked, "cursor": cursor, "status": "PENDING"}),
        (ours, {**asked, "cursor": cursor, "jobType": "B"}),
    ]
    for headers, query in wrong:
        answer = await served.http.get("/jobs", params=query, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor"), query
    answer = await served.http.get("/jobs", params={**asked, "limit": 2, "cursor": cursor}, headers=ours)
    assert len(answer.json()["jobs"]) == 2
