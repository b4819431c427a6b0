"""An extension rejects a job at dispatch: it is queued, and never runs."""

from typing import Any

import pytest

from holdfast import App, JobFailed
from holdfast import Reject as Verdict
from holdfast.errors import Invalid
from holdfast.extend import ClaimRequest, Extension, RejectJob, Tx
from holdfast.model import Job
from holdfast.settings import Settings
from tests.server.steps import ADMIN, serving
from tests.worker.in_process import until, working


class Studio:
    """An app with an extension that moderates, what ran in it, and what the extension has booked."""

    def __init__(self, store_url: str) -> None:
        self.app = App(Settings(database_url=store_url), name="studio")
        self.ran: list[str] = []
        self.booked: list[tuple[str, str, str | None]] = []
        ext = Extension("moderation", package="tests")

        @ext.job("GENERATE", lifecycle="generation")
        async def generate(prompt: str) -> None:
            self.ran.append(prompt)

        @ext.guard("claim", job_type="GENERATE")
        async def moderate(_tx: Tx, request: ClaimRequest) -> RejectJob | None:
            return RejectJob("SAFE_BLOCK", "not this prompt") if request.job.payload["prompt"] == "gore" else None

        @ext.effect("claim", "reject", "complete")
        async def book(_tx: Tx, verb: str, job: Job) -> None:
            self.booked.append((verb, str(job.state), job.reason))

        self.app.include(ext)


async def test_a_rejection_by_a_claim_guard_is_recorded_and_published(store_url: str) -> None:
    """R004-2, R004-25, R004-28, R004-29, C-4, C-18: queued -> rejected by the system, and its key stays taken."""
    studio = Studio(store_url)
    async with serving(store_url, app=studio.app) as served:

        async def post(prompt: str) -> Any:
            body = {"jobType": "GENERATE", "payload": {"prompt": prompt}, "idempotencyKey": prompt}
            answer = await served.http.post("/jobs", json=body)
            assert answer.status_code == 202, answer.text
            return answer.json()

        rejected, kept = await post("gore"), await post("a fox")
        async with studio.app, working(studio.app):
            job = await served.http.get(f"/jobs/{kept['jobId']}", headers={"Prefer": "wait=20"})
            await until(lambda: len(studio.booked) == 3)

        assert (job.json()["status"], studio.ran) == ("COMPLETED", ["a fox"])
        assert sorted(studio.booked) == [
            ("claim", "running", None),
            ("complete", "succeeded", None),
            ("reject", "rejected", "SAFE_BLOCK"),
        ]
        view = (await served.http.get(f"/jobs/{rejected['jobId']}")).json()
        assert (view["status"], view["error"]["code"]) == ("REJECTED", "SAFE_BLOCK")
        events = (await served.http.get(f"/api/admin/jobs/{rejected['jobId']}/events", headers=ADMIN)).json()["events"]
        told = [{name: event.get(name) for name in ("verb", "from", "to", "actor")} for event in events]
        assert told[1:] == [{"verb": "reject", "from": "queued", "to": "rejected", "actor": "system"}]
        assert await served.engine.reads.attempts(rejected["jobId"]) == []
        assert await post("gore") == rejected | {"status": "REJECTED"}


async def test_a_rejection_is_audited_or_rolled_back(store_url: str) -> None:
    """R004-26: by the guard at dispatch and by the worker's own verdict, in the commit of the move."""
    app, ext = App(Settings(database_url=store_url), name="studio"), Extension("moderation", package="tests")
    tries: list[str] = []

    @ext.job("GENERATE", lifecycle="generation")
    async def generate(prompt: str) -> None:
        raise Verdict("SAFE_BLOCK", "the provider's filter")

    @ext.guard("claim", job_type="GENERATE")
    async def moderate(_tx: Tx, request: ClaimRequest) -> RejectJob | None:
        return RejectJob("SAFE_BLOCK") if request.job.payload["prompt"] == "gore" else None

    @ext.effect("reject", job_type="GENERATE")
    async def note(tx: Tx, _verb: str, job: Job) -> None:
        await ext.audit(tx, "SAFE_BLOCK", job.id, attempts=job.attempt)
        tries.append(job.payload["prompt"])
        if tries.count("hare") == 1 and job.payload["prompt"] == "hare":
            raise RuntimeError("not this time")

    app.include(ext)
    async with app, working(app):
        jobs = {prompt: await generate.enqueue(prompt) for prompt in ("gore", "a fox", "hare")}
        engine = await app.engine()
        for job in jobs.values():
            with pytest.raises(JobFailed, match="SAFE_BLOCK"):
                await job.result(60)
        assert tries.count("hare") > 1
        page = await engine.audit.page()
        assert {(line.actor, line.action) for line in page.lines} == {("extension moderation", "SAFE_BLOCK")}
        told = sorted((line.subject, line.detail["attempts"]) for line in page.lines)
        assert told == sorted([(jobs["gore"].id, 0), (jobs["a fox"].id, 1), (jobs["hare"].id, 1)])
        assert (await engine.audit.verify()).wrong is None

        for bad in ({"action": ""}, {"action": "X", "subject": 5}, {"action": "X", "text": "x" * 5000}):
            with pytest.raises(Invalid, match="extension 'moderation'") as refused:
                await engine.store.write(lambda tx, bad=bad: ext.audit(tx, **bad))  # type: ignore[misc]
            assert refused.value.code == "invalid_audit_line"
