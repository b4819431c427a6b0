"""Limits that the claim decides: by type, queue, tenant and name; units and tokens; changes at run time."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.hooks.claim import ClaimRequest, Defer
from holdfast.errors import NotFound
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob
from holdfast.model.limits import RATE_MIN, UNITS_MAX, Limit
from holdfast.model.reports import Withdrawal
from holdfast.store import Tx
from holdfast.store.queries import Query
from tests.engine.hooking import adopt, guard
from tests.engine.limiting import declare, drain, end, held_by_jobs, lift, limit, used
from tests.engine.steps import ask, held, run, sweep


async def add(engine: Engine, count: int, **job: Any) -> list[str]:
    return [made.id for made in await engine.create_many([NewJob(**{"type": "n", **job}) for _ in range(count)])]


async def claimed(engine: Engine, worker: str, most: int = 100, **scope: Any) -> int:
    return len(await engine.claim(worker, limit=most, **scope))


# -- each kind of limit -----------------------------------------------------------------------------------------------

KINDS = {
    "type:n": {"type": "other"},
    "queue:default": {"queue": "other"},
    "tenant:default": {"tenant": "other"},
    "gpu": {"limits": {}},
}


@pytest.mark.parametrize("at_once", [1, 3, 10])
@pytest.mark.parametrize("name", KINDS)
async def test_a_limit_bounds_its_jobs_and_no_others(engine: Engine, worker: str, name: str, at_once: int) -> None:
    mine: dict[str, Any] = {"limits": {"gpu": 1}}
    await limit(engine, name, concurrency=3)
    await add(engine, 8, **mine)
    got = [lease for _ in range(10) for lease in await engine.claim(worker, limit=at_once)]
    assert len(got) == 3
    assert await held_by_jobs(engine) == {name: 3}

    others = await add(engine, 5, **{**mine, **KINDS[name]})
    found = [lease.id for _ in range(10) for lease in await engine.claim(worker, limit=at_once)]
    assert sorted(found) == sorted(others)
    await end(engine, worker, *got[:2])
    assert await claimed(engine, worker) == 2
    assert await held_by_jobs(engine) == {name: 3}


async def test_a_job_obeys_all_of_its_limits_at_once(engine: Engine, worker: str) -> None:
    for name, most in (("type:n", 5), ("queue:default", 4), ("tenant:default", 9), ("gpu", 3)):
        await limit(engine, name, concurrency=most)
    await add(engine, 10, limits={"gpu": 1})
    assert await claimed(engine, worker) == 3
    await add(engine, 10)
    assert await claimed(engine, worker) == 1  # the queue
    await add(engine, 10, queue="q")
    assert await claimed(engine, worker) == 1  # the type
    await add(engine, 10, type="m", queue="q")
    assert await claimed(engine, worker) == 4  # the tenant
    assert await held_by_jobs(engine) == {"type:n": 5, "queue:default": 4, "tenant:default": 9, "gpu": 3}


async def test_types_share_a_named_limit(engine: Engine, worker: str) -> None:
    await declare(engine, "a", units={"gpu": 1})
    await declare(engine, "b", units={"gpu": 1})
    await limit(engine, "gpu", concurrency=3)
    await add(engine, 2, type="a")
    await add(engine, 5, type="b")
    leases = await engine.claim(worker, limit=10)
    assert [lease.type for lease in leases] == ["a", "a", "b"]
    await end(engine, worker, leases[0])
    assert [lease.type for lease in await engine.claim(worker, limit=10)] == ["b"]


async def test_a_named_limit_that_is_not_set_bounds_nothing(engine: Engine, worker: str) -> None:
    await add(engine, 5, limits={"unknown": 1000})
    assert await claimed(engine, worker) == 5
    assert await ask(engine, "SELECT * FROM holdfast_limit_units") == []


async def test_a_job_takes_as_many_units_as_it_names(engine: Engine, worker: str) -> None:
    await limit(engine, "gpu", concurrency=7)
    await add(engine, 5, limits={"gpu": 3})
    await add(engine, 5, type="small", limits={"gpu": 1})
    assert await claimed(engine, worker, types=["n"]) == 2
    assert await held_by_jobs(engine) == {"gpu": 6}
    leases = await engine.claim(worker, limit=10)
    assert [lease.type for lease in leases] == ["small"]
    assert await held_by_jobs(engine) == {"gpu": 7}


async def test_a_job_that_takes_more_than_the_limit_never_runs_and_blocks_no_other(engine: Engine, worker: str) -> None:
    await limit(engine, "gpu", concurrency=4)
    await add(engine, 3, limits={"gpu": 5}, priority=9)
    await add(engine, 3, limits={"gpu": 2})
    await add(engine, 1, type="free", priority=-9)
    leases = await engine.claim(worker, limit=10)
    assert [lease.type for lease in leases] == ["n", "n", "free"]
    await end(engine, worker, *leases)
    assert await claimed(engine, worker) == 1
    assert (await engine.polls.poll(worker)).due is False
    await limit(engine, "gpu", concurrency=7)
    assert await claimed(engine, worker) == 1


async def test_a_limit_of_zero_stops_all_jobs_and_hides_none_of_the_others(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=0)
    await add(engine, 3, priority=50)
    [other] = await add(engine, 1, type="other")
    assert [lease.id for lease in await engine.claim(worker, limit=5)] == [other]
    assert not (await engine.polls.poll(worker)).any
    await limit(engine, "type:n", concurrency=1)
    assert await claimed(engine, worker) == 1


@pytest.mark.parametrize("blocked", [1, 20, 40])
async def test_full_lanes_hide_no_job_behind_them_however_many_they_are(
    engine: Engine, worker: str, blocked: int
) -> None:
    await limit(engine, "stop", concurrency=0)
    for number in range(blocked):
        await add(engine, 1, type=f"type-{number}", priority=number % 3, limits={"stop": 1})
    [last] = await add(engine, 1, type="last", priority=-100)
    assert [lease.id for lease in await engine.claim(worker)] == [last]


async def test_within_a_limit_the_most_urgent_jobs_come_first(engine: Engine, worker: str) -> None:
    await limit(engine, "gpu", concurrency=2)
    low, high, middle = [(await add(engine, 1, priority=p, limits={"gpu": 1}))[0] for p in (0, 9, 5)]
    [other] = await add(engine, 1, type="other", priority=7, limits={"gpu": 1})
    leases = await engine.claim(worker, limit=10)
    assert [lease.id for lease in leases] == [high, other]
    await end(engine, worker, *leases)
    assert [lease.id for lease in await engine.claim(worker, limit=10)] == [middle, low]


async def test_types_without_limits_hold_no_units_and_are_not_marked(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=1)
    await add(engine, 3, type="other")
    assert await claimed(engine, worker) == 3
    assert [row["limited"] for row in await ask(engine, "SELECT limited FROM holdfast_jobs")] == [None] * 3
    assert await held_by_jobs(engine) == {}


async def test_a_claim_with_a_request_id_obeys_limits(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=2)
    await add(engine, 5)
    first = await engine.claim_once(worker, "first", limit=10)
    assert first is not None
    assert len(first) == 2
    assert await engine.claim_once(worker, "second", limit=10) is None
    assert await held_by_jobs(engine) == {"type:n": 2}
    assert await engine.give_back(worker, [held(lease) for lease in first], request="first")
    assert await held_by_jobs(engine) == {}
    assert len(await engine.claim_once(worker, "third", limit=10) or ()) == 2


async def test_jobs_of_types_with_hooks_obey_limits(engine: Engine, worker: str, clock: MovableClock) -> None:
    """Deferred by a guard, a job takes no units."""

    @guard(engine, "claim", job_type="n")
    async def decide(_tx: Tx, request: ClaimRequest) -> Any:
        return Defer(30, "later") if request.job.payload.get("later") else None

    await adopt(engine, "n")
    await limit(engine, "type:n", concurrency=2)
    await add(engine, 2, payload={"later": True})
    await add(engine, 5)
    leases = await engine.claim(worker, limit=10)
    assert len(leases) == 2
    assert await held_by_jobs(engine) == {"type:n": 2}
    assert await claimed(engine, worker) == 0
    await end(engine, worker, *leases)
    assert await held_by_jobs(engine) == {}
    assert await claimed(engine, worker, 1) == 1
    assert await held_by_jobs(engine) == {"type:n": 1}


async def test_a_job_that_cannot_be_read_takes_no_units(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=1)
    spoilt, fine = await add(engine, 2)
    await ask(engine, "UPDATE holdfast_jobs SET tags = 'nonsense' WHERE id = :id RETURNING id", id=spoilt)
    found = [lease.id for _ in range(2) for lease in await engine.claim(worker)]
    assert found == [fine]
    assert (await engine.reads.get(spoilt)).state is State.DEAD
    assert await held_by_jobs(engine) == {"type:n": 1}


# -- every end of a lease ---------------------------------------------------------------------------------------------

Ending = Callable[[Engine, str, MovableClock, Lease], Awaitable[Any]]


async def cancel_running(engine: Engine, worker: str, _: MovableClock, lease: Lease) -> None:
    await engine.cancel(lease.id)
    await engine.fail(worker, lease.id, lease.token, "E")


async def cancel_ignored(engine: Engine, _worker: str, clock: MovableClock, lease: Lease) -> None:
    await engine.cancel(lease.id)
    await sweep(engine, clock, 120)


async def withdrawn(engine: Engine, worker: str, _: MovableClock, lease: Lease) -> None:
    """By another job; it ends when its worker releases it."""
    other = await run(engine, worker, type="other")
    await engine.withdraw(worker, Withdrawal(id=other.id, token=other.token, target=lease.id, reason="unwanted"))
    await engine.release(worker, lease.id, lease.token)
    await engine.complete(worker, other.id, other.token)


ENDINGS: dict[str, tuple[Ending, State]] = {
    "complete": (lambda e, w, c, j: e.complete(w, j.id, j.token), State.SUCCEEDED),
    "retry": (lambda e, w, c, j: e.fail(w, j.id, j.token, "E", retry_after_seconds=500), State.RETRYING),
    "dead": (lambda e, w, c, j: e.fail(w, j.id, j.token, "E", permanent=True), State.DEAD),
    "release": (lambda e, w, c, j: e.release(w, j.id, j.token), State.QUEUED),
    "snooze": (lambda e, w, c, j: e.release(w, j.id, j.token, delay_seconds=500), State.QUEUED),
    "reject": (lambda e, w, c, j: e.reject(w, j.id, j.token, "E"), State.REJECTED),
    "cancel": (cancel_running, State.CANCELED),
    "cancel ignored": (cancel_ignored, State.CANCELED),
    "expiry": (lambda e, w, c, j: sweep(e, c, 40), State.QUEUED),
    "crash": (lambda e, w, c, j: e.maintenance.reap(gone=["process"]), State.QUEUED),
    "withdraw": (withdrawn, State.CANCELED),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_units_are_free_exactly_when_a_lease_ends(
    engine: Engine, worker: str, clock: MovableClock, ending: str
) -> None:
    """And a job that waits for them is claimed: of the same key, and of another one."""
    finish, state = ENDINGS[ending]
    lifecycle = "generation" if ending == "reject" else "default"
    await declare(engine, "n", limit=Limit(2), per_key=Limit(1), limit_key="k", units={"gpu": 3}, lifecycle=lifecycle)
    await limit(engine, "gpu", concurrency=6)
    await engine.maintenance.reap()
    mine, theirs = [(await add(engine, 1, payload={"k": key}))[0] for key in ("mine", "theirs")]
    leases = {lease.id: lease for lease in await engine.claim(worker, limit=10, instance="process")}
    assert leases.keys() == {mine, theirs}
    assert await held_by_jobs(engine) == {"type:n": 2, "key:n mine": 1, "key:n theirs": 1, "gpu": 6}
    await end(engine, worker, leases[theirs])
    waiting = await add(engine, 3, payload={"k": "mine"}, priority=9)
    assert await claimed(engine, worker) == 0

    await finish(engine, worker, clock, leases[mine])
    found = await engine.reads.get(mine)
    assert found.state is state or (state is State.QUEUED and found.state is State.RETRYING)
    assert await held_by_jobs(engine) == {}
    [lease] = await engine.claim(worker)
    assert lease.id in waiting
    assert await held_by_jobs(engine) == {"type:n": 1, "key:n mine": 1, "gpu": 3}
    assert await claimed(engine, worker) == 0


async def test_a_repeated_report_frees_nothing_again(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=1)
    await add(engine, 3)
    [first] = await engine.claim(worker)
    await end(engine, worker, first)
    [second] = await engine.claim(worker)
    await end(engine, worker, first)
    assert await held_by_jobs(engine) == {"type:n": 1}
    assert await claimed(engine, worker) == 0
    await end(engine, worker, second)
    assert await claimed(engine, worker) == 1


async def test_a_job_that_runs_again_holds_its_units_again(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=1)
    await add(engine, 1)
    for _ in range(3):
        [lease] = await engine.claim(worker)
        assert await held_by_jobs(engine) == {"type:n": 1}
        await engine.release(worker, lease.id, lease.token)
        assert await held_by_jobs(engine) == {}


# -- rates ------------------------------------------------------------------------------------------------------------


async def test_a_rate_allows_its_burst_and_then_refills(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", rate="2/s", burst=5)
    await add(engine, 40)
    assert await claimed(engine, worker) == 5
    assert await claimed(engine, worker) == 0
    for seconds, most in ((0.4, 0), (0.1, 1), (0.5, 1), (2, 4), (100, 5), (0, 0)):
        clock.advance(seconds)
        assert await claimed(engine, worker) == most, seconds


async def test_the_end_of_a_job_gives_no_token_back(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", rate="1/s", burst=2)
    await add(engine, 9)
    await end(engine, worker, *await engine.claim(worker, limit=9))
    assert await claimed(engine, worker) == 0
    clock.advance(1)
    assert len(await drain(engine, worker)) == 1


async def test_a_rate_without_a_burst_saves_up_a_second_or_one_job(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", rate="3/s")
    await limit(engine, "type:m", rate="1/min")
    await add(engine, 9)
    await add(engine, 9, type="m")
    leases = await engine.claim(worker, limit=20)
    assert [lease.type for lease in leases] == ["n"] * 3 + ["m"]


async def test_a_job_spends_as_many_tokens_as_it_takes_units(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "api", rate="1/s", burst=7)
    await add(engine, 9, limits={"api": 3})
    assert await claimed(engine, worker) == 2
    clock.advance(1)
    assert await claimed(engine, worker) == 0
    clock.advance(1)
    assert await claimed(engine, worker) == 1


async def test_a_job_that_takes_more_than_the_burst_waits_for_all_of_it_and_leaves_a_debt(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """So that the rate holds in the long run: ten units in ten seconds."""
    await limit(engine, "api", rate="1/s", burst=4)
    await add(engine, 3, limits={"api": 10})
    for _ in range(2):
        assert await claimed(engine, worker) == 1
        clock.advance(9)
        assert await claimed(engine, worker) == 0
        clock.advance(1)
    assert await claimed(engine, worker) == 1


async def test_a_rate_loses_nothing_that_fills_up_while_a_claim_runs(
    engine: Engine, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens are those of the time of the count, whenever they are spent."""
    await limit(engine, "type:n", rate="1/s", burst=1)
    await add(engine, 9)
    transaction = engine.store.transaction_class
    original = transaction.all

    async def slowly(tx: Any, query: Query, **params: Any) -> Any:
        if query.name == "spend_tokens":
            clock.advance(0.5)
        return await original(tx, query, **params)

    monkeypatch.setattr(transaction, "all", slowly)
    started = 0
    for _ in range(4):
        started += await claimed(engine, worker)
        clock.advance(0.5)
    assert started == 4


