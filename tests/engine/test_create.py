"""create and accept: an intent becomes a durable job, once per idempotency key."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Created, Engine, EngineLimits
from holdfast.engine.insert import checked
from holdfast.engine.maintenance.prune import SEEN_SECONDS, Retention
from holdfast.engine.policy_settings import PolicySettings
from holdfast.errors import HoldfastError, Invalid, KeyReused, NotFound, StoreUnavailable
from holdfast.ids import SeededIds
from holdfast.lifecycle import Actor, State
from holdfast.model import JobType, NewJob
from holdfast.store import open_store
from tests.engine.steps import UNKNOWN_ID, ask, run, stored

DAY = 86_400


async def jobs_in(engine: Engine) -> int:
    [row] = await ask(engine, "SELECT count(*) AS jobs FROM holdfast_jobs")
    return int(row["jobs"])


async def test_a_created_job_stores_every_field_of_the_request(engine: Engine, clock: MovableClock) -> None:
    """R001-26, R001-30, R001-57, R001-60, S1: all of the intent is in the row, and its history begins with it."""
    sent = NewJob(
        type="mail",
        payload={"to": ["a", "ü", None, 1.5]},
        queue="post",
        priority=7,
        tags=["b", "a", "b"],
        trace={"traceparent": "00-1"},
        partition_key="p",
        parent_id=UNKNOWN_ID,
        max_attempts=2,
    )
    created = await engine.create(sent)

    job = await engine.reads.get(created.id)
    assert (job.type, job.payload, job.queue, job.priority) == (sent.type, sent.payload, "post", 7)
    assert (job.tags, job.trace, job.partition_key) == (["a", "b"], sent.trace, "p")
    assert (job.parent_id, job.max_attempts, job.tenant, job.attempt) == (UNKNOWN_ID, 2, "default", 0)
    assert job.created_at == job.updated_at == job.run_at == clock.now()
    assert [(e.seq, e.verb, e.to_state, e.actor) for e in await engine.reads.history(job.id)] == [
        (1, "create", "queued", "client"),
    ]


async def test_a_lifecycle_with_a_created_state_records_create_and_accept_as_two_events(engine: Engine) -> None:
    """R001-10: created, then accepted, also when one call does both."""
    created = await engine.create(NewJob(type="n", lifecycle="orchestration"))
    assert [(e.seq, e.verb, e.to_state) for e in await engine.reads.history(created.id)] == [
        (1, "create", "created"),
        (2, "accept", "queued"),
    ]


async def test_a_lifecycle_without_created_starts_at_queued(engine: Engine) -> None:
    """C-9, R000-22, R002-10: one line of history, not two."""
    created = await engine.create(NewJob(type="crawl", lifecycle="crawl"))

    assert [(e.verb, e.to_state) for e in await engine.reads.history(created.id)] == [("create", "queued")]


async def test_a_batch_is_answered_in_the_order_it_was_sent(engine: Engine) -> None:
    jobs = [NewJob(type="n", payload={"n": n}) for n in range(50)]

    answers = await engine.create_many(jobs)

    assert [(await engine.reads.get(answer.id)).payload["n"] for answer in answers] == list(range(50))
    assert await engine.create_many([]) == []


WRONG = [
    NewJob(type=""),
    NewJob(type="bad\x07bell"),
    NewJob(type="ok", queue="line\nbreak"),
    NewJob(type="ok", tenant=" "),
    NewJob(type="ok", priority=101),
    NewJob(type="ok", priority=True),
    NewJob(type="ok", max_attempts=0),
    NewJob(type="ok", delay_seconds=-1),
    NewJob(type="ok", delay_seconds=float("nan")),
    NewJob(type="ok", idempotency_key=""),
    NewJob(type="ok", idempotency_key="k" * 256),
    NewJob(type="ok", lifecycle="defualt"),
    NewJob(type="ok", policy={"lease_seconds": -1}),
    NewJob(type="ok", policy={"lease": 5}),
    NewJob(type="ok", payload={"n": float("nan")}),
    NewJob(type="ok", payload={"n": "\x00"}),
    NewJob(type="ok", payload=[]),  # type: ignore[arg-type]
    NewJob(type="ok", payload={"n": "x" * 256 * 1024}),
    NewJob(type="ok", tags=["\x00"]),
    NewJob(type="ok", requires=[""]),
    NewJob(type="ok", parent_id="not an id"),
    NewJob(type="ok", partition_key="\x00"),
    NewJob(type="ok", trace={"t": "\x00"}),
]


async def test_one_wrong_job_refuses_the_whole_batch(engine: Engine) -> None:
    """All or nothing: a typed error with a code that names the thing, and nothing written."""
    for wrong in WRONG:
        with pytest.raises(Invalid) as refused:
            await engine.create_many([NewJob(type="fine"), wrong, NewJob(type="fine")])
        assert refused.value.code not in ("invalid", "error"), wrong
    assert await jobs_in(engine) == 0


async def test_more_jobs_than_one_statement_takes_are_created_all_or_none(engine: Engine) -> None:
    engine.ctx.limits = EngineLimits(batch_max=2)
    with pytest.raises(Invalid) as refused:
        await engine.create_many([NewJob(type="n")] * 4 + [NewJob(type="n", priority=10**6)])
    assert refused.value.fields["place"] == 4
    assert await jobs_in(engine) == 0
    assert len({made.id for made in await engine.create_many([NewJob(type="n")] * 5)}) == 5


async def test_a_delayed_job_waits_until_its_time(engine: Engine, worker: str, clock: MovableClock) -> None:
    """S9: nothing runs early, by run_at or by delay."""
    await engine.create(NewJob(type="n", delay_seconds=60))
    await engine.create(NewJob(type="n", run_at=clock.now() + timedelta(seconds=60)))

    clock.advance(59.999)
    assert await engine.claim(worker, limit=2) == []
    clock.advance(0.001)
    assert len(await engine.claim(worker, limit=2)) == 2


# -- idempotency ------------------------------------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_first_job(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R001-40..43, S2: the same id and the status of now, for ever, whatever became of the job."""
    request = NewJob(type="pay", payload={"b": 1, "a": 2}, idempotency_key="req-1", delay_seconds=0)
    first = await engine.create(request)
    assert first == Created(first.id, State.QUEUED)

    same = NewJob(type="pay", payload={"a": 2, "b": 1}, idempotency_key="req-1", delay_seconds=0)
    assert await engine.create(same) == Created(first.id, State.QUEUED, existed=True)
    [lease] = await engine.claim(worker)
    assert (await engine.create(request)).status == "RUNNING"
    await engine.fail(worker, lease.id, lease.token, "E_NO", permanent=True)
    clock.advance(400 * DAY)
    assert await engine.create(request) == Created(first.id, State.DEAD, existed=True)
    assert await jobs_in(engine) == 1


