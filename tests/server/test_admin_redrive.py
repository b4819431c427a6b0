"""Cancel and redrive by filter: rehearsed first, bounded, paced, and safe to call again."""

from datetime import datetime
from itertools import pairwise

import pytest

from holdfast.engine import Filter
from holdfast.errors import Refused
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.store import Tx
from tests.engine.hooking import adopt, guard
from tests.server.admin_client import Operator, dead, operator, started
from tests.server.steps import Served


@pytest.fixture
def op(served: Served) -> Operator:
    return operator(served)


async def many_dead(op: Operator, number: int, **job: str) -> set[str]:
    worker = (await op.engine.workers.register()).id
    await op.engine.create_many([NewJob(**{"type": "render", **job}) for _ in range(number)])
    leases = await op.engine.claim(worker, limit=number)
    for lease in leases:
        await op.engine.fail(worker, lease.id, lease.token, "E_DISK", permanent=True)
    return {lease.id for lease in leases}


async def waiting(op: Operator) -> int:
    return len((await op.engine.reads.page(Filter(states=["queued"]), limit=500)).jobs)


async def test_a_dry_run_changes_nothing(op: Operator) -> None:
    lost = await many_dead(op, 3)
    rehearsed = await op.post("/redrive", {"jobType": "render"})
    assert (rehearsed["dryRun"], rehearsed["matched"], rehearsed["done"]) == (True, 3, 3)
    assert {job["jobId"] for job in rehearsed["jobs"]} == lost
    assert all("newJobId" not in job for job in rehearsed["jobs"]), "nothing was made"
    assert (await waiting(op), (await op.get("/audit"))["lines"]) == (0, [])

    done = await op.post("/redrive", {"jobType": "render", "dryRun": False})
    assert (done["dryRun"], done["matched"], done["done"], done["nextCursor"]) == (False, 3, 3, None)
    made = {job["newJobId"]: job["jobId"] for job in done["jobs"]}
    assert {(await op.engine.reads.get(new)).redrive_of for new in made} == set(made.values()) == lost
    [line] = (await op.get("/audit"))["lines"]
    assert (line["action"], line["detail"]["filter"]) == ("jobs.redrive", {"jobType": "render"})
    assert (line["detail"]["outcomes"], set(line["detail"]["jobs"])) == ({"redriven": 3}, lost)


async def test_a_job_is_redriven_once_by_default(op: Operator) -> None:
    """C-6: whoever calls again after a lost answer makes no second job."""
    lost = await dead(op.engine)
    one_by_one = await op.post(f"/jobs/{lost}/redrive", status=202)
    again = await op.post("/redrive", {"state": "dead", "dryRun": False})
    assert (again["done"], again["skipped"]) == (0, 1)
    assert again["jobs"] == [{"jobId": lost, "outcome": "already_redriven", "newJobId": one_by_one["jobId"]}]
    told = await op.post("/redrive", {"state": "dead", "dryRun": False, "again": True})
    assert (told["done"], await waiting(op)) == (1, 2)


async def test_a_call_is_limited_and_returns_a_cursor(op: Operator) -> None:
    lost = await many_dead(op, 5)
    body, done = {"queue": "default", "dryRun": False, "limit": 2}, []
    for _ in range(3):
        answer = await op.post("/redrive", body)
        assert answer["matched"] == 5
        done += [job["jobId"] for job in answer["jobs"]]
        body["cursor"] = answer["nextCursor"]
    assert (len(done), set(done), body["cursor"]) == (5, lost, None)
    stale = {**body, "cursor": (await op.post("/redrive", {**body, "cursor": None}))["nextCursor"], "queue": "other"}
    assert (await op.post("/redrive", stale, status=422))["code"] == "invalid_cursor"


async def test_a_rate_spreads_the_starts_over_all_calls(op: Operator) -> None:
    await many_dead(op, 6)
    body, starts = {"state": "dead", "dryRun": False, "limit": 3, "ratePerSecond": 0.1}, list[datetime]()
    for _ in range(2):
        answer = await op.post("/redrive", body)
        starts += [(await op.engine.reads.get(job["newJobId"])).run_at for job in answer["jobs"]]
        body["cursor"] = answer["nextCursor"]
    assert [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(starts)] == [10.0] * 5


async def test_jobs_are_canceled_by_filter(op: Operator) -> None:
    ended = await dead(op.engine, type="render")
    _, lease = await started(op.engine, type="render")
    many = await op.engine.create_many([NewJob(type="render")] * 2)
    other = await op.engine.create(NewJob(type="other"))
    body = {"jobType": "render", "reason": "wrong batch"}
    assert (await op.post("/cancel", body))["done"] == 3
    done = await op.post("/cancel", {**body, "dryRun": False})
    assert {job["jobId"]: job["outcome"] for job in done["jobs"]} == {
        **{made.id: "canceled" for made in many},
        lease.id: "cancel_requested",
    }
    assert (await op.engine.reads.get(many[0].id)).reason == "wrong batch"
    assert (await op.engine.reads.get(other.id)).state is State.QUEUED
    assert (await op.engine.reads.get(ended)).state is State.DEAD


async def test_rejected_jobs_are_listed_and_the_others_are_processed(op: Operator) -> None:
    """`images` has no cancel."""
    [firm, soft] = await op.engine.create_many([NewJob(type="a", lifecycle="images"), NewJob(type="a")])
    done = await op.post("/cancel", {"jobType": "a", "dryRun": False})
    assert (done["done"], done["refused"]) == (1, 1)
    refused = next(job for job in done["jobs"] if job["outcome"] == "refused")
    assert (refused["jobId"], refused["code"]) == (firm.id, "illegal_move")
    assert (await op.engine.reads.get(soft.id)).state is State.CANCELED
    [line] = (await op.get("/audit"))["lines"]
    assert line["detail"]["jobs"] == [soft.id]


async def test_a_job_rejected_by_a_guard_is_rolled_back_by_itself(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    many = await op.engine.create_many([NewJob(type="a"), NewJob(type="b")])

    @guard(op.engine, "cancel", job_type="b")
    async def never(tx: Tx, job: object) -> None:
        raise Refused("not this one")

    await adopt(op.engine, "b")

    for dry_run in (True, False):
        done = await op.post("/cancel", {"queue": "default", "dryRun": dry_run})
        assert (done["done"], done["refused"]) == (1, 1)
        assert (await op.engine.reads.get(many[0].id)).state is (State.QUEUED if dry_run else State.CANCELED)
    assert [line["detail"]["outcomes"] for line in (await op.get("/audit"))["lines"]] == [{"canceled": 1, "refused": 1}]


async def test_a_missing_filter_is_an_error(served_on_sqlite: Served) -> None:
    op = operator(served_on_sqlite)
    await many_dead(op, 1)
    for path in ("/redrive", "/cancel"):
        for body in ({}, {"dryRun": False}):
            assert (await op.post(path, body, status=422))["code"] == "invalid_field"
    assert (await op.post("/cancel", {"queue": "default", "reason": " "}, status=422))["code"] == "invalid_field"
    assert await waiting(op) == 0
