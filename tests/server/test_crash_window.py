"""Crashes between the insert and the response: a repeated request finds the job, and nothing runs too early."""

import asyncio
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model import JobType
from tests.server.steps import Served, serving
from tests.worker.in_process import until

REPORT = {"jobType": "REPORT", "payload": {"of": "May"}, "idempotencyKey": "once"}


async def failing(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("the database is away")


async def declare(served: Served) -> None:
    await served.engine.job_types.declare(JobType(name="REPORT", lifecycle="orchestration"))


async def moves(engine: Engine, job_id: str) -> list[tuple[str, str | None, str]]:
    return [(event.verb, event.to_state, event.actor) for event in await engine.reads.history(job_id)]


async def test_a_job_is_accepted_in_a_second_commit_before_the_response(served: Served) -> None:
    """C-9, R001-10: created by the client, accepted by the API."""
    await declare(served)
    answer = await served.http.post("/jobs", json=REPORT)
    assert answer.status_code == 202
    told = await served.engine.reads.history(answer.json()["jobId"])
    assert [(event.verb, event.to_state, event.actor) for event in told] == [
        ("create", "created", "client"),
        ("accept", "queued", "api"),
    ]
    if served.engine.store.dialect == "postgres":
        assert told[0].pos < told[1].pos, "one transaction made both"


async def test_a_job_that_was_not_accepted_is_accepted_by_the_retry(
    served: Served, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-25, R001-43, R001-83: no duplicate, no loss, no early start."""
    await declare(served)
    with monkeypatch.context() as broken:
        broken.setattr(Engine, "accept_created", failing)
        answer = await served.http.post("/jobs", json=REPORT)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    [job] = (await served.engine.reads.page()).jobs
    assert job.state == "created"
    assert await served.engine.claim(worker) == []
    again = await served.http.post("/jobs", json=REPORT)
    assert (again.status_code, again.json()) == (202, {"jobId": job.id, "status": "PENDING"})
    [lease] = await served.engine.claim(worker)
    assert lease.id == job.id
    assert await moves(served.engine, job.id) == [
        ("create", "created", "client"),
        ("accept", "queued", "api"),
        ("claim", "running", "worker"),
    ]


async def test_jobs_in_the_same_batch_as_a_failed_acceptance_get_responses(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare(served)
    monkeypatch.setattr(Engine, "accept_created", failing)
    plain = {"jobType": "PLAIN", "payload": {}}
    answers = await asyncio.gather(*(served.http.post("/jobs", json=body) for body in [REPORT, plain] * 5))
    assert [answer.status_code for answer in answers] == [503, 202] * 5


async def test_a_lost_response_is_returned_to_the_retry(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-43: committed, but nobody could say so."""
    create = Engine._store_each

    async def cut_off(self: Engine, jobs: Any) -> Any:
        await create(self, jobs)
        raise OutcomeUnknown("the connection was lost")

    with monkeypatch.context() as broken:
        broken.setattr(Engine, "_store_each", cut_off)
        async with serving(served.server.settings.url) as cut:
            lost = await cut.http.post("/jobs", json={**REPORT, "jobType": "PLAIN"})
    assert (lost.status_code, lost.json()["code"]) == (503, "outcome_unknown")
    again = await served.http.post("/jobs", json={**REPORT, "jobType": "PLAIN"})
    [job] = (await served.engine.reads.page()).jobs
    assert again.json() == {"jobId": job.id, "status": "PENDING"}


async def test_jobs_without_a_retry_are_accepted_by_maintenance(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-9: after HOLDFAST_ACCEPT_ORPHANS_SECONDS, so that nothing is lost."""
    await declare(served)
    with monkeypatch.context() as broken:
        broken.setattr(Engine, "accept_created", failing)
        await served.http.post("/jobs", json=REPORT)
    async with serving(served.server.settings.url, accept_orphans_seconds=0.001) as other:
        assert await other.engine.maintenance.accept_orphans() in (
            0,
            1,
        )  # its own maintenance may have been quicker, or be at it

        async def is_queued() -> bool:
            [job] = (await other.engine.reads.page()).jobs
            return job.state == "queued"

        await until(is_queued)
