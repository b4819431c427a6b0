"""The six lifecycles against the documents they come from: exact words, exact moves, exact policies."""

from itertools import product

import pytest

from holdfast.errors import Invalid, UnknownName
from holdfast.lifecycle import (
    FINAL,
    STATUS,
    Actor,
    Idempotency,
    Lifecycles,
    Machine,
    Reaping,
    State,
    Treatment,
)
from holdfast.lifecycle.render import from_data, to_data
from holdfast.manifest import Manifest
from tests.pure.declared import declare

LIFECYCLES = Lifecycles()

WORDS = {
    "default": {state.value: state.value for state in State},
    "orchestration": {
        "created": "CREATED",
        "queued": "QUEUED",
        "running": "RUNNING",
        "retrying": "RETRY",
        "succeeded": "SUCCESS",
        "dead": "DEAD",
    },
    "images": {
        "queued": "queued",
        "running": "processing",
        "retrying": "failed_retryable",
        "succeeded": "completed",
        "dead": "failed",
    },
    "crawl": {
        "queued": "queued",
        "running": "running",
        "retrying": "retry_pending",
        "succeeded": "succeeded",
        "dead": "failed",
        "canceled": "canceled",
    },
    "transcode": {
        "queued": "pending",
        "running": "processing",
        "retrying": "retrying",
        "succeeded": "ready",
        "dead": "failed",
    },
    "generation": {
        "queued": "queued",
        "running": "running",
        "retrying": "failed",
        "succeeded": "completed",
        "dead": "dead_letter",
        "canceled": "dead_letter",
        "rejected": "rejected",
    },
}

# Every lifecycle has the hand-back `running -> queued`; the rest is what its document says, in its own words.
MOVES = {
    "default": {
        *("created -> queued", "created -> canceled"),
        *("queued -> running", "queued -> rejected", "queued -> canceled"),
        *("running -> succeeded", "running -> retrying", "running -> dead", "running -> queued"),
        *("running -> rejected", "running -> canceled"),
        *("retrying -> running", "retrying -> queued", "retrying -> dead", "retrying -> canceled"),
    },
    "orchestration": {
        *("CREATED -> QUEUED", "QUEUED -> RUNNING", "RUNNING -> SUCCESS", "RUNNING -> RETRY"),
        *("RETRY -> QUEUED", "RETRY -> DEAD", "RUNNING -> QUEUED"),
    },
    "images": {
        *("queued -> processing", "processing -> completed", "processing -> failed_retryable", "processing -> failed"),
        *("failed_retryable -> processing", "failed_retryable -> failed", "processing -> queued"),
    },
    "crawl": {
        *("queued -> running", "running -> succeeded", "running -> failed", "running -> canceled"),
        *("running -> retry_pending", "retry_pending -> running", "running -> queued"),
        *("queued -> canceled", "retry_pending -> canceled"),
    },
    "transcode": {
        *("pending -> processing", "processing -> ready", "processing -> retrying", "retrying -> processing"),
        *("processing -> failed", "processing -> pending"),
    },
    "generation": {
        *(
            "queued -> running",
            "queued -> rejected",
            "running -> completed",
            "running -> failed",
            "running -> rejected",
        ),
        *("running -> dead_letter", "failed -> queued", "failed -> dead_letter", "running -> queued"),
        "queued -> dead_letter",  # canceled
    },
}

# Who may bring a job there, whatever the lifecycle: the widest set of section 7.
ACTORS = {
    "created -> queued": {"client", "api", "system"},
    "created -> canceled": {"client", "api", "system"},
    "queued -> running": {"worker"},
    "queued -> rejected": {"system"},
    "queued -> canceled": {"client", "api", "system"},
    "running -> succeeded": {"worker"},
    "running -> retrying": {"worker", "system"},
    "running -> dead": {"worker", "system"},
    "running -> queued": {"worker", "system"},
    "running -> rejected": {"worker"},
    "running -> canceled": {"worker", "system"},
    "retrying -> running": {"worker"},
    "retrying -> queued": {"api", "system"},
    "retrying -> dead": {"worker", "system"},
    "retrying -> canceled": {"client", "api", "system"},
}

every_lifecycle = pytest.mark.parametrize("machine", list(LIFECYCLES), ids=lambda machine: machine.name)


@every_lifecycle
def test_a_lifecycle_has_exactly_the_state_names_of_its_document(machine: Machine) -> None:
    """R000-6..10, R001-10..15, R002-2..8, R003-2, R004-1; C-1, C-5."""
    assert {state.value: word for state, word in machine.words.items()} == WORDS[machine.name]


@every_lifecycle
def test_a_lifecycle_has_exactly_the_moves_of_its_document(machine: Machine) -> None:
    """R000-11..21, R001-9, R001-16..22, R002-9, R002-29, R003-3, R004-2..7; C-2, C-3, C-4, C-6, C-7, C-13."""
    legal = {
        f"{machine.words[source]} -> {machine.words[target]}"
        for source, target in product(machine.words, repeat=2)
        if machine.has(source, target)
    }
    assert legal == MOVES[machine.name]
    assert legal == {f"{machine.words[move.source]} -> {machine.words[move.target]}" for move in machine.moves}


