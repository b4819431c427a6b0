"""Each requirement on the lifecycle of a generation, and where it is shown.

Those that no other test shows as a whole are shown here, on the service with a worker that the test moves by hand.
"""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.lifecycle import FINAL, Actor, State
from holdfast.model import Lease
from holdfast.store.queries import Query
from holdfast.workloads.generation.guard import prompt_guard
from holdfast.workloads.generation.lifecycle import GENERATION
from tests.engine.steps import ask, held, stored, sweep
from tests.server.steps import ADMIN
from tests.store import by_hand
from tests.workloads.generation.steps import BLOCKED, Service, Sets
from tests.workloads.requirements import RequirementsTable

HERE, PURE = "tests/workloads/generation", "tests/pure/test_lifecycles.py"

# A name alone is a test of this file.
SHOWN: dict[str, tuple[str, ...]] = {
    "R004-1": (
        "test_the_api_and_the_database_have_these_six_states",
        f"{PURE}::test_a_lifecycle_has_exactly_the_state_names_of_its_document",
    ),
    "R004-2": (
        "test_the_transitions_are_these_and_no_others",
        "test_a_queued_generation_is_rejected_when_the_lists_have_changed",
        f"{HERE}/test_refusals.py::test_a_word_that_was_listed_meanwhile_rejects_at_dispatch",
    ),
    "R004-3": ("test_the_transitions_are_these_and_no_others", "test_a_worker_takes_generations_through_each_state"),
    "R004-4": (
        "test_what_has_ended_never_moves_again",
        "test_an_image_of_the_provider_is_stored_listed_and_linked",
    ),
    "R004-5": (
        "test_the_transitions_are_these_and_no_others",
        "test_a_worker_takes_generations_through_each_state",
        f"{PURE}::test_a_retry_is_claimed_directly_or_queued_as_its_document_says",
    ),
    "R004-6": (
        "test_what_has_ended_never_moves_again",
        "test_a_queued_generation_is_rejected_when_the_lists_have_changed",
        f"{HERE}/test_provider_faults.py::test_a_verdict_of_the_provider_is_a_rejection",
    ),
    "R004-7": (
        "test_what_has_ended_never_moves_again",
        "test_failures_are_retried_with_growing_pauses_until_none_is_left",
        f"{HERE}/test_ledger.py::test_a_redrive_reserves_again_and_the_request_counts_both",
    ),
    "R004-8": (
        "test_a_request_is_a_job_with_reserved_credits",
        f"{HERE}/test_http.py::test_a_generation_is_made",
        f"{HERE}/test_generic_jobs.py::test_a_job_is_a_generation_of_the_caller",
    ),
    "R004-9": (
        "test_a_request_passes_all_guards_or_leaves_nothing",
        f"{HERE}/test_refusals.py::test_a_blocked_prompt_leaves_one_audit_entry",
        f"{HERE}/test_generic_jobs.py::test_guards_and_their_audit_are_the_same",
    ),
    "R004-10": (
        "test_a_request_passes_all_guards_or_leaves_nothing",
        f"{HERE}/test_refusals.py::test_the_quota_of_a_day",
        f"{HERE}/test_refusals.py::test_the_quota_of_a_month",
    ),
    "R004-11": (
        "test_the_key_is_made_of_user_prompt_parameters_and_minute",
        f"{HERE}/test_repeats.py::test_a_double_click_is_one_generation",
    ),
    "R004-12": (
        "test_a_request_is_a_job_with_reserved_credits",
        f"{HERE}/test_ledger.py::test_a_generation_reserves_and_its_success_commits_what_was_made",
        f"{HERE}/test_ledger.py::test_a_batch_is_reserved_as_a_whole_or_not_at_all",
    ),
    "R004-13": ("test_each_pickup_has_its_start",),
    "R004-14": ("test_heartbeats_keep_a_generation_and_silence_loses_it",),
    "R004-15": (
        f"{HERE}/test_openai_provider.py::test_an_image_is_downloaded_without_the_key_of_the_api",
        f"{HERE}/test_poll_provider.py::test_an_order_is_created_and_polled",
        f"{HERE}/test_execution.py::test_images_are_made_stored_and_charged_once",
    ),
    "R004-16": (
        "test_an_image_of_the_provider_is_stored_listed_and_linked",
        f"{HERE}/test_execution.py::test_images_are_made_stored_and_charged_once",
    ),
    "R004-17": ("test_an_image_of_the_provider_is_stored_listed_and_linked",),
    "R004-18": ("test_an_image_of_the_provider_is_stored_listed_and_linked",),
    "R004-19": (
        "test_failures_are_retried_with_growing_pauses_until_none_is_left",
        f"{HERE}/test_provider_faults.py::test_a_fault_ends_in_its_class",
        f"{HERE}/test_provider_faults.py::test_timeouts_are_retried_with_the_same_key",
        f"{HERE}/test_openai_provider.py::test_an_error_has_a_code_and_says_whether_retrying_helps",
    ),
    "R004-20": ("test_failures_are_retried_with_growing_pauses_until_none_is_left",),
    "R004-21": (
        "test_failures_are_retried_with_growing_pauses_until_none_is_left",
        f"{PURE}::test_backoff_is_exponential_with_full_jitter_except_for_transcode",
    ),
    "R004-22": ("test_failures_are_retried_with_growing_pauses_until_none_is_left",),
    "R004-23": (
        "test_failures_are_retried_with_growing_pauses_until_none_is_left",
        f"{HERE}/test_provider_faults.py::test_a_dead_letter_releases_all_credits",
    ),
    "R004-24": (
        "test_a_rejection_by_the_provider_is_not_refunded",
        f"{HERE}/test_provider_faults.py::test_a_verdict_of_the_provider_is_a_rejection",
        f"{HERE}/test_provider_faults.py::test_a_prediction_that_is_unsafe_is_a_rejection",
        f"{HERE}/test_openai_provider.py::test_verdicts_of_safety_systems_are_rejections",
    ),
    "R004-25": (
        "test_a_rejection_by_the_provider_is_not_refunded",
        "test_a_queued_generation_is_rejected_when_the_lists_have_changed",
        f"{HERE}/test_ledger.py::test_a_rejection_forfeits_everything",
    ),
    "R004-26": (
        "test_a_rejection_by_the_provider_is_not_refunded",
        "test_a_queued_generation_is_rejected_when_the_lists_have_changed",
        "test_a_request_passes_all_guards_or_leaves_nothing",
    ),
    "R004-27": (
        "test_the_key_is_made_of_user_prompt_parameters_and_minute",
        f"{HERE}/test_repeats.py::test_the_minute_and_the_next_one_are_the_same",
        f"{HERE}/test_repeats.py::test_other_parameters_are_another_generation",
        f"{HERE}/test_repeats.py::test_the_same_request_of_two_users_is_two",
    ),
    "R004-28": (
        "test_a_repeat_gets_the_existing_id_unless_it_failed",
        f"{HERE}/test_repeats.py::test_a_rejected_request_keeps_its_key",
        f"{HERE}/test_repeats.py::test_after_a_dead_letter_the_request_is_a_new_one",
    ),
    "R004-29": (
        "test_a_repeat_gets_the_existing_id_unless_it_failed",
        "test_the_key_is_made_of_user_prompt_parameters_and_minute",
        f"{HERE}/test_repeats.py::test_a_double_click_is_one_generation",
        f"{HERE}/test_ledger.py::test_a_repeated_request_reserves_once",
    ),
}

