"""Two sessions, statement by statement, in every order, on real PostgreSQL.

An order of A and B is an order of B and A, so each pair of verbs is played once, and each verb also against itself.
`make test` plays some of the pairs, `make soak` all of them.
"""

from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from holdfast.store import q
from tests.interleaving.scenarios import UNDER_A_LEASE, VERBS, Stage


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize(("first", "second"), [*combinations_with_replacement(VERBS, 2)])
async def test_any_interleaving_of_two_sessions_is_serializable(stage: Stage, first: str, second: str) -> None:
    """S3 to S7 and S12; K1, K4, K6, K41: one owner, one end, a gapless history, in every order of every two verbs."""
    assert await stage.all_orders(first, second) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("claim", "claim"), ("claim", "cancel"), ("cancel", "cancel")])
async def test_a_queued_job_goes_to_one_worker_or_is_canceled(stage: Stage, first: str, second: str) -> None:
    """S3, S9, K41: whatever the order, no job goes to two workers, and none is claimed after its cancel."""
    assert await stage.all_orders(first, second, job="queued") > 1


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("second", ["claim", "cancel", "reap"])
@pytest.mark.parametrize("first", UNDER_A_LEASE)
async def test_a_stale_worker_is_rejected_while_others_claim_the_job(stage: Stage, first: str, second: str) -> None:
    """S4, K26, K27: the old token is worthless before, while and after another worker takes the job."""
    assert await stage.all_orders(first, second, job="lost") > 1


# The judge is on trial here: each of these queries lacks one guard, and that must not go unnoticed.


async def test_the_scheduler_detects_a_completion_without_token_check(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_guards(
        monkeypatch, "complete_jobs", "holdfast_jobs.lease_token = done.token", "holdfast_jobs.lease_worker = :worker"
    )
    with pytest.raises(AssertionError, match="a lost lease was good enough"):
        await stage.all_orders("complete", "claim", job="lost")


async def test_the_scheduler_detects_a_lost_update_of_a_cancel_request(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_guards(monkeypatch, "ask_to_cancel", "cancel_requested_at IS NULL")
    with pytest.raises(AssertionError, match="but in turn they give"):
        await stage.all_orders("cancel", "cancel")


def drop_guards(monkeypatch: pytest.MonkeyPatch, name: str, *guards: str) -> None:
    """The query, with these predicates always true."""
    query = getattr(q, name)
    text = query.text
    for guard in guards:
        assert guard in text
        text = text.replace(guard, f"(TRUE OR {guard})")
    monkeypatch.setitem(q._queries, name, replace(query, text=text))