@every_lifecycle
def test_nothing_leaves_a_final_state(machine: Machine) -> None:
    """R000-17, R000-18, R000-37, R001-13, R001-15, R004-4, R004-6, R004-7; C-6."""
    assert not [move for move in machine.moves if move.source in FINAL]
    assert not any(machine.has(final, state) for final in FINAL for state in State)


@pytest.mark.parametrize("target", ["retrying", "dead", "succeeded"])
def test_a_queued_image_job_neither_fails_nor_succeeds_without_running(target: str) -> None:
    """R000-19, R000-20, R000-21."""
    assert not LIFECYCLES["images"].has(State.QUEUED, State(target))


@pytest.mark.parametrize("name", ["orchestration", "images", "transcode"])
def test_only_crawl_default_and_generation_can_be_canceled(name: str) -> None:
    """C-7: in the other documents cancelling is asked for by a job of another type (R000-24)."""
    assert not [move for move in LIFECYCLES[name].moves if move.verb == "cancel"]


def test_a_retry_is_claimed_directly_or_queued_as_its_document_says() -> None:
    """C-2: directly in images, crawl, transcode and default; through the queue in orchestration and generation."""
    direct = {m.name for m in LIFECYCLES if m.has(State.RETRYING, State.RUNNING)}
    queued = {m.name for m in LIFECYCLES if m.move("requeue", State.RETRYING, State.QUEUED)}
    assert direct == {"default", "images", "crawl", "transcode"}
    assert queued == {"default", "orchestration", "generation"}


def test_an_orchestration_job_reaches_dead_only_through_retrying() -> None:
    """R001-21, C-3: no RUNNING -> DEAD, for failures and lost leases alike."""
    machine = LIFECYCLES["orchestration"]
    assert not machine.has(State.RUNNING, State.DEAD)
    assert {move.verb for move in machine.moves if move.target is State.DEAD} == {"fail", "reap"}


def test_only_orchestration_has_a_separate_accept() -> None:
    """R001-10, R001-16, R001-25; C-9: the lifecycles without `created` start queued."""
    assert [machine.name for machine in LIFECYCLES if machine.accept_separately] == ["orchestration"]
    assert {m.name for m in LIFECYCLES if m.initial is State.CREATED} == {"default", "orchestration"}


@every_lifecycle
def test_every_move_belongs_to_the_actors_that_may_make_it(machine: Machine) -> None:
    """R000-22..32, R001-12; C-8, C-12: the rule binds the actor, whichever process speaks for it."""
    for move in machine.moves:
        assert {actor.value for actor in move.actors} <= ACTORS[f"{move.source} -> {move.target}"], str(move)


@every_lifecycle
@pytest.mark.parametrize("actor", [Actor.CLIENT, Actor.API])
def test_neither_client_nor_api_starts_finishes_or_fails_a_job(machine: Machine, actor: Actor) -> None:
    """R000-25, R000-26, R000-27; C-8."""
    reached = {move.target for move in machine.moves if actor in move.actors}
    assert not reached & {State.RUNNING, State.SUCCEEDED, State.RETRYING, State.DEAD, State.REJECTED}


@every_lifecycle
def test_a_worker_may_claim_complete_fail_and_release(machine: Machine) -> None:
    """R000-28..31."""
    assert machine.allows("claim", State.QUEUED, State.RUNNING, Actor.WORKER)
    assert machine.allows("complete", State.RUNNING, State.SUCCEEDED, Actor.WORKER)
    assert machine.allows("fail", State.RUNNING, State.RETRYING, Actor.WORKER)
    assert machine.allows("release", State.RUNNING, State.QUEUED, Actor.WORKER)
    assert not machine.allows("claim", State.QUEUED, State.RUNNING, Actor.SYSTEM)
    assert not machine.allows("claim", State.SUCCEEDED, State.RUNNING, Actor.WORKER)


@pytest.mark.parametrize(
    ("name", "lease", "heartbeat", "attempts"),
    [
        ("default", 30, 10, 5),
        ("orchestration", 30, 10, 5),
        ("images", 600, 30, 5),
        ("crawl", 90, 10, 7),
        ("transcode", 1800, 30, 3),
        ("generation", 30, 10, 5),
    ],
)
def test_lease_heartbeat_and_attempts_are_those_that_were_decided(
    name: str, lease: float, heartbeat: float, attempts: int
) -> None:
    """C-10, C-16; R000-39, R000-47, R002-21, R002-42, R002-43, R003-10, R003-45, R003-79, R003-135, R003-136."""
    policy = LIFECYCLES[name].policy
    assert (policy.lease_seconds, policy.heartbeat_seconds, policy.max_attempts) == (lease, heartbeat, attempts)