RUN = ["GENERATION_RUN"]
STATES = ("queued", "running", "completed", "failed", "rejected", "dead_letter")
MAX_RETRIES = GENERATION.policy.max_attempts - 1


# -- the table ---------------------------------------------------------------------------------------------------------


def test_every_requirement_is_shown_by_a_test_that_exists() -> None:
    RequirementsTable(SHOWN, __file__).check_tests_exist(last=29)


def test_the_tests_of_this_file_name_what_they_show() -> None:
    RequirementsTable(SHOWN, __file__).check_docstrings()


# -- a worker that the test moves --------------------------------------------------------------------------------------


@dataclass
class Desk:
    """The service, and a worker that does what the test says."""

    service: Service
    worker: str

    @property
    def engine(self) -> Engine:
        return self.service.served.engine

    async def claim(self) -> Lease:
        [lease] = await self.engine.claim(self.worker, types=RUN)
        return lease

    async def fail(self, lease: Lease, code: str = "provider_timeout", **more: Any) -> None:
        await self.engine.fail(self.worker, lease.id, lease.token, code, **more)

    async def reject(self, lease: Lease) -> None:
        await self.engine.reject(self.worker, lease.id, lease.token, "provider_rejected", "unsafe")

    async def status(self, generation_id: str) -> str:
        return str((await self.service.generation(generation_id))["status"])

    async def bring(self, state: str, prompt: str = "") -> str:
        """The id of a generation in this state. Claims the oldest, so a queued one comes last."""
        accepted = await self.service.accepted(prompt or f"a {state} house")
        id_: str = accepted["generationId"]
        if state != "queued":
            lease = await self.claim()
            assert lease.id == accepted["jobId"]
            match state:
                case "completed":
                    await self.engine.complete(self.worker, lease.id, lease.token)
                case "failed":
                    await self.fail(lease, retry_after_seconds=600)
                case "rejected":
                    await self.reject(lease)
                case "dead_letter":
                    await self.fail(lease, "provider_refused", permanent=True)
        assert await self.status(id_) == state
        return id_

    async def one_of_each(self) -> dict[str, str]:
        return {state: await self.bring(state) for state in sorted(STATES, key="queued".__eq__)}

    async def moves(self, job_id: str) -> list[tuple[str, str, str]]:
        """From, to and by whom, in the words of the API."""
        return [
            (word(event.from_state), word(event.to_state), event.actor)
            for event in await self.engine.reads.history(job_id)
            if event.from_state is not None and event.to_state is not None
        ]