async def test_a_rate_of_zero_never_refills_even_after_tokens_are_pruned(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    await limit(engine, "type:n", rate=0, burst=2)
    await add(engine, 9)
    assert await claimed(engine, worker) == 2
    for _ in range(3):
        clock.advance(90_000)
        await engine.job_limits.prune_tokens()
        assert await claimed(engine, worker) == 0


async def test_pruning_forgets_only_buckets_that_are_full(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", rate="1/s", burst=3)
    await add(engine, 9)
    assert await claimed(engine, worker) == 3
    clock.advance(2)
    assert await engine.job_limits.prune_tokens() == 0
    assert await claimed(engine, worker) == 2
    clock.advance(3)
    assert await engine.job_limits.prune_tokens() == 1
    assert await claimed(engine, worker) == 3


@pytest.mark.parametrize("name", ["type:call", "key:call"])
async def test_a_rate_that_is_lowered_gives_no_second_burst(
    engine: Engine, worker: str, clock: MovableClock, name: str
) -> None:
    """Its tokens are forgotten when the bucket would be full at the new rate, not at the old one."""
    await declare(engine, "call", limit_key="to")
    await limit(engine, name, rate=100, burst=10)
    await engine.create_many([NewJob(type="call", payload={"to": "a"}) for _ in range(30)])
    assert len(await engine.claim(worker, limit=30)) == 10
    await limit(engine, name, rate=1 / 360, burst=10)
    clock.advance(60)
    await engine.job_limits.prune_tokens()
    assert await engine.claim(worker, limit=30) == []
    clock.advance(3600)
    await engine.job_limits.prune_tokens()
    assert len(await engine.claim(worker, limit=30)) == 10


async def test_a_key_whose_own_fast_limit_is_lifted_gets_no_second_burst(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """Its tokens are forgotten when its bucket is full at the rate of each key, which is in force again."""
    await declare(engine, "call", limit_key="to")
    await limit(engine, "key:call", rate=1 / 360, burst=10)
    await limit(engine, "key:call a", rate=100, burst=10)
    await engine.create_many([NewJob(type="call", payload={"to": "a"}) for _ in range(30)])
    assert len(await engine.claim(worker, limit=30)) == 10
    await lift(engine, "key:call a")
    clock.advance(60)
    await engine.job_limits.prune_tokens()
    assert await engine.claim(worker, limit=30) == []
    clock.advance(3600)
    await engine.job_limits.prune_tokens()
    assert len(await engine.claim(worker, limit=30)) == 10


@pytest.mark.parametrize("each", [None, {"concurrency": 100}])
async def test_a_bucket_that_has_no_rate_any_more_is_forgotten(
    engine: Engine, worker: str, each: dict[str, int] | None
) -> None:
    """Also if its rate was 0, at which it would never be full."""
    await declare(engine, "call", limit_key="to")
    if each:
        await limit(engine, "key:call", **each)
    await limit(engine, "key:call a", rate=0, burst=1)
    await engine.create(NewJob(type="call", payload={"to": "a"}))
    assert len(await engine.claim(worker)) == 1
    assert await engine.job_limits.prune_tokens() == 0
    await lift(engine, "key:call a")
    assert await engine.job_limits.prune_tokens() == 1


async def test_the_slowest_rate_and_the_largest_burst_can_be_set_while_tokens_are_spent(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """The bucket is full after more years than a time of the database can name."""
    await limit(engine, "type:n", rate=1, burst=1)
    await add(engine, 2)
    assert await claimed(engine, worker) == 1
    await limit(engine, "type:n", rate=RATE_MIN, burst=UNITS_MAX)
    clock.advance(1)
    assert await engine.job_limits.prune_tokens() == 0


async def test_a_clock_that_is_set_back_gives_no_tokens(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", rate="1/s", burst=3)
    await add(engine, 9)
    assert await claimed(engine, worker) == 3
    clock.advance(-2)
    assert await claimed(engine, worker) == 0
    clock.advance(3)
    assert await claimed(engine, worker) == 1


async def test_rate_and_concurrency_bound_together(engine: Engine, worker: str, clock: MovableClock) -> None:
    await limit(engine, "type:n", concurrency=2, rate="1/s", burst=3)
    await add(engine, 9)
    leases = await engine.claim(worker, limit=9)
    assert len(leases) == 2
    await end(engine, worker, *leases)
    assert await claimed(engine, worker) == 1  # the last token
    clock.advance(10)
    assert await claimed(engine, worker) == 1  # the last unit


# -- changes at run time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
async def test_jobs_that_run_already_count_from_when_a_limit_is_set(engine: Engine, worker: str, name: str) -> None:
    await add(engine, 9, limits={"gpu": 2})
    leases = await engine.claim(worker, limit=3)
    most = 10 if name == "gpu" else 5
    await limit(engine, name, concurrency=most)
    assert await used(engine, name) == (6 if name == "gpu" else 3)
    assert await claimed(engine, worker) == 2
    await held_by_jobs(engine)
    await end(engine, worker, *leases)
    assert await claimed(engine, worker) == 3
    assert await held_by_jobs(engine) == {name: most}


@pytest.mark.parametrize("name", ["key:n", "key:n a"])
async def test_jobs_of_a_key_that_run_already_count_from_when_its_limit_is_set(
    engine: Engine, worker: str, name: str
) -> None:
    await add(engine, 5, limit_key="a")
    leases = await engine.claim(worker, limit=2)
    await limit(engine, name, concurrency=3)
    assert await claimed(engine, worker) == 1
    assert await held_by_jobs(engine) == {"key:n a": 3}
    await end(engine, worker, *leases)
    assert await claimed(engine, worker) == 2


async def test_a_lowered_limit_waits_until_enough_jobs_have_ended(engine: Engine, worker: str) -> None:
    await limit(engine, "type:n", concurrency=4)
    await add(engine, 9)
    leases = await engine.claim(worker, limit=9)
    await limit(engine, "type:n", concurrency=2)
    for lease, more in zip(leases, (0, 0, 1, 1), strict=True):
        await end(engine, worker, lease)
        assert await claimed(engine, worker) == more
    assert await held_by_jobs(engine) == {"type:n": 2}


@pytest.mark.parametrize("name", ["type:n", "key:n", "key:n a"])
async def test_a_raised_limit_is_in_force_from_the_next_claim(engine: Engine, worker: str, name: str) -> None:
    await limit(engine, name, concurrency=1)
    await add(engine, 9, limit_key="a")
    assert await claimed(engine, worker) == 1
    assert await claimed(engine, worker) == 0
    await limit(engine, name, concurrency=3)
    assert await claimed(engine, worker) == 2
    await lift(engine, name)
    assert await claimed(engine, worker) == 6


@pytest.mark.parametrize("name", ["type:n", "key:n", "key:n a"])
@pytest.mark.parametrize("rate", ["1/h", 0])
async def test_a_raised_rate_is_in_force_from_the_next_claim(
    engine: Engine, worker: str, clock: MovableClock, name: str, rate: Any
) -> None:
    """Its keys do not wait for the tokens of the rate that is over."""
    await limit(engine, name, rate=rate, burst=1)
    await add(engine, 9, limit_key="a")
    assert await claimed(engine, worker) == 1
    assert await claimed(engine, worker) == 0
    await limit(engine, name, rate="1/s", burst=3)
    clock.advance(2)
    assert await claimed(engine, worker) == 2
    assert await claimed(engine, worker) == 0
    await lift(engine, name)
    assert await claimed(engine, worker) == 6


async def test_reset_returns_to_what_the_app_declares(engine: Engine, worker: str) -> None:
    await declare(engine, "n", limit=Limit(3))
    await limit(engine, "type:n", concurrency=1)
    await add(engine, 9)
    assert await claimed(engine, worker) == 1
    view = await engine.job_limits.reset("type:n")
    assert view is not None
    assert (view.limit, view.set_by, view.used) == (Limit(3), None, 1)
    assert await claimed(engine, worker) == 2
    await lift(engine, "type:n")
    assert await claimed(engine, worker) == 6
    await engine.job_limits.reset("type:n")
    assert await claimed(engine, worker) == 0
    assert await held_by_jobs(engine) == {"type:n": 9}


async def test_what_an_operator_sets_outlives_declarations(engine: Engine, worker: str) -> None:
    await declare(engine, "n", limit=Limit(3))
    await limit(engine, "type:n", concurrency=1)
    await declare(engine, "n", limit=Limit(5))
    await add(engine, 9)
    assert await claimed(engine, worker) == 1
    await engine.job_limits.reset("type:n")
    assert await claimed(engine, worker) == 4


async def test_a_limit_that_is_no_longer_declared_is_gone_and_counts_again_when_it_is_back(
    engine: Engine, worker: str
) -> None:
    await declare(engine, "n", limit=Limit(1))
    await add(engine, 9)
    assert await claimed(engine, worker) == 1
    await declare(engine, "n")
    assert await claimed(engine, worker, 3) == 3
    await declare(engine, "n", limit=Limit(5))
    assert await held_by_jobs(engine) == {"type:n": 4}
    assert await claimed(engine, worker) == 1


async def test_to_change_a_limit_that_does_not_exist_is_not_found(engine: Engine) -> None:
    for change in (engine.job_limits.reset("gpu"), engine.job_limits.set("gpu", None, by="olga")):
        with pytest.raises(NotFound, match="there is no limit 'gpu'") as caught:
            await change
        assert caught.value.code == "limit_not_found"


async def test_the_only_lane_with_jobs_obeys_a_limit_that_is_set_later(engine: Engine, worker: str) -> None:
    """A claim that does not read the lanes finds out."""
    await add(engine, 9)
    assert [await claimed(engine, worker, 1) for _ in range(3)] == [1, 1, 1]
    await limit(engine, "type:n", concurrency=4)
    assert [await claimed(engine, worker, 1) for _ in range(3)] == [1, 0, 0]


async def test_jobs_of_one_lane_that_are_equally_urgent_by_their_age_are_each_counted_once(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    engine.ctx.limits = replace(engine.ctx.limits, ageing_seconds=10)
    await limit(engine, "type:n", concurrency=3)
    await add(engine, 2)
    clock.advance(50)
    await add(engine, 2, priority=5)
    assert await claimed(engine, worker) == 3
    assert await held_by_jobs(engine) == {"type:n": 3}


async def test_lanes_that_were_read_for_an_earlier_claim_obey_a_limit_that_is_set_later(
    engine: Engine, worker: str
) -> None:
    """With more lanes than one read sees, a claim takes from lanes that it has not read again."""
    engine.ctx.limits = replace(engine.ctx.limits, lanes_max=4)
    for number in range(12):
        await add(engine, 3, type=f"type-{number:02}")
    assert [await claimed(engine, worker, 1) for _ in range(3)] == [1, 1, 1]
    await limit(engine, "queue:default", concurrency=4)
    assert sum([await claimed(engine, worker, 1) for _ in range(12)]) == 1
    assert await held_by_jobs(engine) == {"queue:default": 4}


async def test_jobs_that_are_leased_reach_the_worker_if_the_limited_part_of_the_claim_fails(
    engine: Engine, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a transaction around both, the first part is committed."""

    async def failing(*_: object) -> None:
        raise RuntimeError("the connection is lost")

    await limit(engine, "type:limited", concurrency=1)
    free = await engine.create(NewJob(type="free", tenant="a"))
    await engine.create(NewJob(type="limited", tenant="b"))
    monkeypatch.setattr("holdfast.engine.claim.take_limited", failing)
    if engine.store.transaction_class.one_writer:
        with pytest.raises(RuntimeError):
            await engine.claim(worker, limit=2, at_once=True)
        assert (await engine.reads.get(free.id)).state == "queued"
    else:
        assert [lease.id for lease in await engine.claim(worker, limit=2, at_once=True)] == [free.id]
