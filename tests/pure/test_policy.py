"""What a policy accepts, how it waits, how it treats errors, and how layers of it lie over each other."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.lifecycle import Idempotency, Policy, Reaping, Treatment
from holdfast.lifecycle.crawl import CRAWL

SECONDS = (
    *("lease_seconds", "heartbeat_seconds", "backoff_cap_seconds", "throttle_cap_seconds", "offline_seconds"),
    *("no_progress_seconds", "max_runtime_seconds", "idempotency_window_seconds", "backoff_factor", "max_lost"),
)
MAY_BE_ZERO = ("backoff_base_seconds", "defer_seconds", "cancel_grace_seconds")


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [0, -1, 10**9, math.inf, -math.inf, math.nan])
def test_a_duration_is_positive_and_finite(name: str, value: float) -> None:
    with pytest.raises(Invalid, match=name) as caught:
        Policy(**{name: value})
    assert caught.value.code == "invalid_policy"


@pytest.mark.parametrize("name", MAY_BE_ZERO)
def test_some_durations_may_be_zero_but_not_less_and_not_endless(name: str) -> None:
    assert getattr(Policy(**{name: 0}), name) == 0
    for value in (-0.001, 10**9, math.inf, math.nan):
        with pytest.raises(Invalid, match=name) as caught:
            Policy(**{name: value})
        assert caught.value.code == "invalid_policy"


@pytest.mark.parametrize("attempts", [0, -1, 1001])
def test_a_job_runs_at_least_once_and_at_most_a_thousand_times(attempts: int) -> None:
    """C-15."""
    assert Policy(max_attempts=1).max_attempts == 1
    with pytest.raises(Invalid, match=f"max_attempts must be 1 to 1000, got {attempts}"):
        Policy(max_attempts=attempts)


def test_an_overflowing_backoff_factor_is_refused() -> None:
    assert Policy(backoff_factor=1000).backoff(10**6, Treatment.TRANSIENT, 1.0) == 600
    with pytest.raises(Invalid, match="backoff_factor must be at most 1000"):
        Policy(backoff_factor=1001)


def test_a_heartbeat_slower_than_the_lease_is_refused() -> None:
    with pytest.raises(Invalid, match="must be shorter than lease_seconds"):
        Policy(lease_seconds=10, heartbeat_seconds=10)


def test_the_default_policy_is_the_one_that_was_decided() -> None:
    """C-10, C-14, C-16, C-17, C-28, C-33."""
    policy = Policy()
    assert (policy.lease_seconds, policy.heartbeat_seconds, policy.max_attempts, policy.max_lost) == (30, 10, 5, 3)
    assert (policy.backoff_base_seconds, policy.backoff_factor, policy.backoff_cap_seconds) == (2, 2, 600)
    assert (policy.offline_seconds, policy.defer_seconds) == (90, 60)
    assert (policy.late_writes, policy.reaping, policy.idempotency) == (True, Reaping.EXPIRED, Idempotency.FOREVER)


@given(
    base=st.floats(0, 10**9, exclude_max=True),
    factor=st.floats(0, 1000, exclude_min=True),
    cap=st.floats(0, 10**9, exclude_min=True, exclude_max=True),
    failures=st.integers(1, 10**6),
    jitter=st.floats(0, 1, exclude_max=True),
    treatment=st.sampled_from([Treatment.TRANSIENT, Treatment.THROTTLED]),
)
def test_a_backoff_is_never_negative_never_endless_and_never_above_its_cap(
    base: float, factor: float, cap: float, failures: int, jitter: float, treatment: Treatment
) -> None:
    """C-17: full jitter over an exponential with a cap, whatever the numbers."""
    policy = Policy(
        backoff_base_seconds=base, backoff_factor=factor, backoff_cap_seconds=cap, throttle_cap_seconds=cap * 0.5 or cap
    )
    bound = policy.throttle_cap_seconds if treatment is Treatment.THROTTLED else cap
    waits = policy.backoff(failures, treatment, jitter)
    assert 0 <= waits <= bound
    assert waits <= policy.backoff(failures, treatment, 1.0)


@given(failures=st.integers(1, 64), factor=st.floats(1, 1000))
def test_the_longest_wait_never_shrinks_as_failures_add_up(failures: int, factor: float) -> None:
    policy = Policy(backoff_factor=factor)
    assert policy.backoff(failures, Treatment.TRANSIENT, 1.0) <= policy.backoff(failures + 1, Treatment.TRANSIENT, 1.0)


def test_a_throttled_job_waits_behind_a_cap_of_its_own() -> None:
    """R002-24, R002-27."""
    policy = Policy(backoff_cap_seconds=60, throttle_cap_seconds=3600)
    assert policy.backoff(20, Treatment.TRANSIENT, 1.0) == 60
    assert policy.backoff(20, Treatment.THROTTLED, 1.0) == 3600


def test_jitter_spreads_over_the_whole_wait() -> None:
    policy = Policy()
    assert [policy.backoff(3, Treatment.TRANSIENT, jitter) for jitter in (0.0, 0.25, 0.5)] == [0, 2, 4]


def test_an_error_is_treated_by_its_code_or_by_the_default_treatment() -> None:
    """R002-15, R002-20..24."""
    policy = Policy(errors={"bad_url": Treatment.PERMANENT, "captcha": Treatment.THROTTLED})
    assert policy.treat("bad_url") is Treatment.PERMANENT
    assert policy.treat("captcha") is Treatment.THROTTLED
    assert policy.treat("never heard of it") is Treatment.TRANSIENT
    assert Policy(unknown_errors=Treatment.PERMANENT).treat("anything") is Treatment.PERMANENT


def test_policies_are_layered() -> None:
    below = Policy(lease_seconds=90, max_attempts=7)
    above = below.over({"max_attempts": 2, "reaping": "expired_and_offline", "errors": {"E": "permanent"}})
    assert (above.lease_seconds, above.max_attempts) == (90, 2)
    assert above.reaping is Reaping.EXPIRED_AND_OFFLINE
    assert above.treat("E") is Treatment.PERMANENT
    assert below == Policy(lease_seconds=90, max_attempts=7)
    assert below.over({}) == below


@pytest.mark.parametrize(
    "changes",
    [
        {"lease_secs": 5},
        {"lease_seconds": "soon"},
        {"lease_seconds": -1},
        {"max_attempts": 0},
        {"max_attempts": 2.5},
        {"max_attempts": None},
        {"reaping": "sometimes"},
        {"idempotency": "now and then"},
        {"errors": {"E": "ignore"}},
        {"errors": ["E"]},
        {"heartbeat_seconds": 30},
    ],
)
def test_an_invalid_policy_change_is_refused_with_its_field(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=next(iter(changes))) as caught:
        Policy().over(changes)
    assert caught.value.code == "invalid_policy"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.floats(0, 10**9) | st.sampled_from([math.inf, math.nan]) for name in (*SECONDS[:-1], *MAY_BE_ZERO)
        },
    )
)
def test_every_valid_policy_round_trips_through_json(changes: dict[str, float]) -> None:
    """The snapshot of a job's policy is stored as JSON, which has no infinity."""
    try:
        policy = Policy().over(changes)
    except Invalid:
        return
    assert Policy().over(json.loads(msgspec.json.encode(policy))) == policy


def test_error_codes_of_a_job_type_are_added_to_those_of_the_lifecycle() -> None:
    """R002-22, R002-24: a job type that names one more code keeps the classes of its lifecycle."""
    policy = CRAWL.policy.over({"errors": {"login_expired": "permanent", "captcha": "permanent"}})
    assert policy.treat("login_expired") is Treatment.PERMANENT
    assert policy.treat("captcha") is Treatment.PERMANENT, "and may decide otherwise about one of them"
    assert policy.treat("robots_disallowed") is Treatment.PERMANENT
    assert policy.treat("403_waf") is Treatment.THROTTLED