def word(state: str) -> str:
    return GENERATION.words[State(state)]


@pytest.fixture
async def desk(service: Service) -> Desk:
    return Desk(service, (await service.served.engine.workers.register()).id)


# -- states and transitions --------------------------------------------------------------------------------------------


async def test_the_api_and_the_database_have_these_six_states(desk: Desk) -> None:
    """R004-1: what the job carries in the database is that declaration; the API knows its words and no others."""
    assert set(GENERATION.words.values()) == set(STATES)
    jobs = await desk.one_of_each()
    [row] = await ask(desk.engine, "SELECT moves FROM holdfast_jobs WHERE id = :id", id=jobs["queued"])
    assert row["moves"] == GENERATION.mask
    for state, id_ in jobs.items():
        [found] = (await desk.service.get("/generations", status=state))["generations"]
        assert found["generationId"] == id_
        shown = (await desk.service.http.get(f"/api/admin/jobs/{id_}", headers=ADMIN)).json()
        assert (shown["lifecycle"], shown["state"]) == ("generation", state)
    assert (await desk.service.refused("GET", "/generations", params={"status": "succeeded"}))[0] == 422


def test_the_transitions_are_these_and_no_others() -> None:
    """R004-2, R004-3, R004-5: those of the requirements, and a release, a loss on the last attempt and a cancel."""
    declared = {(GENERATION.words[move.source], GENERATION.words[move.target]) for move in GENERATION.moves}
    required = {("queued", "running"), ("queued", "rejected"), ("running", "completed"), ("running", "failed")}
    required |= {("running", "rejected"), ("failed", "queued"), ("failed", "dead_letter")}
    assert declared - required == {("running", "queued"), ("running", "dead_letter"), ("queued", "dead_letter")}
    assert required <= declared
    canceled = {move.source for move in GENERATION.moves if move.target is State.CANCELED and move.verb == "cancel"}
    assert canceled == {State.QUEUED, State.RETRYING, State.RUNNING}


async def test_a_worker_takes_generations_through_each_state(desk: Desk) -> None:
    """R004-3, R004-5: a failed generation is queued again when its pause is over, and then runs."""
    id_ = await desk.bring("failed")
    desk.service.clock.advance(601)
    await desk.engine.maintenance.requeue_due()
    assert await desk.status(id_) == "queued"
    lease = await desk.claim()
    assert await desk.status(id_) == "running"
    await desk.engine.complete(desk.worker, lease.id, lease.token)
    assert await desk.moves(id_) == [
        ("queued", "running", Actor.WORKER),
        ("running", "failed", Actor.WORKER),
        ("failed", "queued", Actor.SYSTEM),
        ("queued", "running", Actor.WORKER),
        ("running", "completed", Actor.WORKER),
    ]


async def test_what_has_ended_never_moves_again(desk: Desk, store_url: str) -> None:
    """R004-4, R004-6, R004-7: also as SQL, typed by hand; a redrive is a new job."""
    ended = [await desk.bring(state) for state in ("completed", "rejected", "dead_letter")]
    canceled = (await desk.service.accepted("a canceled house"))["jobId"]
    await desk.engine.cancel(canceled)
    before = [await stored(desk.engine, id_) for id_ in (*ended, canceled)]
    async with by_hand.by_hand(store_url) as db:
        for id_, state in zip((*ended, canceled), (*sorted(FINAL - {State.CANCELED}), State.CANCELED), strict=True):
            for target in set(State) - {state}:
                assert await db.refuses(by_hand.move(id_, target)) == "HF001", (state, target)
    assert [await stored(desk.engine, id_) for id_ in (*ended, canceled)] == before
    assert await desk.engine.claim(desk.worker, types=RUN) == []


