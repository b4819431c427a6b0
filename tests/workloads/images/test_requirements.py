"""Each requirement on the lifecycle of an image, and where it is shown.

Most are shown here, on the image service: with a server and workers that the test moves by hand, or in a whole
deployment (`Story`), whose metrics and logs are read as operators read them.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.claim import token_prefix
from holdfast.engine.move import move
from holdfast.errors import LeaseLost
from holdfast.lifecycle import Actor, State
from holdfast.model import Lease
from holdfast.model.key import NewKey
from holdfast.model.reports import HeldLease
from holdfast.observe.transition_log import TransitionLog
from holdfast.settings import Settings
from holdfast.store import PostgresStore, Row, Tx, q
from holdfast.workloads.images.lifecycle import IMAGES
from holdfast.workloads.images.service import app
from tests.conftest import with_database
from tests.engine.steps import ask, stored
from tests.observe.captured import hearing
from tests.server.http_worker import Hand, hand, held
from tests.server.steps import ADMIN, bearer, serving
from tests.server.test_metrics import BYTES, REQUIRED
from tests.servers.aws import AwsServer
from tests.servers.s3 import BUCKET, S3Server
from tests.store import by_hand
from tests.worker.in_process import working
from tests.worker.test_metrics import LIST, Page, check_form
from tests.workloads.images.deployment import HINTS, SMALL, Story, Told, story_of
from tests.workloads.images.steps import Service, Sets, picture
from tests.workloads.requirements import RequirementsTable

IMAGE_TESTS, WORKER_TESTS, SERVER_TESTS = "tests/workloads/images", "tests/worker", "tests/server"

# A name alone is a test of this file.
SHOWN: dict[str, tuple[str, ...]] = {
    "R000-1": (
        "test_one_declaration_is_the_lifecycle_of_the_database_the_api_and_the_logs",
        "tests/pure/test_declarations.py::test_a_lifecycle_round_trips_through_json",
    ),
    "R000-2": (
        "test_an_upload_is_a_queued_job_that_survives_its_server",
        f"{IMAGE_TESTS}/test_killed_processes.py::test_an_upload_whose_server_was_killed_is_repeated",
    ),
    "R000-3": ("test_every_attempt_is_recorded",),
    "R000-4": (
        "test_repeated_messages_about_ended_jobs_start_nothing_and_are_deleted",
        "tests/dispatch/test_sqs_dispatch.py::test_an_idle_worker_starts_a_job_when_sqs_delivers_a_hint",
        "tests/dispatch/test_sqs_dispatch.py::test_a_hint_goes_through_sqs_and_the_database_and_is_deleted_after_the_claim",
    ),
    "R000-5": (
        "test_repeated_messages_about_ended_jobs_start_nothing_and_are_deleted",
        "tests/dispatch/test_sqs_dispatch.py::test_duplicate_late_unknown_and_malformed_messages_are_deleted",
    ),
    **dict.fromkeys(
        ("R000-6", "R000-7", "R000-8", "R000-9", "R000-10"),
        (
            "test_a_worker_takes_images_through_each_state",
            "tests/pure/test_lifecycles.py::test_a_lifecycle_has_exactly_the_state_names_of_its_document",
        ),
    ),
    **dict.fromkeys(
        ("R000-11", "R000-12", "R000-13", "R000-14", "R000-15"),
        (
            "test_a_worker_takes_images_through_each_state",
            "test_the_transitions_of_a_deployment_are_those_of_the_lifecycle",
        ),
    ),
    "R000-16": ("test_a_waiting_retry_is_ended_by_the_worker_of_a_control_job",),
    **dict.fromkeys(
        ("R000-17", "R000-18"),
        (
            "test_the_database_refuses_forbidden_transitions_of_image_jobs",
            "test_an_ended_image_job_is_never_claimed_nor_moved_again",
            "tests/store/test_constraints.py::test_a_job_has_only_one_final_state",
        ),
    ),
    **dict.fromkeys(
        ("R000-19", "R000-20", "R000-21"),
        (
            "test_the_database_refuses_forbidden_transitions_of_image_jobs",
            "test_a_queued_image_job_neither_completes_nor_fails",
            "tests/pure/test_lifecycles.py::test_a_queued_image_job_neither_fails_nor_succeeds_without_running",
        ),
    ),
    "R000-22": ("test_an_upload_is_a_queued_job_that_survives_its_server",),
    "R000-23": ("test_an_upload_is_a_queued_job_that_survives_its_server",),
    "R000-24": (
        "test_a_waiting_retry_is_ended_by_the_worker_of_a_control_job",
        "test_a_deletion_ends_the_job_of_its_image",
        "test_the_worker_of_a_running_image_is_asked_to_stop",
        f"{IMAGE_TESTS}/test_http.py::test_a_queued_image_is_canceled_by_a_control_job",
        "tests/extension/test_control_jobs.py::test_a_handler_in_a_child_process_is_interrupted_by_a_control_job",
    ),
    **dict.fromkeys(
        ("R000-25", "R000-26", "R000-27"),
        (
            "test_no_request_of_a_client_moves_a_job",
            "tests/pure/test_lifecycles.py::test_neither_client_nor_api_starts_finishes_or_fails_a_job",
            "tests/store/test_constraints.py::test_a_move_is_refused_if_its_actor_may_not_make_it",
        ),
    ),
    **dict.fromkeys(("R000-28", "R000-29", "R000-30", "R000-31"), ("test_a_worker_takes_images_through_each_state",)),
    "R000-32": (
        "test_a_waiting_retry_is_ended_by_the_worker_of_a_control_job",
        "tests/extension/test_control_jobs.py::test_a_worker_over_http_withdraws_for_the_job_that_it_holds",
        "tests/extension/test_control_jobs.py::test_a_remote_worker_runs_control_jobs_too",
    ),
    "R000-33": (
        "test_the_transitions_of_a_deployment_are_those_of_the_lifecycle",
        f"{IMAGE_TESTS}/test_http.py::test_a_repeated_upload_with_its_key_is_one_image",
        f"{IMAGE_TESTS}/test_crashes.py::test_a_killed_execution_is_repeated_and_leaves_nothing_behind",
    ),
    "R000-34": (
        "test_repeated_messages_about_ended_jobs_start_nothing_and_are_deleted",
        "tests/dispatch/test_sqs_dispatch.py::test_duplicate_late_unknown_and_malformed_messages_are_deleted",
    ),
    "R000-35": ("test_of_many_workers_one_claims_an_image",),
    "R000-36": (
        f"{IMAGE_TESTS}/test_crashes.py::test_a_killed_execution_is_repeated_and_leaves_nothing_behind",
        f"{IMAGE_TESTS}/test_crashes.py::test_an_execution_that_lost_its_lease_does_not_replace_a_newer_result",
    ),
    "R000-37": ("test_an_ended_image_job_is_never_claimed_nor_moved_again",),
    "R000-38": ("test_a_queued_image_job_neither_completes_nor_fails", "test_a_worker_takes_images_through_each_state"),
    "R000-39": ("test_an_image_is_taken_over_when_its_lock_is_ten_minutes_old",),
    "R000-40": ("test_an_image_is_taken_over_when_its_lock_is_ten_minutes_old",),
    "R000-41": ("test_workers_pick_up_queued_retryable_and_expired_images_only",),
    "R000-42": (
        "test_of_many_workers_one_claims_an_image",
        "test_the_claim_is_one_update_that_matches_the_job_and_its_state",
        "tests/interleaving/test_interleavings.py::test_a_queued_job_goes_to_one_worker_or_is_canceled",
    ),
    "R000-43": ("test_the_claim_is_one_update_that_matches_the_job_and_its_state",),
    "R000-44": (
        "test_the_claim_is_one_update_that_matches_the_job_and_its_state",
        "test_an_image_is_taken_over_when_its_lock_is_ten_minutes_old",
    ),
    "R000-45": (
        "test_the_claim_is_one_update_that_matches_the_job_and_its_state",
        "test_of_many_workers_one_claims_an_image",
    ),
    "R000-46": (
        "test_an_ended_image_job_is_never_claimed_nor_moved_again",
        "test_workers_pick_up_queued_retryable_and_expired_images_only",
    ),
    "R000-47": (
        "test_an_image_is_taken_over_when_its_lock_is_ten_minutes_old",
        "test_the_lock_timeout_is_configurable",
        "tests/pure/test_lifecycles.py::test_lease_heartbeat_and_attempts_are_those_that_were_decided",
    ),
    "R000-48": ("test_the_transitions_of_a_deployment_are_those_of_the_lifecycle",),
    **dict.fromkeys(
        ("R000-49", "R000-50", "R000-51", "R000-52"),
        (
            "test_each_attempt_is_logged_with_its_duration_error_retries_and_state",
            "test_an_attempt_whose_worker_was_killed_is_logged",
            "tests/observe/test_process_logs.py::test_every_log_line_is_json_and_reports_the_outcome_of_jobs",
        ),
    ),
    "R000-53": (
        "test_the_api_counts_requests_by_route",
        f"{SERVER_TESTS}/test_metrics.py::test_a_server_exposes_the_specified_metrics",
    ),
    "R000-54": (
        "test_the_api_counts_requests_by_route",
        f"{SERVER_TESTS}/test_metrics.py::test_a_server_exposes_the_specified_metrics",
    ),
    "R000-55": ("test_the_size_of_uploads_is_measured_by_type",),
    "R000-56": ("test_queries_of_the_api_are_measured_and_their_errors_counted",),
    "R000-57": ("test_queries_of_the_api_are_measured_and_their_errors_counted",),
    **dict.fromkeys(
        ("R000-58", "R000-59"),
        (
            f"{SERVER_TESTS}/test_metrics.py::test_a_server_exposes_the_specified_metrics",
            f"{SERVER_TESTS}/test_metrics.py::test_queries_and_deliveries_are_counted",
        ),
    ),
    "R000-60": (
        "test_the_metrics_of_jobs_match_their_attempts",
        f"{WORKER_TESTS}/test_metrics.py::test_two_processes_report_all_metrics_on_one_port",
    ),
    "R000-61": (
        "test_the_metrics_of_jobs_match_their_attempts",
        f"{WORKER_TESTS}/test_worker_metrics.py::test_waiting_time_is_counted_from_the_time_a_job_is_due",
    ),
    "R000-62": (
        "test_the_metrics_of_jobs_match_their_attempts",
        f"{WORKER_TESTS}/test_worker_metrics.py::test_the_status_label_is_the_state_name_of_the_lifecycle",
    ),
    "R000-63": ("test_images_that_cannot_be_processed_are_counted_by_error",),
    "R000-64": ("test_operations_on_s3_are_measured_and_their_errors_counted",),
    "R000-65": ("test_operations_on_s3_are_measured_and_their_errors_counted",),
    "R000-66": ("test_queries_of_a_worker_are_measured",),
    "R000-67": (f"{WORKER_TESTS}/test_worker_metrics.py::test_a_failed_query_of_a_worker_is_counted",),
    "R000-68": ("test_purges_of_cloudfront_are_measured_and_their_errors_counted",),
    "R000-69": ("test_purges_of_cloudfront_are_measured_and_their_errors_counted",),
    "R000-70": ("test_active_and_waiting_images_are_shown",),
    "R000-71": (
        "test_active_and_waiting_images_are_shown",
        f"{WORKER_TESTS}/test_metrics.py::test_queue_depth_is_reported_once_for_all_processes",
    ),
    "R000-72": ("test_both_pages_have_the_names_labels_and_buckets_of_the_requirements",),
}

PROCESS = ["IMAGE_PROCESS"]
STATES = ("queued", "processing", "completed", "failed_retryable", "failed")
TRANSITIONS = {
    ("queued", "processing"),
    ("processing", "completed"),
    ("processing", "failed_retryable"),
    ("processing", "failed"),
    ("failed_retryable", "processing"),
    ("failed_retryable", "failed"),
}
LOCK_SECONDS = 600


# -- the table ---------------------------------------------------------------------------------------------------------


def test_every_requirement_is_shown_by_a_test_that_exists() -> None:
    RequirementsTable(SHOWN, __file__).check_tests_exist(last=72)


def test_the_tests_of_this_file_name_what_they_show() -> None:
    RequirementsTable(SHOWN, __file__).check_docstrings()


# -- a server, and workers that the test moves -------------------------------------------------------------------------


class Desk(Service):
    """The image service at a time that the test moves, and a worker that does what the test says."""

    clock: MovableClock
    worker: str

    @property
    def engine(self) -> Engine:
        return self.served.engine

    async def claim(self, worker: str = "", **more: Any) -> list[Lease]:
        return await self.engine.claim(worker or self.worker, types=PROCESS, **more)

    async def another(self) -> str:
        return (await self.engine.workers.register()).id

    async def bring(self, state: str) -> dict[str, Any]:
        """An upload whose job is in this state. Claims the oldest job, so a queued one comes last."""
        image = await self.upload(picture(), params=SMALL)
        if state == "queued":
            return image
        [lease] = await self.claim()
        assert lease.id == image["jobId"]
        match state:
            case "completed":
                await self.engine.complete(self.worker, lease.id, lease.token)
            case "failed":
                await self.engine.fail(self.worker, lease.id, lease.token, "corrupt_image", permanent=True)
            case "failed_retryable":
                await self.engine.fail(
                    self.worker, lease.id, lease.token, "storage_unavailable", retry_after_seconds=LOCK_SECONDS
                )
        assert (await self.image(image["imageId"]))["status"] == state
        return {**image, "token": lease.token}

    async def one_of_each(self) -> dict[str, dict[str, Any]]:
        return {state: await self.bring(state) for state in sorted(STATES, key="queued".__eq__)}

    async def moves(self, job_id: str) -> list[tuple[str | None, str, str]]:
        """From, to and by whom, in the words of the API."""
        return [
            (event.from_state and word(event.from_state), word(event.to_state), event.actor)
            for event in await self.engine.reads.history(job_id)
            if event.to_state is not None
        ]


def word(state: str) -> str:
    return IMAGES.words[State(state)]


@asynccontextmanager
async def opened(url: str, folder: Path, clock: MovableClock, **settings: Any) -> AsyncIterator[Desk]:
    app.settings = Settings(database_url=url)
    # No sweep runs while the clock jumps, which would otherwise delay what follows from silence.
    async with serving(url, app=app, clock=clock, startup_grace_seconds=0, **settings) as served:
        desk = Desk(served, folder)
        desk.clock, desk.worker = clock, (await served.engine.workers.register()).id
        yield desk
    await app.close()


@pytest.fixture
def clock() -> MovableClock:
    """Starts now: a worker in this process, whose time nothing moves, must not find a retry due that is not."""
    return MovableClock(Clock().now())


@pytest.fixture
async def desk(store_url: str, tmp_path: Path, clock: MovableClock, images_settings: Sets) -> AsyncIterator[Desk]:
    images_settings(storage_url=str(tmp_path / "objects"))
    async with opened(store_url, tmp_path / "objects", clock) as desk:
        yield desk


# -- states and transitions --------------------------------------------------------------------------------------------


async def test_one_declaration_is_the_lifecycle_of_the_database_the_api_and_the_logs(desk: Desk) -> None:
    """R000-1: what the job carries in the database is that declaration; the API knows its words and no others."""
    assert set(IMAGES.words.values()) == set(STATES)
    image = await desk.upload(picture(), params=SMALL)
    shown = (await desk.served.http.get(f"/api/admin/jobs/{image['jobId']}", headers=ADMIN)).json()
    assert (shown["lifecycle"], shown["state"]) == ("images", "queued")
    [row] = await ask(desk.engine, "SELECT moves FROM holdfast_jobs WHERE id = :id", id=image["jobId"])
    assert row["moves"] == IMAGES.mask
    for status in (*STATES, *(state.value for state in State if state.value not in STATES)):
        answer = await desk.served.http.get("/images", params={"status": status})
        assert answer.status_code == (200 if status in STATES else 422), status


async def test_an_upload_is_a_queued_job_that_survives_its_server(
    store_url: str, tmp_path: Path, clock: MovableClock, images_settings: Sets
) -> None:
    """R000-2, R000-22, R000-23: a row, made by the client in the state `queued`, that any server reads."""
    images_settings(storage_url=str(tmp_path / "objects"))
    async with opened(store_url, tmp_path, clock) as desk:
        image = await desk.upload(picture(), params=SMALL)
    async with opened(store_url, tmp_path, clock) as desk:
        assert (await desk.image(image["imageId"]))["status"] == "queued"
        view = (await desk.served.http.get(f"/jobs/{image['jobId']}")).json()
        assert (view["jobId"], view["status"]) == (image["jobId"], "PENDING")
        assert await desk.moves(image["jobId"]) == [(None, "queued", "client")]
        assert [lease.id for lease in await desk.claim()] == [image["jobId"]]


async def test_a_worker_takes_images_through_each_state(desk: Desk) -> None:
    """R000-6..15, R000-28..31, R000-38: by the routes of workers, and what clients see after each of them."""
    worker = await hand(desk.served)
    good, bad = [await desk.upload(picture(size), params=SMALL) for size in (20, 30)]

    async def claimed(image: dict[str, Any]) -> dict[str, Any]:
        assert (await desk.image(image["imageId"]))["status"] in ("queued", "failed_retryable")
        job = await worker.claim_one(jobTypes=PROCESS)
        assert job["jobId"] == image["jobId"]
        assert (await desk.image(image["imageId"]))["status"] == "processing"
        return job

    job = await claimed(good)
    await worker.told("fail", **held(job), errorCode="storage_unavailable", message="")
    assert (await desk.image(good["imageId"]))["status"] == "failed_retryable"
    job = await claimed(bad)
    await worker.told("fail", **held(job), errorCode="corrupt_image", message="", permanent=True)
    assert (await desk.image(bad["imageId"]))["status"] == "failed"
    desk.clock.advance(60)
    job = await claimed(good)
    await worker.told("complete", **held(job))
    assert (await desk.image(good["imageId"]))["status"] == "completed"

    assert await desk.moves(good["jobId"]) == [
        (None, "queued", "client"),
        ("queued", "processing", "worker"),
        ("processing", "failed_retryable", "worker"),
        ("failed_retryable", "processing", "worker"),
        ("processing", "completed", "worker"),
    ]
    assert (await desk.moves(bad["jobId"]))[-1] == ("processing", "failed", "worker")


async def test_the_database_refuses_forbidden_transitions_of_image_jobs(desk: Desk, store_url: str) -> None:
    """R000-17..21: also as SQL, typed by hand."""
    jobs = {state: image["jobId"] for state, image in (await desk.one_of_each()).items()}
    states = {IMAGES.words[state]: state for state in IMAGES.words}
    forbidden = {(source, target) for source in ("completed", "failed") for target in STATES}
    forbidden |= {("queued", target) for target in ("failed_retryable", "failed", "completed")}
    assert not forbidden & {(word(each.source), word(each.target)) for each in IMAGES.moves}
    async with by_hand.by_hand(store_url) as db:
        for source, target in sorted(forbidden):
            assert await db.refuses(by_hand.move(jobs[source], states[target])) == "HF001", (source, target)


async def test_a_queued_image_job_neither_completes_nor_fails(desk: Desk) -> None:
    """R000-19..21, R000-38: without a claim there is no token that a report could name."""
    image, other = await desk.upload(picture(20), params=SMALL), await desk.upload(picture(30), params=SMALL)
    [lease] = await desk.claim()
    assert lease.id == image["jobId"]
    before = await stored(desk.engine, other["jobId"])
    for report in (
        desk.engine.complete(desk.worker, other["jobId"], lease.token),
        desk.engine.fail(desk.worker, other["jobId"], lease.token, "E"),
        desk.engine.fail(desk.worker, other["jobId"], lease.token, "E", permanent=True),
    ):
        with pytest.raises(LeaseLost):
            await report
    assert await desk.engine.discard(other["jobId"], actor=Actor.WORKER) == []
    assert await stored(desk.engine, other["jobId"]) == before


async def test_an_ended_image_job_is_never_claimed_nor_moved_again(desk: Desk) -> None:
    """R000-17, R000-18, R000-37, R000-46: neither by its last holder, nor by others, nor by the clock."""
    for state in ("completed", "failed"):
        image = await desk.bring(state)
        job_id, token = image["jobId"], image["token"]
        before = await stored(desk.engine, job_id)
        assert await desk.claim() == []
        assert await claim_by_hand(desk, job_id) == []
        for report in (
            desk.engine.release(desk.worker, job_id, token),
            desk.engine.fail(desk.worker, job_id, token, "other"),
            desk.engine.complete(await desk.another(), job_id, token),
        ):
            with pytest.raises(LeaseLost):
                await report
        desk.clock.advance(10 * LOCK_SECONDS)
        assert await desk.engine.maintenance.reap() == []
        assert await desk.claim(limit=9) == []
        assert await stored(desk.engine, job_id) == before


# -- who may do what ---------------------------------------------------------------------------------------------------


async def test_no_request_of_a_client_moves_a_job(desk: Desk) -> None:
    """R000-25..27: its requests create jobs, and nothing else."""
    _, key = await desk.engine.keys.create(NewKey(scopes=["images:read", "images:write", "jobs:create", "jobs:cancel"]))
    http = desk.served.http
    http.headers.update(bearer(key))
    image = await desk.upload(picture(), params=SMALL)
    path = f"/images/{image['imageId']}"
    for method, asked, body in (
        ("POST", f"{path}/reprocess", {}),
        ("POST", f"{path}/cancel", None),
        ("GET", path, None),
        ("DELETE", path, None),
    ):
        assert (await http.request(method, asked, json=body)).status_code in (200, 202), asked
    assert (await http.post(f"/jobs/{image['jobId']}/cancel")).status_code == 409
    lease = {"jobId": image["jobId"], "leaseToken": image["jobId"]}
    for verb, body in (("claim", {}), ("complete", lease), ("fail", {**lease, "errorCode": "E", "message": ""})):
        assert (await http.post(f"/api/worker/{verb}", json=body)).status_code == 403, verb
    jobs = (await desk.engine.reads.page()).jobs
    assert sorted(job.type for job in jobs) == ["IMAGE_CANCEL", "IMAGE_DELETE", "IMAGE_PROCESS", "IMAGE_REPROCESS"]
    for job in jobs:
        assert await desk.moves(job.id) == [(None, "queued", "client")], job.type


async def test_a_waiting_retry_is_ended_by_the_worker_of_a_control_job(desk: Desk) -> None:
    """R000-16, R000-24, R000-32: the request is a job; its worker fails the other one, which stays in the database."""
    image = await desk.bring("failed_retryable")
    wish = (await desk.served.http.post(f"/images/{image['imageId']}/cancel")).json()["jobId"]
    assert (await desk.image(image["imageId"]))["status"] == "failed_retryable", "the request alone moves nothing"
    await run_control_job(desk, wish)
    assert (await desk.moves(image["jobId"]))[-1] == ("failed_retryable", "failed", "worker")
    view = await desk.image(image["imageId"])
    assert (view["status"], view["error"]["code"]) == ("failed", "canceled")
    last = (await desk.engine.reads.history(image["jobId"]))[-1]
    assert last.data["context"] == {"control": "system.cancel", "by": wish}
    assert (await desk.engine.reads.get(wish)).type == "IMAGE_CANCEL"
    assert len(await desk.engine.reads.attempts(image["jobId"])) == 1


async def run_control_job(desk: Desk, job_id: str) -> None:
    async with working(app):
        assert (await desk.job(job_id))["status"] == "COMPLETED"


async def test_a_deletion_ends_the_job_of_its_image(desk: Desk) -> None:
    """R000-24: deleting is a job of another type; the job of the image stays, and says by which job it was ended."""
    image = await desk.bring("failed_retryable")
    wish = (await desk.served.http.delete(f"/images/{image['imageId']}")).json()["jobId"]
    assert (await desk.engine.reads.get(image["jobId"])).state is State.RETRYING
    await run_control_job(desk, wish)
    job = await desk.engine.reads.get(image["jobId"])
    assert (job.state, job.error["code"], job.error["context"]["by"]) == (State.DEAD, "canceled", wish)
    assert (await desk.engine.reads.get(wish)).type == "IMAGE_DELETE"
    assert (await desk.gone(image["imageId"]), desk.files()) == (True, [])


async def test_the_worker_of_a_running_image_is_asked_to_stop(desk: Desk) -> None:
    """R000-24: recorded at once, and the worker hears of it with its next heartbeat."""
    image = await desk.bring("processing")
    wish = (await desk.served.http.post(f"/images/{image['imageId']}/cancel")).json()["jobId"]
    await run_control_job(desk, wish)
    last = (await desk.engine.reads.history(image["jobId"]))[-1]
    assert (last.verb, last.to_state, last.data) == ("cancel", None, {"control": "system.cancel"})
    beat = await desk.engine.heartbeat(desk.worker, [HeldLease(image["jobId"], image["token"])])
    assert beat.cancel == [image["jobId"]]
    await desk.engine.release(desk.worker, image["jobId"], image["token"])
    assert (await desk.moves(image["jobId"]))[-1] == ("processing", "failed", "worker")


# -- claims ------------------------------------------------------------------------------------------------------------


async def test_of_many_workers_one_claims_an_image(desk: Desk) -> None:
    """R000-35, R000-42, R000-45: the others get nothing, and no attempt of theirs is counted."""
    workers = [await desk.another() for _ in range(8)]
    for number in range(5):
        image = await desk.upload(picture(20 + number), params=SMALL)
        claims = await asyncio.gather(*(desk.claim(worker) for worker in workers))
        [lease] = [lease for leases in claims for lease in leases]
        job = await desk.engine.reads.get(image["jobId"])
        assert (lease.id, job.lease_token, job.attempt, job.epoch) == (job.id, lease.token, 1, 1)
        assert [event.verb for event in await desk.engine.reads.history(job.id)] == ["create", "claim"]
    hands: list[Hand] = [await hand(desk.served) for _ in range(2)]
    assert [await each.claim(jobTypes=PROCESS) for each in hands] == [[], []]


async def claim_by_hand(desk: Desk, *ids: str) -> list[Row]:
    """The statement of the claim, for these jobs."""
    ctx = desk.engine.ctx
    holder: dict[str, Any] = {"worker": desk.worker, "instance": None, "limited": None}

    async def claim(tx: Tx) -> list[Row]:
        query = ctx.mine(q.claim_found)
        return await move(tx, ctx, query, actor=Actor.WORKER, ids=[*ids], token_prefix=token_prefix(ctx), **holder)

    return await desk.engine.store.write(claim)


async def test_the_claim_is_one_update_that_matches_the_job_and_its_state(desk: Desk) -> None:
    """R000-42..45: of jobs in all states it changes the waiting ones that it names; no row means no lease."""
    images = await desk.one_of_each()
    other = await desk.bring("queued")
    jobs = {state: image["jobId"] for state, image in images.items()}
    before = {job: await stored(desk.engine, job) for job in (*jobs.values(), other["jobId"])}
    claimed = await claim_by_hand(desk, *jobs.values())
    taken = {jobs["queued"], jobs["failed_retryable"]}
    assert {row["id"] for row in claimed} == taken
    for job, row in before.items():
        assert (await stored(desk.engine, job) == row) == (job not in taken)
    assert await claim_by_hand(desk, *jobs.values()) == [], "they are locked now"


async def test_an_image_is_taken_over_when_its_lock_is_ten_minutes_old(desk: Desk) -> None:
    """R000-39, R000-40, R000-44, R000-47: not a second earlier; what the first worker then reports is refused."""
    image = await desk.bring("processing")
    job = await desk.engine.reads.get(image["jobId"])
    assert job.claimed_at == desk.clock.now()
    assert (job.lease_expires_at - job.claimed_at).total_seconds() == LOCK_SECONDS
    other = await desk.another()
    desk.clock.advance(LOCK_SECONDS - 1)
    assert await desk.claim(other) == []
    desk.clock.advance(1)
    [lease] = await desk.claim(other)
    assert (lease.id, lease.attempt) == (job.id, 2)
    assert lease.token != image["token"]
    with pytest.raises(LeaseLost):
        await desk.engine.complete(desk.worker, job.id, image["token"])
    assert (await desk.image(image["imageId"]))["status"] == "processing"


async def test_workers_pick_up_queued_retryable_and_expired_images_only(desk: Desk) -> None:
    """R000-41, R000-46."""
    expired, retry = await desk.bring("processing"), await desk.bring("failed_retryable")
    desk.clock.advance(LOCK_SECONDS / 2)
    others = [await desk.bring(state) for state in ("processing", "completed", "failed")]
    queued = await desk.bring("queued")
    desk.clock.advance(LOCK_SECONDS / 2)
    before = [await stored(desk.engine, image["jobId"]) for image in others]
    claimed = await desk.claim(await desk.another(), limit=9)
    assert {lease.id for lease in claimed} == {image["jobId"] for image in (expired, retry, queued)}
    assert [await stored(desk.engine, image["jobId"]) for image in others] == before


@pytest.mark.parametrize("seconds", [60, 1200])
async def test_the_lock_timeout_is_configurable(
    store_url: str, tmp_path: Path, clock: MovableClock, images_settings: Sets, seconds: int
) -> None:
    """R000-47."""
    images_settings(storage_url=str(tmp_path / "objects"))
    async with opened(store_url, tmp_path, clock, lease_seconds=seconds) as desk:
        image, other = await desk.bring("processing"), await desk.another()
        desk.clock.advance(seconds - 1)
        assert await desk.claim(other) == []
        desk.clock.advance(1)
        assert [lease.id for lease in await desk.claim(other)] == [image["jobId"]]


# -- metrics and logs of the API ---------------------------------------------------------------------------------------


async def scraped(desk: Desk) -> Page:
    return Page((await desk.served.http.get("/metrics")).text)


async def test_the_size_of_uploads_is_measured_by_type(desk: Desk) -> None:
    """R000-55: a body that is the image, and the file of a form, whatever type the client says; in the buckets of the
    requirement."""
    raw, of_form = padded(1024), padded(1_048_577, "JPEG")
    await desk.upload(raw, headers={"content-type": "image/png"}, params=SMALL)
    file = {"file": ("photo.txt", of_form, "text/plain")}
    assert (await desk.served.http.post("/images", files=file, data=SMALL)).status_code == 202
    page = await scraped(desk)
    for kind, size in (("image/png", 1024), ("image/jpeg", 1_048_577)):
        assert page.value("upload_size_bytes_count", mime_type=kind) == 1
        assert page.value("upload_size_bytes_sum", mime_type=kind) == size
        buckets = {
            float(sample.labels["le"]): sample.value
            for sample in page.families["upload_size_bytes"].samples
            if sample.labels["mime_type"] == kind and "le" in sample.labels
        }
        assert buckets == {bound: size <= bound for bound in (*BYTES, float("inf"))}, kind


def padded(size: int, kind: str = "PNG") -> bytes:
    """A picture followed by bytes that decoders ignore."""
    return picture(20, 20, kind).ljust(size, b"\0")


async def test_queries_of_the_api_are_measured_and_their_errors_counted(desk: Desk) -> None:
    """R000-56, R000-57: by operation and table, also those of the service; the error is the code of the database."""
    image = await desk.upload(picture(), params=SMALL)
    page, queries = await scraped(desk), "db_query_duration_seconds_count"
    for table in ("holdfast_images_image", "holdfast_jobs"):
        assert page.value(queries, operation="insert", table=table) == 1, table
    await ask(desk.engine, "ALTER TABLE holdfast_images_variant RENAME TO elsewhere")
    assert (await desk.served.http.get(f"/images/{image['imageId']}")).status_code == 503
    page = await scraped(desk)
    code = "42P01" if isinstance(desk.engine.store, PostgresStore) else "SQLITE_ERROR"
    failed = {"operation": "select", "table": "holdfast_images_variant"}
    assert page.value("db_query_error_total", **failed, error_code=code) == 1
    assert page.value(queries, **failed) == 1


async def test_an_attempt_whose_worker_was_killed_is_logged(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R000-49..52: by the process that frees the job: how long it ran, why it ended, its number, and the state."""
    image = await desk.upload(picture(), params=SMALL)
    with hearing(tmp_path) as heard:
        caplog.set_level(logging.INFO, "holdfast.attempts")
        desk.engine.ctx.observers.append(TransitionLog(heard.log, desk.engine.ctx.lifecycles))
        assert len(await desk.claim(instance="killed")) == 1
        desk.clock.advance(7)
        assert len(await desk.engine.maintenance.reap(gone=["killed"])) == 1
        claimed, reaped = heard.about(image["jobId"])
    [line] = [record.getMessage() for record in caplog.records if record.name == "holdfast.attempts"]
    assert line == f"job {image['jobId']} (IMAGE_PROCESS), attempt 1, lost after 7.000 s"
    assert (claimed["from"], claimed["to"]) == ("queued", "processing")
    told = {name: reaped[name] for name in ("from", "to", "reason", "attempt", "level")}
    assert told == {
        "from": "processing",
        "to": "failed_retryable",
        "reason": "worker_died",
        "attempt": 1,
        "level": "warning",
    }
    page, labels = await scraped(desk), {"job_type": "IMAGE_PROCESS", "outcome": "lost"}
    assert page.value("holdfast_attempt_seconds_sum", **labels) == pytest.approx(7)