@pytest.mark.parametrize(
    "other",
    [
        NewJob(type="pay", payload={"sum": 2}, idempotency_key="req-1"),
        NewJob(type="refund", payload={"sum": 1}, idempotency_key="req-1"),
        NewJob(type="pay", payload={"sum": 1}, idempotency_key="req-1", priority=1),
        NewJob(type="pay", payload={"sum": 1}, idempotency_key="req-1", delay_seconds=1),
    ],
    ids=["payload", "type", "priority", "delay"],
)
async def test_an_idempotency_key_reused_with_a_different_request_is_rejected(engine: Engine, other: NewJob) -> None:
    """C-19, S2: a different body is not a retry; nothing changes, not even for its neighbours in the batch."""
    first = await engine.create(NewJob(type="pay", payload={"sum": 1}, idempotency_key="req-1"))
    before = await stored(engine, first.id)

    with pytest.raises(KeyReused) as refused:
        await engine.create_many([NewJob(type="fine"), other])
    with pytest.raises(KeyReused):
        await engine.create(other)

    assert refused.value.code == "idempotency_key_reused"
    assert refused.value.fields["job_id"] == first.id
    assert await stored(engine, first.id) == before
    assert await jobs_in(engine) == 1


async def test_equal_keys_inside_one_batch_are_one_job(engine: Engine) -> None:
    request = NewJob(type="pay", idempotency_key="twice")

    first, other, second = await engine.create_many([request, NewJob(type="pay"), request])

    assert (first.id, first.existed, second.existed) == (second.id, False, True)
    assert other.id != first.id
    with pytest.raises(KeyReused):
        await engine.create_many(
            [NewJob(type="pay", idempotency_key="new"), NewJob(type="pay", idempotency_key="new", priority=1)]
        )
    assert await jobs_in(engine) == 2


