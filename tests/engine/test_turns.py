"""How a claim is divided between tenants and lanes, without a database."""

from collections import Counter
from typing import Any

import pytest

from holdfast.engine.turns import PRIORITY_MAX, PRIORITY_MIN, OpenHead, Share, Turn, Turns


def head(lane: int, tenant: str, *, priority: int = 0, weight: int = 1, job: str | None = None) -> OpenHead:
    return OpenHead(lane, priority, job or f"job-{lane:03}", tenant, weight)


def claim(turns: Turns, heads: list[OpenHead], limit: int) -> Counter[str]:
    """A claim whose lanes have as many jobs as it wants: what each tenant got."""
    tenants = {one.lane: one.tenant for one in heads}
    got = Counter(dict.fromkeys(tenants.values(), 0))
    for lane, _, _, most in turns.shares(heads, limit):
        got[tenants[lane]] += most
    turns.took(got.elements())
    return got


def test_a_single_tenant_gets_the_whole_claim_without_a_floor() -> None:
    assert Turns().shares([head(1, "a")], 7) == [Share(1, PRIORITY_MIN, PRIORITY_MAX, 7)]


def test_one_job_at_a_time_alternates_between_tenants() -> None:
    turns, heads = Turns(), [head(1, "a"), head(2, "b")]
    order = ["".join(claim(turns, heads, 1).elements()) for _ in range(6)]
    assert order == ["a", "b"] * 3


def test_one_job_at_a_time_visits_every_tenant_once_a_round() -> None:
    turns, heads = Turns(), [head(n, f"tenant-{n}") for n in range(5)]
    for _ in range(3):
        got: Counter[str] = Counter()
        for _ in range(5):
            got += claim(turns, heads, 1)
        assert set(got.values()) == {1}
        assert len(got) == 5


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
def test_weights_divide_the_jobs_however_many_a_claim_takes(limit: int) -> None:
    turns, heads = Turns(), [head(1, "small"), head(2, "large", weight=3)]
    got: Counter[str] = Counter()
    for _ in range(40):
        got += claim(turns, heads, limit)
    assert got == {"small": 10 * limit, "large": 30 * limit}


def test_fractions_are_carried_over_to_the_next_claim() -> None:
    turns, heads = Turns(), [head(n, tenant) for n, tenant in enumerate("abc")]
    first, second, third = (claim(turns, heads, 4) for _ in range(3))
    assert sorted(first.values()) == [1, 1, 2]
    assert first + second + third == {"a": 4, "b": 4, "c": 4}


def test_every_claim_is_filled_and_never_exceeded() -> None:
    turns = Turns()
    heads = [head(n, f"tenant-{n}", weight=1 + n % 4) for n in range(7)]
    for limit in (1, 2, 5, 13, 1, 100, 3, 1):
        assert claim(turns, heads, limit).total() == limit


def test_a_tenant_that_had_no_jobs_is_owed_nothing_for_that_time() -> None:
    turns = Turns()
    busy, other = head(1, "busy"), head(2, "other")
    claim(turns, [busy, other], 1)
    for _ in range(50):
        claim(turns, [busy], 10)
    assert claim(turns, [busy, other], 10) == {"busy": 5, "other": 5}


def test_what_a_tenant_does_not_use_is_bounded() -> None:
    """Its lane looked full, but every job was locked by others: later it gets one claim's worth more, not fifty."""
    turns, heads = Turns(), [head(1, "full"), head(2, "locked")]
    for _ in range(50):
        turns.shares(heads, 10)
        turns.took(["full"] * 5)
    got: Counter[str] = Counter()
    for _ in range(20):
        got += claim(turns, heads, 10)
    assert 0 < got["full"] - 80 <= 20
    assert got.total() == 200


def test_inside_a_tenant_priority_decides_and_the_next_head_is_the_floor() -> None:
    heads = [head(1, "a", priority=0), head(2, "a", priority=5), head(3, "a", priority=3)]
    assert Turns().shares(heads, 10) == [Share(2, 3, PRIORITY_MAX, 10)]


def test_priority_does_not_reach_over_to_another_tenant() -> None:
    urgent, patient = head(1, "urgent", priority=100), head(2, "patient", priority=-100)
    shares = {share.lane: share for share in Turns().shares([urgent, patient], 10)}
    assert shares == {1: Share(1, PRIORITY_MIN, PRIORITY_MAX, 5), 2: Share(2, PRIORITY_MIN, PRIORITY_MAX, 5)}


def test_lanes_with_equally_urgent_heads_share_the_quota_the_oldest_first() -> None:
    heads = [head(1, "a", job="c"), head(2, "a", job="a"), head(3, "a", job="b"), head(4, "a", priority=-1)]
    assert Turns().shares(heads, 7) == [
        Share(2, 0, PRIORITY_MAX, 3),
        Share(3, 0, PRIORITY_MAX, 2),
        Share(1, 0, PRIORITY_MAX, 2),
    ]
    assert Turns().shares(heads, 2) == [Share(2, 0, PRIORITY_MAX, 1), Share(3, 0, PRIORITY_MAX, 1)]


def lane(number: int, tenant: str, *, priority: int = 0, weight: int = 1, job: str | None = None) -> dict[str, Any]:
    return {"id": number, **head(number, tenant, priority=priority, weight=weight, job=job)._asdict()}


def planned(lanes: list[dict[str, Any]], *taken: str, after: frozenset[int] = frozenset()) -> list[Turn]:
    return Turns().plan(lanes, [{"tenant": tenant} for tenant in taken], after)


def test_a_tenant_with_one_lane_has_as_many_planned_turns_as_one_with_many() -> None:
    turns = planned([*(lane(n, "large") for n in range(7)), lane(7, "small")])
    assert [turn.lane for turn in turns] == [0, 7, 1, 7, 2, 7, 3, 7]


def test_planned_turns_follow_the_weights_of_tenants() -> None:
    turns = planned([*(lane(n, "a", weight=3) for n in range(4)), *(lane(n, "b") for n in range(4, 8))])
    assert Counter(turn.lane >= 4 for turn in turns) == {False: 6, True: 2}


def test_planned_turns_are_those_of_the_most_urgent_lanes_down_to_the_next_head() -> None:
    urgent = [lane(1, "a", priority=5, job="b"), lane(2, "a", priority=5, job="a"), lane(3, "a")]
    assert planned(urgent) == [Turn(2, 5), Turn(1, 5), Turn(2, 5)]
    assert planned(urgent[1:]) == [Turn(2, 0), Turn(2, 0)]
    assert planned(urgent[2:]) == [Turn(3, PRIORITY_MIN)]


def test_what_the_first_claim_took_counts_as_a_turn_and_its_lane_comes_last() -> None:
    lanes = [lane(1, "a"), lane(2, "a"), lane(3, "b")]
    assert [turn.lane for turn in planned(lanes, "a", "a", after=frozenset({1}))] == [3, 3]


def test_planned_turns_keep_the_weights_from_plan_to_plan() -> None:
    lanes = [*(lane(n, "a", weight=20) for n in range(16)), lane(16, "b")]
    turns = Turns()
    planned = [turn.lane for _ in range(50) for turn in turns.plan(lanes, [{"tenant": "a"}], frozenset({0}))]
    assert len(planned) == 50 * 16
    assert planned.count(16) in range(38, 44)  # 1 in 20 or 21, also counting the 50 that the reads took