# -- a whole deployment ------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow])],
)
async def story(
    postgres_server_url: str,
    postgres_template: str,
    postgres_operator: psycopg.Connection,
    s3_server: S3Server,
    aws_process: AwsServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Story]:
    """It is told once, and read by all tests below."""
    if not aws_process.running:
        aws_process.start()
    folder, name = tmp_path_factory.mktemp("story"), f"hf_story_{secrets.token_hex(4)}"
    postgres_operator.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    try:
        with pytest.MonkeyPatch.context() as patch:
            told = await story_of(with_database(postgres_server_url, name), s3_server, aws_process, folder, patch)
        yield told
    finally:
        postgres_operator.execute(f"DROP DATABASE {name} WITH (FORCE)")


def transitions(told: Told) -> list[tuple[str, str]]:
    return [(word(each.from_state), word(each.to_state)) for each in told.events if each.from_state and each.to_state]


def test_the_transitions_of_a_deployment_are_those_of_the_lifecycle(story: Story) -> None:
    """R000-11..15, R000-33, R000-48: an unreachable storage and a killed process; one completion."""
    retry = [("processing", "failed_retryable"), ("failed_retryable", "processing")]
    retries = len(story.good.attempts) - 1
    assert retries >= 2
    assert transitions(story.good) == [("queued", "processing"), *retry * retries, ("processing", "completed")]
    assert transitions(story.broken) == [("queued", "processing"), ("processing", "failed")]
    for told in story.all:
        assert set(transitions(told)) <= TRANSITIONS
        assert {each.actor for each in told.events if each.from_state and each.to_state} == {"worker"}


