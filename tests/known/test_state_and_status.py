"""`state` is the word of a job's lifecycle, `status` one of the six; an event of a stream is named for its verb."""

import json

import pytest

from holdfast.engine import Engine
from holdfast.model import NewJob
from tests.cli.conftest import Holdfast, Meanwhile, holdfast, meanwhile
from tests.cli.stories import dead, succeeded
from tests.server.conftest import served
from tests.server.steps import ADMIN, Served
from tests.server.watching import watching

__all__ = ["holdfast", "meanwhile", "served"]


async def lives(engine: Engine) -> tuple[str, str]:
    """A job that died, and one that is tried again, each in a lifecycle with its own words."""
    buried = await dead(engine, lifecycle="generation")
    worker = (await engine.workers())[0].id
    await engine.create(NewJob(type="render", lifecycle="orchestration"))
    [lease] = await engine.claim(worker, types=["render"])
    await engine.fail(worker, lease.id, lease.token, "E_X", "once more")
    return buried, lease.id


class TestCommandLine:
    def test_state_is_the_lifecycles_word_in_every_json(self, holdfast: Holdfast, meanwhile: Meanwhile) -> None:
        buried, _ = meanwhile(lives)
        [job] = holdfast("jobs", "list", "--status", "FAILED", "--json").json["jobs"]
        assert (job["state"], job["storedState"], job["status"]) == ("dead_letter", "dead", "FAILED")
        assert "word" not in job
        shown = holdfast("jobs", "show", buried, "--json").json
        assert (shown["state"], shown["attempts"][0]["state"]) == ("dead_letter", "dead_letter")
        last = json.loads(holdfast("jobs", "events", buried, "--json").out.splitlines()[-1])
        assert (last["verb"], last["from"], last["to"], last["status"]) == ("fail", "running", "dead_letter", "FAILED")
        [ended] = holdfast("top", "--json", "--interval", "0.1").json["ended"]
        assert (ended["state"], ended["status"]) == ("dead_letter", "FAILED")

    def test_jobs_are_found_by_the_word_that_is_shown(self, holdfast: Holdfast, meanwhile: Meanwhile) -> None:
        buried, again = meanwhile(lives)
        plain = meanwhile(dead)
        done = meanwhile(lambda engine: succeeded(engine, lifecycle="images"))
        for arguments, found in (
            (["--state", "dead_letter"], {buried}),
            (["--state", "RETRY"], {again}),
            (["--state", "retrying"], {again}),  # the eight words of the platform hold in every lifecycle
            (["--state", "dead"], {buried, plain}),
            (["--state", "completed"], {done}),
            (["--state", "dead_letter,RETRY"], {buried, again}),
            (["--status", "failed,COMPLETED"], {buried, plain, done}),
            (["--status", "PENDING", "--state", "RETRY"], {again}),
            (["--status", "FAILED", "--state", "RETRY"], set()),
        ):
            assert {row[0] for row in holdfast("jobs", "list", *arguments).rows} == found, arguments

    def test_a_status_given_as_a_state_is_pointed_out(self, holdfast: Holdfast, meanwhile: Meanwhile) -> None:
        meanwhile(dead)
        assert "--status FAILED" in holdfast("jobs", "list", "--state", "failed").err
        refused = holdfast("jobs", "list", "--status", "dead")
        assert (refused.code, "unknown status 'dead'" in refused.err) == (2, True)


class TestAdminHttp:
    async def test_state_and_status_are_filters_of_their_own(self, served: Served) -> None:
        buried, again = await lives(served.engine)
        for query, found in (
            ("state=dead_letter", {buried}),
            ("state=RETRY", {again}),
            ("state=dead", {buried}),
            ("status=FAILED", {buried}),
            ("status=PENDING&state=RETRY", {again}),
        ):
            answer = await served.http.get(f"/api/admin/jobs?{query}", headers=ADMIN)
            assert {job["jobId"] for job in answer.json()["jobs"]} == found, query
        refused = await served.http.get("/api/admin/jobs?status=dead", headers=ADMIN)
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_status")


class TestStreams:
    async def test_a_job_that_failed_is_never_told_as_complete(self, served: Served) -> None:
        job_id = await dead(served.engine)
        async with watching(served, f"/jobs/{job_id}/events") as reader:
            said = await reader.rest()
        assert [(each.name, each.data["status"]) for each in said] == [
            ("create", "PENDING"),
            ("claim", "RUNNING"),
            ("fail", "FAILED"),
        ]

    @pytest.mark.parametrize("ending", ["cancel", "reject", "reap"])
    async def test_every_end_is_named_for_its_verb(self, served: Served, ending: str) -> None:
        engine = served.engine
        job = await engine.create(NewJob(type="render", max_attempts=1))
        worker = (await engine.register(name="tester")).id
        if ending == "cancel":
            await engine.cancel(job.id)
        else:
            [lease] = await engine.claim(worker, types=["render"], instance="process-1")
            if ending == "reject":
                await engine.reject(worker, lease.id, lease.token, "E_NO", "no")
            else:
                assert await engine.reap(gone=["process-1"])
        async with watching(served, f"/jobs/{job.id}/events") as reader:
            said = await reader.rest()
        assert (said[-1].name, said[-1].data["verb"]) == (ending, ending)