@every_lifecycle
def test_backoff_is_exponential_with_full_jitter_except_for_transcode(machine: Machine) -> None:
    """C-17: base 2 s, factor 2, cap 600 s; `transcode` retries at once."""
    longest = [machine.policy.backoff(failures, Treatment.TRANSIENT, 1.0) for failures in range(1, 12)]
    grown = [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert longest == ([0] * 11 if machine.name == "transcode" else grown)


def test_idempotency_follows_each_document() -> None:
    """C-18: for ever (001, default), 24 hours (002, R002-18), 24 hours or until it failed (004, R004-28)."""
    policies = {machine.name: machine.policy.idempotency for machine in LIFECYCLES}
    assert policies.pop("crawl") is Idempotency.WINDOW
    assert policies.pop("generation") is Idempotency.WINDOW_UNTIL_FAILED
    assert set(policies.values()) == {Idempotency.FOREVER}
    assert LIFECYCLES["crawl"].policy.idempotency_window_seconds == 24 * 3600


def test_only_transcode_waits_for_a_silent_worker_and_refuses_late_writes() -> None:
    """C-11, C-29, C-34; R003-59, R003-87, R003-109, R003-137, R003-139."""
    policy = LIFECYCLES["transcode"].policy
    assert (policy.reaping, policy.late_writes) == (Reaping.EXPIRED_AND_OFFLINE, False)
    assert (policy.offline_seconds, policy.no_progress_seconds) == (300, 1800)
    others = [machine.policy for machine in LIFECYCLES if machine.name != "transcode"]
    assert {(other.reaping, other.late_writes, other.no_progress_seconds) for other in others} == {
        (Reaping.EXPIRED, True, None)
    }


def test_only_crawl_bounds_the_wall_clock() -> None:
    """R002-44, C-34."""
    assert {
        machine.name: machine.policy.max_runtime_seconds for machine in LIFECYCLES if machine.policy.max_runtime_seconds
    } == {"crawl": 300}


@pytest.mark.parametrize(
    ("treatment", "codes"),
    [
        (
            Treatment.TRANSIENT,
            "network_error rate_limited browser_crash timeout_soft qdrant_unavailable neo4j_write_lock "
            "E_429_RATE E_5XX_ORIGIN E_TIMEOUT E_BROWSER E_QDRANT E_NEO4J E_GPU_OOM",
        ),
        (
            Treatment.PERMANENT,
            "invalid_url robots_disallowed parse_error_strict unsupported_mime bad_request E_URL_BAD E_ROBOTS E_PARSE",
        ),
        (Treatment.THROTTLED, "captcha 403_waf 503_shield E_403_WAF"),
    ],
)
def test_crawl_knows_how_to_treat_every_error_of_its_document(treatment: Treatment, codes: str) -> None:
    """R002-20, R002-22, R002-23, R002-24, R002-27, R002-41."""
    policy = LIFECYCLES["crawl"].policy
    assert {code for code in policy.errors if policy.treat(code) is treatment} == set(codes.split())


def test_every_lifecycle_maps_to_the_same_six_statuses() -> None:
    """C-1, R001-38, R001-47."""
    assert {state.value: status for state, status in STATUS.items()} == {
        "created": "PENDING",
        "queued": "PENDING",
        "retrying": "PENDING",
        "running": "RUNNING",
        "succeeded": "COMPLETED",
        "dead": "FAILED",
        "canceled": "CANCELED",
        "rejected": "REJECTED",
    }


def test_an_unknown_lifecycle_is_named_with_its_nearest_neighbour() -> None:
    with pytest.raises(UnknownName, match="unknown lifecycle 'crawler'; did you mean 'crawl'") as caught:
        LIFECYCLES["crawler"]
    assert caught.value.code == "unknown_lifecycle"


def test_an_app_adds_lifecycles_but_never_replaces_one_that_is_built_in() -> None:
    assert Lifecycles(declare())["bakery"].name == "bakery"
    assert [machine.name for machine in Lifecycles(declare())] == [*(machine.name for machine in LIFECYCLES), "bakery"]
    with pytest.raises(Invalid, match="'default' is built in; choose another name") as caught:
        Lifecycles(declare("default"))
    assert caught.value.code == "invalid_lifecycle"


def test_an_app_cannot_replace_the_lifecycle_of_an_installed_extension() -> None:
    """But it may say the same again."""
    known = LIFECYCLES["images"]
    with pytest.raises(Invalid, match="'images' is that of the installed extension 'images'; choose another") as caught:
        Lifecycles(declare("images"))
    assert caught.value.code == "invalid_lifecycle"
    again = from_data(to_data(known))
    for same in (known, again):
        assert Lifecycles(same)["images"] is known
    longer = from_data({**to_data(known), "policy": {"lease_seconds": 700}})
    with pytest.raises(Invalid, match="installed extension 'images'"):
        Lifecycles(longer)


def test_two_installed_extensions_cannot_declare_different_lifecycles_of_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ovens = [Manifest(name=name, lifecycles=(declare(about=name),)) for name in ("gas", "wood")]
    monkeypatch.setattr("holdfast.extension_settings.installed", lambda: ovens)
    with pytest.raises(Invalid, match="extension 'wood': lifecycle 'bakery' is that of the installed extension 'gas'"):
        Lifecycles()