def test_every_attempt_is_recorded(story: Story) -> None:
    """R000-3: each with its worker, its time and its outcome, one after the other."""
    *failed, last = story.good.attempts
    assert {each.reason for each in failed} == {"storage_unavailable", "E_CRASHED"}
    assert (last.outcome, last.to_state, last.reason) == ("succeeded", "succeeded", None)
    assert [each.attempt for each in story.good.attempts] == [*range(1, len(failed) + 2)]
    times = [time for each in story.good.attempts for time in (each.started_at, each.ended_at)]
    assert times == sorted(times)
    assert all(each.worker_id for each in story.good.attempts)
    [broken] = story.broken.attempts
    assert (broken.outcome, broken.to_state, broken.error["code"]) == ("failed", "dead", "corrupt_image")


def test_repeated_messages_about_ended_jobs_start_nothing_and_are_deleted(story: Story) -> None:
    """R000-4, R000-5, R000-34: many for each job, through SQS."""
    received = [
        story.worker.value("holdfast_hints_total", way="received", outcome=outcome) or 0
        for outcome in ("woke", "claimed")
    ]
    assert sum(received) >= 2 * HINTS
    assert story.hints_left == 0
    for told in (story.good, story.broken):
        assert [each.verb for each in told.events].count("claim") == len(told.attempts)
        assert told.events[-1].verb in ("complete", "fail")
        assert told.job.attempt == len(told.attempts)


