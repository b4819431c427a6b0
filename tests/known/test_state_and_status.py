"""`state` is the word of a job's lifecycle, `status` one of the six; an event of a stream is named for its verb."""

import json

import pytest

from holdfast.engine import Engine, Filter
from holdfast.engine.reads.states import state_filter
from holdfast.lifecycle import DEFAULT, Machine, State
from holdfast.model import NewJob
from tests.cli.conftest import Holdfast, Meanwhile, holdfast, meanwhile
from tests.cli.sample_jobs import dead, succeeded
from tests.server.conftest import served
from tests.server.event_reader import watching
from tests.server.steps import ADMIN, Served

__all__ = ["holdfast", "meanwhile", "served"]


async def lives(engine: Engine) -> tuple[str, str]:
    """A job that died, and one that is tried again, each in a lifecycle with its own words."""
    buried = await dead(engine, lifecycle="generation")
    worker = (await engine.workers.all())[0].id
    await engine.create(NewJob(type="render", lifecycle="orchestration"))
    [lease] = await engine.claim(worker, types=["render"])
    await engine.fail(worker, lease.id, lease.token, "E_X", "once more")
    return buried, lease.id


class TestCommandLine:
    def test_state_is_the_lifecycle_state_name_in_every_json_output(
        self, holdfast: Holdfast, meanwhile: Meanwhile
    ) -> None:
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

    def test_jobs_are_filtered_by_the_state_name_that_is_shown(self, holdfast: Holdfast, meanwhile: Meanwhile) -> None:
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

    def test_a_status_passed_as_a_state_is_refused_with_a_hint(self, holdfast: Holdfast, meanwhile: Meanwhile) -> None:
        meanwhile(dead)
        assert "--status FAILED" in holdfast("jobs", "list", "--state", "failed").err
        refused = holdfast("jobs", "list", "--status", "dead")
        assert (refused.code, "unknown status 'dead'" in refused.err) == (2, True)


WORDS = {
    "failed_retryable": {"images"},
    "failed": {"generation", "ended"},  # a retry to come in the one, the end of the other
    "retrying": {"images", "generation", "transcode"},  # of the eight stored states
    "RETRY": set(),
}


async def failed_once(engine: Engine) -> dict[str, str]:
    """A job of each of three lifecycles that waits for its retry, and one of `images` that is given up."""
    worker, jobs = (await engine.workers.register()).id, dict[str, str]()
    for name in ("images", "generation", "transcode", "ended"):
        policy = {"backoff_base_seconds": 600}
        lifecycle = "images" if name == "ended" else name
        jobs[name] = (await engine.create(NewJob(type=name, lifecycle=lifecycle, policy=policy))).id
        [lease] = await engine.claim(worker, types=[name])
        await engine.fail(worker, lease.id, lease.token, "E_X", permanent=name == "ended")
    return jobs


class TestStateNames:
    """A word means for each job what it means in the lifecycle of that job."""

    def test_the_command_line_filters_by_the_state_names_of_each_lifecycle(
        self, holdfast: Holdfast, meanwhile: Meanwhile
    ) -> None:
        """R000-14: `failed_retryable` is a word of `images`."""
        jobs = meanwhile(failed_once)
        for word, found in WORDS.items():
            listed = holdfast("jobs", "list", "--state", word)
            assert {row[0] for row in listed.rows} == {jobs[name] for name in found}, word
        moved = holdfast("jobs", "redrive", "--state", "failed", "--dry-run", "--json").json
        assert [job["jobId"] for job in moved["jobs"] if job["outcome"] != "refused"] == [jobs["ended"]]

    async def test_http_filters_by_the_state_names_of_each_lifecycle(self, served: Served) -> None:
        jobs = await failed_once(served.engine)
        for word, found in WORDS.items():
            wanted = {jobs[name] for name in found}
            for path, headers in (("/jobs", {}), ("/api/admin/jobs", ADMIN)):
                answer = await served.http.get(f"{path}?state={word}", headers=headers)
                assert {job["jobId"] for job in answer.json()["jobs"]} == wanted, (path, word)
            body = {"state": word, "dryRun": True}
            bulk = await served.http.post("/api/admin/cancel", json=body, headers=ADMIN)
            assert {job["jobId"] for job in bulk.json()["jobs"]} == wanted, word
        both = await served.http.get("/jobs?state=failed&status=PENDING")
        assert [job["jobId"] for job in both.json()["jobs"]] == [jobs["generation"]]
        refused = await served.http.get("/jobs?state=faild")
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_state")

    async def test_a_stored_state_name_that_a_lifecycle_uses_for_another_state(self, engine: Engine) -> None:
        """In an app's own lifecycle `dead` may be the word for a canceled job."""
        words = {**DEFAULT.words, State.CANCELED: "dead", State.DEAD: "buried"}
        own = Machine("own", words=words, moves=map(str, DEFAULT.moves))
        engine.ctx.lifecycles.declare(own)
        buried, own_buried = await dead(engine), await dead(engine, lifecycle="own")
        made = await engine.create(NewJob(type="n", lifecycle="own"))
        await engine.cancel(made.id)

        async def found(state: str) -> set[str]:
            wanted = Filter(**state_filter(engine.ctx.lifecycles, state=state))
            return {job.id for job in (await engine.reads.page(wanted)).jobs}

        assert await found("dead") == {buried, made.id}
        assert await found("buried") == {own_buried}
        assert await found("canceled") == {made.id}


class TestAdminHttp:
    async def test_state_and_status_are_separate_filters(self, served: Served) -> None:
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
    async def test_a_failed_job_never_sends_a_complete_event(self, served: Served) -> None:
        job_id = await dead(served.engine)
        async with watching(served, f"/jobs/{job_id}/events") as reader:
            said = await reader.rest()
        assert [(each.name, each.data["status"]) for each in said] == [
            ("create", "PENDING"),
            ("claim", "RUNNING"),
            ("fail", "FAILED"),
        ]

    @pytest.mark.parametrize("ending", ["cancel", "reject", "reap"])
    async def test_every_final_event_is_named_after_its_verb(self, served: Served, ending: str) -> None:
        engine = served.engine
        job = await engine.create(NewJob(type="render", max_attempts=1))
        worker = (await engine.workers.register(name="tester")).id
        if ending == "cancel":
            await engine.cancel(job.id)
        else:
            [lease] = await engine.claim(worker, types=["render"], instance="process-1")
            if ending == "reject":
                await engine.reject(worker, lease.id, lease.token, "E_NO", "no")
            else:
                assert await engine.maintenance.reap(gone=["process-1"])
        async with watching(served, f"/jobs/{job.id}/events") as reader:
            said = await reader.rest()
        assert (said[-1].name, said[-1].data["verb"]) == (ending, ending)