async def test_two_tenants_may_use_the_same_key(engine: Engine) -> None:
    """H9: a tenant can neither probe nor block another tenant's keys."""
    ours = await engine.create(NewJob(type="pay", payload={"n": 1}, tenant="ours", idempotency_key="k"))
    theirs = await engine.create(NewJob(type="pay", payload={"n": 2}, tenant="theirs", idempotency_key="k"))

    assert ours.id != theirs.id
    assert not theirs.existed


async def test_a_crawl_key_is_free_after_a_day(engine: Engine, clock: MovableClock) -> None:
    """R002-18, C-18: the same key within 24 h returns the original job; then it starts a new one."""
    request = NewJob(type="site", lifecycle="crawl", idempotency_key="k")
    first = await engine.create(request)
    clock.advance(DAY - 1)
    assert (await engine.create(request)).id == first.id

    clock.advance(1)
    second = await engine.create(request)

    assert (second.existed, second.id == first.id) == (False, False)
    assert (await engine.create(request)).id == second.id
    assert (await engine.reads.get(first.id)).idempotency_key == "k", "kept for the record"


async def test_a_generation_key_is_free_once_its_job_failed(engine: Engine, worker: str) -> None:
    """R004-28, C-18: not while it waits, runs or retries, and not after success; another request may take it too."""
    request = NewJob(type="image", lifecycle="generation", idempotency_key="k")
    first = await engine.create(request)
    [lease] = await engine.claim(worker)
    assert (await engine.create(request)).id == first.id
    await engine.fail(worker, lease.id, lease.token, "E_HICCUP")
    assert (await engine.create(request)).id == first.id

    await engine.discard(first.id)
    second = await engine.create(NewJob(type="image", lifecycle="generation", payload={"n": 2}, idempotency_key="k"))
    assert second.id != first.id

    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token)
    with pytest.raises(KeyReused):
        await engine.create(request)
    again, twin = await engine.create_many(
        [NewJob(type="image", lifecycle="generation", payload={"n": 2}, idempotency_key="k")] * 2
    )
    assert again.id == twin.id == second.id