def test_each_attempt_is_logged_with_its_duration_error_retries_and_state(story: Story) -> None:
    """R000-49..52: one line for each attempt; also where the storage was gone, and where the process was killed."""
    for told in story.all:
        lines = told.lines("holdfast.attempts")
        assert len(lines) == len(told.attempts) > 0
        for line, attempt in zip(lines, told.attempts, strict=True):
            took = (attempt.ended_at - attempt.started_at).total_seconds()
            assert 0 < line["seconds"] <= took + 0.1
            assert (line["job_type"], line["attempt"]) == (told.job.type, attempt.attempt)
            assert (line["retries"], line["state"]) == (attempt.attempt - 1, word(attempt.to_state))
            assert line.get("error_code") == attempt.reason
            assert bool(line.get("error")) == (attempt.outcome == "failed")
    killed = next(line for line in story.good.lines("holdfast.attempts") if line.get("error_code") == "E_CRASHED")
    assert "SIGKILL" in killed["error"]


def test_the_metrics_of_jobs_match_their_attempts(story: Story) -> None:
    """R000-60..62: number and duration, by type and by the word of the state; and how long each attempt had waited."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for told in story.all:
        for line in told.lines("holdfast.attempts"):
            seconds.setdefault((line["job_type"], line["state"]), []).append(line["seconds"])
    assert {state for job_type, state in seconds if job_type == "IMAGE_PROCESS"} == {
        *("completed", "failed_retryable", "failed"),
    }
    for (job_type, status), each in seconds.items():
        labels = {"job_type": job_type, "status": status}
        assert story.worker.value("job_processed_total", **labels) == len(each)
        assert story.worker.value("job_processing_duration_seconds_count", **labels) == len(each)
        total = story.worker.value("job_processing_duration_seconds_sum", **labels)
        assert total == pytest.approx(sum(each), abs=0.001)
    attempts = len(story.good.attempts) + len(story.broken.attempts)
    assert story.worker.value("job_queue_latency_milliseconds_count", job_type="IMAGE_PROCESS") == attempts
    claimed = next(each.at for each in story.broken.events if each.verb == "claim")
    waited = 1000 * (claimed - story.broken.job.created_at).total_seconds()
    assert (story.worker.value("job_queue_latency_milliseconds_sum", job_type="IMAGE_PROCESS") or 0) >= waited > 0


def test_active_and_waiting_images_are_shown(story: Story) -> None:
    """R000-70, R000-71: a worker with one slot, and two images."""
    assert story.waiting.value("job_active_count", job_type="IMAGE_PROCESS") == 1
    assert story.waiting.value("job_queue_depth", job_type="IMAGE_PROCESS") == 1
    assert story.waiting.value("job_queue_depth", job_type="IMAGE_DELETE") == 0
    assert story.worker.value("job_active_count", job_type="IMAGE_PROCESS") == 0


def test_images_that_cannot_be_processed_are_counted_by_error(story: Story) -> None:
    """R000-63: counted in child processes, also in the one that was killed, and shown by the worker."""
    reasons = Counter(each.reason for told in (story.good, story.broken) for each in told.attempts if each.reason)
    assert {"corrupt_image", "E_CRASHED", "storage_unavailable"} == reasons.keys()
    for reason, count in reasons.items():
        assert story.worker.value("image_processing_errors_total", error_type=reason) == count


def test_operations_on_s3_are_measured_and_their_errors_counted(story: Story) -> None:
    """R000-64, R000-65: by operation and bucket, in child processes and in the worker; uploads by the server."""

    def count(page: Page, operation: str) -> float:
        return page.value("s3_operation_duration_seconds_count", operation=operation, bucket=BUCKET) or 0

    attempts = [*story.good.attempts, *story.broken.attempts]
    deletions = [*story.deletion.attempts, *story.failed_deletion.attempts]
    failures = len([each for each in attempts if each.reason == "storage_unavailable"])
    unreported = [0, 1]  # what the killed process had counted since its last report is lost
    # Each attempt looks for one object: the original, before it is read, or the mark, before objects are deleted.
    assert len(attempts) + len(deletions) - count(story.worker, "head") in unreported
    assert len(attempts) - failures - count(story.worker, "get") in unreported
    assert (count(story.worker, "put"), count(story.worker, "delete")) == (1, len(deletions))
    # The first upload makes the mark and looks for it afterwards; the second one looks before and afterwards.
    assert (count(story.server, "put"), count(story.server, "head")) == (3, 3)
    labels = {"operation": "head", "bucket": BUCKET, "error_code": "storage_unavailable"}
    assert story.worker.value("s3_operation_errors_total", **labels) == failures > 0
    assert len(story.worker.families["s3_operation_errors_total"].samples) == 1


def test_queries_of_a_worker_are_measured(story: Story) -> None:
    """R000-66."""
    claims = len(story.good.attempts) + len(story.broken.attempts)
    for query in ("claim_found", "held_jobs"):
        assert (story.worker.value("db_query_duration_seconds_count", query_type=query) or 0) >= claims, query
        assert (story.worker.value("db_query_duration_seconds_sum", query_type=query) or 0) > 0, query


def test_purges_of_cloudfront_are_measured_and_their_errors_counted(story: Story) -> None:
    """R000-68, R000-69: of two deleted images; when the second one was, the distribution did not exist any more."""
    labels = {"operation": "create_invalidation"}
    assert story.deletion.job.state is State.SUCCEEDED
    assert story.worker.value("cloudfront_operation_duration_seconds_count", **labels) == 2
    assert story.worker.value("cloudfront_operation_errors_total", **labels, error_code="NoSuchDistribution") == 1
    assert (story.failed_deletion.job.state, story.failed_deletion.job.reason) == (State.DEAD, "cdn_not_found")


def test_the_api_counts_requests_by_route(story: Story) -> None:
    """R000-53, R000-54: routes of the service by their templates."""
    for method, route in (("POST", "/images"), ("DELETE", "/images/{imageId}")):
        labels = {"method": method, "route": route, "status_code": "202"}
        assert story.server.value("http_requests_total", **labels) == 2
        assert story.server.value("http_request_duration_seconds_count", **labels) == 2
        assert (story.server.value("http_request_duration_seconds_sum", **labels) or 0) > 0


def test_both_pages_have_the_names_labels_and_buckets_of_the_requirements(story: Story) -> None:
    """R000-72: as Prometheus reads them."""
    check_form(story.worker)
    assert {name for name in LIST if name.startswith(("image_", "s3_", "cloudfront_"))} == {
        name
        for name in LIST
        if name.startswith(("image_", "s3_", "cloudfront_")) and story.worker.families[name].samples
    }
    for name, (kind, labels, buckets) in REQUIRED.items():
        family = story.server.families[name]
        assert family.type == kind, name
        assert all(sample.labels.keys() - {"le"} == {*labels} for sample in family.samples), name
        bounds = {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}
        assert bounds in ({*buckets, float("inf")}, set()), name