# -- creation ----------------------------------------------------------------------------------------------------------


async def test_a_request_is_a_job_with_reserved_credits(desk: Desk) -> None:
    """R004-8, R004-12: one transaction makes the job, the generation and the reservation."""
    accepted = await desk.service.accepted(count=3)
    assert accepted["creditsReserved"] == 3
    job = await desk.engine.reads.get(accepted["jobId"])
    assert (job.type, job.state, job.lifecycle) == ("GENERATION_RUN", State.QUEUED, "generation")
    assert job.payload["user"] == "default"
    assert await desk.service.credits() == (100, 3, 97)
    assert await desk.service.statement() == [("grant", 100), ("reserve", 3)]


async def test_a_request_passes_all_guards_or_leaves_nothing(desk: Desk, generation_settings: Sets) -> None:
    """R004-9, R004-10, R004-26: one line of the audit log each, and no other row."""
    generation_settings(starting_credits=3, quota_per_day=4, storage_url=str(desk.service.folder))
    await desk.service.accepted(count=2)
    before = {name: rows for name, rows in desk.service.rows().items() if "audit" not in name}
    assert await desk.service.rejected(f"a {BLOCKED}") == (422, "prompt_rejected")
    assert await desk.service.rejected("two more", count=2) == (402, "insufficient_credits")
    assert await desk.service.rejected("three more", count=3) == (429, "quota_exceeded")
    assert {name: rows for name, rows in desk.service.rows().items() if "audit" not in name} == before
    assert await desk.service.audit() == ["SAFE_BLOCK", "INSUFFICIENT_CREDITS", "QUOTA_EXCEEDED"]


# -- execution ---------------------------------------------------------------------------------------------------------


async def test_each_pickup_has_its_start(desk: Desk) -> None:
    """R004-13: each attempt has its own; that of the generation is the first one."""
    id_ = (await desk.service.accepted())["generationId"]
    for _ in range(2):
        desk.service.clock.advance(5)
        lease = await desk.claim()
        await desk.fail(lease)
        await desk.engine.wake(id_, tenant="default")
    first, second = [attempt.started_at for attempt in await desk.engine.reads.attempts(id_)]
    assert second > first
    shown = (await desk.service.generation(id_))["startedAt"]
    assert shown.rstrip("Z") == first.isoformat().removesuffix("+00:00")


async def test_heartbeats_keep_a_generation_and_silence_loses_it(desk: Desk) -> None:
    """R004-14: a lease of 30 seconds; a lost attempt is a failed one."""
    id_ = (await desk.service.accepted())["generationId"]
    lease = await desk.claim()
    for _ in range(4):
        assert await sweep(desk.engine, desk.service.clock, 20) == []
        await desk.engine.heartbeat(desk.worker, [held(lease)])
    assert await desk.status(id_) == "running"
    [lost] = await sweep(desk.engine, desk.service.clock, 40)
    assert lost["id"] == id_
    generation = await desk.service.generation(id_)
    assert (generation["status"], generation["error"]["code"]) == ("failed", "timeout_soft")