async def test_a_generation_key_is_free_after_a_day(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-18: a window and freed by failure, whichever comes first; the job need not have ended."""
    request = NewJob(type="image", lifecycle="generation", idempotency_key="k")
    first = await engine.create(request)
    clock.advance(DAY - 1)
    assert (await engine.create(request)).id == first.id
    clock.advance(1)
    assert (await engine.create(request)).id != first.id


@pytest.mark.parametrize("idempotency", ["until_failed", "window_until_failed"])
async def test_a_rejection_frees_no_key(engine: Engine, worker: str, clock: MovableClock, idempotency: str) -> None:
    """R004-28, R004-29, C-18: a repeat after a quick rejection, before or after it was pruned, is charged nothing."""
    policy = {"idempotency": idempotency}
    request = NewJob(type="image", lifecycle="generation", idempotency_key="k", policy=policy)
    first = await engine.create(request)
    [lease] = await engine.claim(worker)
    await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK")

    assert await engine.create(request) == Created(first.id, State.REJECTED, existed=True)
    for _ in range(2):
        await engine.maintenance.prune(Retention(rejected=0))
        clock.advance(SEEN_SECONDS)
    assert await jobs_in(engine) == 0
    assert await engine.create(request) == Created(first.id, State.REJECTED, existed=True)
    clock.advance(DAY)
    await engine.maintenance.prune(Retention(rejected=0))
    assert (await engine.create(request)).existed is (idempotency == "until_failed"), "its window is over"


async def test_a_cancel_frees_a_key_that_failure_frees(engine: Engine) -> None:
    """C-18: what was reserved is given back, so a repeat is a new request."""
    request = NewJob(type="n", idempotency_key="k", policy={"idempotency": "window_until_failed"})
    first = await engine.create(request)
    await engine.cancel(first.id)
    assert (await engine.create(request)).id != first.id


async def test_a_freed_key_is_used_once_within_a_batch(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker, type="image", lifecycle="generation", idempotency_key="k")
    await engine.fail(worker, lease.id, lease.token, "E_NO", permanent=True)

    request = NewJob(type="image", lifecycle="generation", idempotency_key="k")
    taker, follower = await engine.create_many([request, request])

    assert (taker.existed, follower.existed) == (False, True)
    assert taker.id == follower.id != lease.id


async def test_fifty_concurrent_creates_with_a_freed_key_make_one_job(engine: Engine, worker: str) -> None:
    """C-18: concurrent creates with a key that a dead job freed all return the same new job."""
    lease = await run(engine, worker, type="image", lifecycle="generation", idempotency_key="k")
    await engine.fail(worker, lease.id, lease.token, "E_NO", permanent=True)

    request = NewJob(type="image", lifecycle="generation", idempotency_key="k")
    answers = await asyncio.gather(*(engine.create(request) for _ in range(50)))

    assert len({answer.id for answer in answers} - {lease.id}) == 1
    assert await jobs_in(engine) == 2


# -- resolution -------------------------------------------------------------------------------------------------------


async def test_policy_precedence_is_request_job_type_lifecycle_default_setting(
    store_url: str, clock: MovableClock
) -> None:
    """C-10, C-16: four layers, and a default fills in only what the lifecycle leaves open."""
    ids = SeededIds(3)
    settings = PolicySettings({"lease_seconds": 45, "max_attempts": 9})
    engine = Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids, policy_settings=settings)
    worker = (await engine.workers.register()).id
    await engine.job_types.declare(JobType(name="site", lifecycle="crawl", queue="web", policy={"max_attempts": 2}))

    async def lease(new: NewJob) -> tuple[str, str, int, float]:
        await engine.create(new)
        [lease] = await engine.claim(worker)
        seconds = (lease.expires_at - lease.claimed_at).total_seconds()
        return lease.lifecycle, lease.queue, lease.max_attempts, seconds

    assert await lease(NewJob(type="undeclared")) == ("default", "default", 9, 45)
    assert await lease(NewJob(type="any", lifecycle="crawl")) == ("crawl", "default", 7, 90)
    assert await lease(NewJob(type="site")) == ("crawl", "web", 2, 90)
    assert await lease(NewJob(type="site", queue="q", max_attempts=1)) == ("crawl", "q", 1, 90)
    asked = NewJob(type="site", lifecycle="images", policy={"max_attempts": 3, "lease_seconds": 60})
    assert await lease(asked) == ("images", "web", 3, 60)
    await engine.close()


async def test_a_later_declaration_does_not_change_a_job_that_exists(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """The policy is a snapshot: leases, attempts and the treatment of errors stay as they were at creation."""
    await engine.job_types.declare(
        JobType(name="site", policy={"lease_seconds": 60, "errors": {"E_BUSY": "permanent"}})
    )
    await engine.create(NewJob(type="site"))
    await engine.job_types.declare(JobType(name="site", lifecycle="images", policy={"max_attempts": 1}))

    [old] = await engine.claim(worker)
    assert (old.lifecycle, old.max_attempts, old.expires_at) == ("default", 5, clock.now() + timedelta(seconds=60))
    assert (await engine.fail(worker, old.id, old.token, "E_BUSY")).state is State.DEAD
    new = await run(engine, worker, type="site")
    assert (new.lifecycle, new.max_attempts) == ("images", 1)


async def test_an_invalid_declaration_rejects_all_job_types_of_the_call(engine: Engine) -> None:
    for wrong in (
        JobType(name="b", lifecycle="nope"),
        JobType(name="b", policy={"max_attempts": 0}),
        JobType(name="b", queue="\n"),
        JobType(name="b", requires=[""]),
    ):
        with pytest.raises(Invalid):
            await engine.job_types.declare(JobType(name="a", queue="elsewhere"), wrong)
    assert (await engine.reads.get((await engine.create(NewJob(type="a"))).id)).queue == "default"


# -- accept -----------------------------------------------------------------------------------------------------------


async def test_a_job_created_without_accepting_is_not_claimable_until_accepted(engine: Engine, worker: str) -> None:
    """R001-10, R001-16, R001-25, C-9: stored but never executed until accepted; accepting twice is harmless."""
    created = await engine.create(NewJob(type="n", lifecycle="orchestration"), accept=False)
    assert created.state is State.CREATED
    assert await engine.claim(worker) == []

    assert await engine.accept(created.id) == [created.id]
    before = await stored(engine, created.id)
    assert await engine.accept(created.id, UNKNOWN_ID, "no id at all") == []

    assert await stored(engine, created.id) == before
    assert [lease.id for lease in await engine.claim(worker)] == [created.id]
    assert [e.verb for e in await engine.reads.history(created.id)] == ["create", "accept", "claim"]


async def test_a_delay_still_applies_after_acceptance(engine: Engine, worker: str, clock: MovableClock) -> None:
    created = await engine.create(NewJob(type="n", delay_seconds=30), accept=False)
    await engine.accept(created.id)

    assert await engine.claim(worker) == []
    clock.advance(30)
    assert len(await engine.claim(worker)) == 1


async def test_orphans_are_accepted_after_a_minute(engine: Engine, clock: MovableClock) -> None:
    """C-9: the creator died between its two commits; a minute later maintenance finishes the acceptance."""
    orphan = await engine.create(NewJob(type="n", lifecycle="orchestration"), accept=False)
    clock.advance(59)
    assert await engine.maintenance.accept_orphans() == 0
    clock.advance(1)

    assert await engine.maintenance.accept_orphans() == 1

    assert (await engine.reads.get(orphan.id)).state is State.QUEUED
    assert (await engine.reads.history(orphan.id))[-1].actor == Actor.SYSTEM


async def test_orphans_wait_for_ever_where_the_limit_is_zero(engine: Engine, clock: MovableClock) -> None:
    """C-9: `accept_orphans_seconds` 0 means never."""
    engine.ctx.limits = EngineLimits(accept_orphans_seconds=0)
    await engine.create(NewJob(type="n", lifecycle="orchestration"), accept=False)
    clock.advance(DAY)
    assert await engine.maintenance.accept_orphans() == 0


async def test_a_repeated_request_says_that_its_job_still_waits_for_acceptance(engine: Engine) -> None:
    """C-9: so that the client's retry can finish what its first try did not."""
    request = NewJob(type="n", lifecycle="orchestration", idempotency_key="k")
    first = await engine.create(request, accept=False)

    again = await engine.create(request, accept=False)

    assert again == Created(first.id, State.CREATED, existed=True)


async def test_an_unknown_job_is_not_found(engine: Engine) -> None:
    for verb in (engine.reads.get, engine.cancel, engine.requeue, engine.redrive, engine.reads.why):
        for job_id in (UNKNOWN_ID, "", "no id at all"):
            with pytest.raises(NotFound) as refused:
                await verb(job_id)
            assert refused.value.code == "job_not_found"
    assert issubclass(NotFound, HoldfastError)


async def test_an_error_while_resolving_a_taken_key_does_not_fail_the_other_jobs_of_the_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are on disk: a client that got an error would create them again."""
    await engine.create(NewJob(type="echo", idempotency_key="k"))

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr("holdfast.engine.create.create_each", away)
    jobs = [NewJob(type="echo", idempotency_key="k"), NewJob(type="echo"), NewJob(type="echo", idempotency_key="new")]
    taken, *made = await engine.create_each([checked(job) for job in jobs])
    assert isinstance(taken, StoreUnavailable)
    assert [type(one) for one in made] == [Created, Created]
    assert len((await engine.reads.page()).jobs) == 3