async def test_an_image_of_the_provider_is_stored_listed_and_linked(service: Service) -> None:
    """R004-4, R004-16..18: below `originals`, in the library, and by a URL that needs no key."""
    made = await service.made("a lighthouse", seed=7)
    assert made["status"] == "completed"
    [asset] = made["assets"]
    assert made["resultUrl"] == asset["url"]
    [file] = service.files("originals/")
    data = (service.folder / file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == asset["sha256"]
    [listed] = (await service.get("/assets", search="lighthouse"))["assets"]
    assert (listed["assetId"], listed["generationId"]) == (asset["assetId"], made["generationId"])
    shown = await service.http.get(made["resultUrl"])
    assert (shown.status_code, shown.headers["content-type"], shown.content) == (200, "image/png", data)


# -- failures and rejections -------------------------------------------------------------------------------------------


async def test_failures_are_retried_with_growing_pauses_until_none_is_left(desk: Desk) -> None:
    """R004-7, R004-19..23: each failure counts, each retry waits at most twice as long, the last one is final."""
    policy, id_ = GENERATION.policy, (await desk.service.accepted())["generationId"]
    longest = []
    for retries in range(MAX_RETRIES):
        await desk.fail(await desk.claim(), "provider_timeout" if retries % 2 else "provider_unavailable")
        generation = await desk.service.generation(id_)
        assert (generation["status"], generation["retryCount"]) == ("failed", retries)
        longest.append(policy.backoff_base_seconds * policy.backoff_factor**retries)
        desk.service.clock.advance(longest[-1])
        await desk.engine.maintenance.requeue_due()
        assert await desk.status(id_) == "queued"
    assert all(later == 2 * sooner for sooner, later in pairwise(longest))
    await desk.fail(await desk.claim())
    ended = await desk.service.generation(id_)
    assert (ended["status"], ended["retryCount"]) == ("dead_letter", MAX_RETRIES)
    assert ended["error"]["code"] == "provider_timeout"
    assert await desk.service.credits() == (100, 0, 100)


async def test_a_rejection_by_the_provider_is_not_refunded(desk: Desk) -> None:
    """R004-24..26: forfeited, and in the audit log, whose chain of digests is intact."""
    id_ = (await desk.service.accepted(count=2))["generationId"]
    await desk.reject(await desk.claim())
    generation = await desk.service.generation(id_)
    assert (generation["status"], generation["error"]["code"]) == ("rejected", "provider_rejected")
    assert generation["creditsCharged"] == 2
    assert await desk.service.credits() == (98, 0, 98)
    assert (await desk.service.statement())[-1] == ("forfeit", 2)
    [line] = await desk.service.audit_lines()
    assert (line["action"], line["subject"], line["detail"]["job"]) == ("SAFE_BLOCK", "default", id_)
    assert (await desk.service.http.get("/api/admin/audit/verify", headers=ADMIN)).json()["valid"]


async def test_a_queued_generation_is_rejected_when_the_lists_have_changed(
    desk: Desk, tmp_path: Path, generation_settings: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R004-2, R004-6, R004-25, R004-26: by the guard, when a worker would take it; it never runs."""
    monkeypatch.setattr(prompt_guard, "CHECK_SECONDS", 0)
    words = tmp_path / "words.txt"
    words.write_text("")
    generation_settings(blocklist_file=str(words), storage_url=str(desk.service.folder))
    id_ = (await desk.service.accepted("a zeppelin at dawn"))["generationId"]
    words.write_text("zeppelin\n")
    assert await desk.engine.claim(desk.worker, types=RUN) == []
    generation = await desk.service.generation(id_)
    assert (generation["status"], generation["error"]["code"]) == ("rejected", "prompt_rejected")
    assert "startedAt" not in generation
    assert await desk.moves(id_) == [("queued", "rejected", Actor.SYSTEM)]
    assert await desk.service.credits() == (99, 0, 99)
    assert await desk.service.audit() == ["SAFE_BLOCK"]


# -- idempotency -------------------------------------------------------------------------------------------------------


async def test_the_key_is_made_of_user_prompt_parameters_and_minute(desk: Desk) -> None:
    """R004-11, R004-27, R004-29: within a minute and the next one a repeat is the same job; later it is another one."""
    alice, bob = await desk.service.user("alice"), await desk.service.user("bob")
    first = await alice.accepted("a pier")
    assert (await alice.accepted(" a  pier "))["jobId"] == first["jobId"]
    others = [await bob.accepted("a pier"), await alice.accepted("a Pier"), await alice.accepted("a pier", seed=1)]
    desk.service.clock.advance(60)
    assert (await alice.accepted("a pier"))["jobId"] == first["jobId"]
    desk.service.clock.advance(60)
    others.append(await alice.accepted("a pier"))
    ids = {one["jobId"] for one in (first, *others)}
    assert len(ids) == 5
    keys = await desk.engine.store.read(lambda tx: tx.all(KEYS))
    assert {row["id"] for row in keys if row["idempotency_key"].startswith("derived-")} == ids
    assert await alice.credits() == (100, 4, 96)


KEYS = Query("keys_of_jobs", "SELECT id, idempotency_key FROM holdfast_jobs")


async def test_a_repeat_gets_the_existing_id_unless_it_failed(desk: Desk) -> None:
    """R004-28, R004-29: whatever state it is in, and nothing is charged again."""
    for state in STATES:
        if state == "queued":
            continue
        id_ = await desk.bring(state, f"the {state} one")
        before = await desk.service.credits()
        again = await desk.service.accepted(f"the {state} one")
        assert (again["generationId"] == id_) is (state != "dead_letter"), state
        if state == "dead_letter":
            assert (again["status"], again["creditsReserved"]) == ("queued", 1)
        else:
            assert again["status"] == state
            assert await desk.service.credits() == before
