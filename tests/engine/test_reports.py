"""complete, fail, release, reject: how an attempt ends, and that a repeated report changes nothing."""

from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Complete, Engine, Fail, Progress, Rejection, Release, Settled
from holdfast.errors import Conflict, IllegalMove, Invalid, LeaseLost
from holdfast.lifecycle import State
from holdfast.model import Lease, NewJob
from tests.engine.steps import UNKNOWN_ID, run, stored, sweep

# -- complete ---------------------------------------------------------------------------------------------------------


async def test_a_completed_job_keeps_its_result_and_gives_up_its_lease(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """R001-13, R001-18, R001-69, R002-14, R003-60, C-30: the lease leaves the row and stays in the attempt."""
    lease = await run(engine, worker, instance="pod-1")
    clock.advance(12)
    assert await engine.complete(worker, lease.id, lease.token, {"url": "s3://x"}) == Settled(lease.id, State.SUCCEEDED)

    job = await engine.reads.get(lease.id)
    assert (job.state, job.result, job.finished_at) == (State.SUCCEEDED, {"url": "s3://x"}, clock.now())
    assert (job.lease_token, job.lease_worker, job.lease_expires_at, job.last_worker) == (None, None, None, worker)
    [attempt] = await engine.reads.attempts(lease.id)
    assert (attempt.worker_id, attempt.instance, attempt.token) == (worker, "pod-1", lease.token)
    assert (attempt.outcome, attempt.to_state) == ("succeeded", "succeeded")
    assert attempt.ended_at - attempt.started_at == timedelta(seconds=12)


@pytest.mark.parametrize("result", [None, 0, "", [], {}, {"a": [1, 2.5, None, "ü"]}, "null"], ids=repr)
async def test_a_repeated_complete_gets_the_same_answer(engine: Engine, worker: str, result: object) -> None:
    """S14: with the same token and result; another result, verb or worker finds the lease gone."""
    lease = await run(engine, worker)
    first = await engine.complete(worker, lease.id, lease.token, result)
    before = await stored(engine, lease.id)
    other = (await engine.workers.register()).id

    assert await engine.complete(worker, lease.id, lease.token, result) == first
    for another in (
        engine.complete(worker, lease.id, lease.token, {"another": "result"}),
        engine.complete(other, lease.id, lease.token, result),
        engine.fail(worker, lease.id, lease.token, "E"),
        engine.release(worker, lease.id, lease.token),
        engine.reject(worker, lease.id, lease.token, "E"),
        engine.progress(worker, Progress(id=lease.id, token=lease.token)),
    ):
        with pytest.raises(LeaseLost):
            await another
    assert await stored(engine, lease.id) == before


async def test_a_batch_of_completions_settles_each_job_independently(engine: Engine, worker: str) -> None:
    """K3: one lost lease refuses nothing but itself; the answers come in the order asked."""
    good, lost, last = [await run(engine, worker) for _ in range(3)]

    answers = await engine.complete_many(
        worker,
        [
            Complete(last.id, last.token, 3),
            Complete(lost.id, UNKNOWN_ID),
            Complete(good.id, good.token, 1),
            Complete("no id", "no token"),
            Complete(UNKNOWN_ID, UNKNOWN_ID),
        ],
    )

    assert [type(answer) for answer in answers] == [Settled, LeaseLost, Settled, LeaseLost, LeaseLost]
    assert [(await engine.reads.get(lease.id)).state for lease in (good, lost, last)] == [
        "succeeded",
        "running",
        "succeeded",
    ]


async def twice(engine: Engine, worker: str) -> tuple[Lease, Lease]:
    """Two leases of one job, issued to the same worker; the first is stale."""
    old = await run(engine, worker)
    await engine.release(worker, old.id, old.token)
    [new] = await engine.claim(worker)
    assert new.id == old.id
    return old, new


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["stale first", "stale last"])
async def test_a_batch_with_a_stale_and_a_current_lease_of_one_job_accepts_the_current_one(
    engine: Engine, worker: str, order: tuple[int, int]
) -> None:
    """S4, S14: a worker that lost a job and claimed it again may report both runs at once; only one of them counts."""
    for verb in ("complete", "fail", "release", "reject", "progress"):
        leases = await twice(engine, worker)
        old, new = leases
        match verb:
            case "complete":
                done = [Complete(lease.id, lease.token, {"epoch": lease.epoch}) for lease in leases]
                answers = await engine.complete_many(worker, [done[n] for n in order])
                assert (await engine.reads.get(old.id)).result == {"epoch": 2}
            case "fail":
                failures = [Fail(id=lease.id, token=lease.token, code=f"E_{lease.epoch}") for lease in leases]
                answers = await engine.fail_many(worker, [failures[n] for n in order])
                assert (await engine.reads.get(old.id)).error["code"] == "E_2"
            case "release":
                freed = [Release(lease.id, lease.token, 100 * lease.epoch) for lease in leases]
                answers = await engine.release_many(worker, [freed[n] for n in order])
                answers = [a if n else LeaseLost("repeat of the first") for a, n in zip(answers, order, strict=True)]
                assert (await engine.reads.get(old.id)).run_at == new.run_at + timedelta(seconds=200)
            case "reject":
                verdicts = [Rejection(id=lease.id, token=lease.token, code=f"E_{lease.epoch}") for lease in leases]
                answers = await engine.reject_many(worker, [verdicts[n] for n in order])
                assert (await engine.reads.get(old.id)).reason == "E_2"
            case _:
                reports = [Progress(id=lease.id, token=lease.token, counters={"n": lease.epoch}) for lease in leases]
                answers = await engine.progress_many(worker, [reports[n] for n in order])  # type: ignore[assignment]
                assert (await engine.reads.get(old.id)).counters == {"n": 2}
                await engine.complete(worker, new.id, new.token)
        assert [isinstance(answer, LeaseLost) for answer in answers] == [n == 0 for n in order], verb


async def test_two_reports_about_one_lease_in_a_batch_apply_in_order(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    first, repeat, other = await engine.complete_many(worker, [Complete(lease.id, lease.token, n) for n in (1, 1, 2)])

    assert first == repeat == Settled(lease.id, State.SUCCEEDED)
    assert isinstance(other, LeaseLost)
    reported = await run(engine, worker)
    await engine.progress_many(
        worker, [Progress(id=reported.id, token=reported.token, percent=p, counters={str(p): p}) for p in (1, 2)]
    )
    job = await engine.reads.get(reported.id)
    assert (job.percent, job.counters) == (2, {"1": 1, "2": 2})


async def test_a_result_that_cannot_be_stored_leaves_the_job_running(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for result in (float("nan"), {"n": "\x00"}, {1: 2}, object(), "x" * 300_000):
        with pytest.raises(Invalid):
            await engine.complete(worker, lease.id, lease.token, result)
    assert await stored(engine, lease.id) == before


async def test_success_clears_the_error_of_the_attempt_before(engine: Engine, worker: str) -> None:
    """R003-61: it stays in the attempt that made it."""
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_ONCE", retry_after_seconds=0)
    [lease] = await engine.claim(worker)
    await engine.complete(worker, lease.id, lease.token)

    job = await engine.reads.get(lease.id)
    assert (job.error, job.reason) == (None, None)
    assert [attempt.error and attempt.error["code"] for attempt in await engine.reads.attempts(lease.id)] == [
        "E_ONCE",
        None,
    ]


# -- fail -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
async def test_max_attempts_counts_all_executions(engine: Engine, worker: str, max_attempts: int) -> None:
    """C-15, R003-4, R003-10, R003-74..79, R001-28, R004-20..23: retry unless the attempt that ran was the last."""
    lease = await run(engine, worker, type="n", max_attempts=max_attempts)
    ended = []
    for attempt in range(1, max_attempts + 1):
        assert lease.attempt == attempt
        ended.append((await engine.fail(worker, lease.id, lease.token, "E", retry_after_seconds=0)).state)
        if attempt < max_attempts:
            [lease] = await engine.claim(worker)

    assert ended == [State.RETRYING] * (max_attempts - 1) + [State.DEAD]
    assert await engine.claim(worker) == []
    attempts = await engine.reads.attempts(lease.id)
    assert [(a.attempt, a.outcome) for a in attempts] == [(n, "failed") for n in range(1, max_attempts + 1)]
    assert (await engine.reads.get(lease.id)).reason == "E"


@pytest.mark.parametrize(
    ("code", "state", "least", "most"),
    [
        ("network_error", State.RETRYING, 0, 2),
        ("E_429_RATE", State.RETRYING, 0, 2),
        ("E_SOMETHING_NEW", State.RETRYING, 0, 2),
        ("captcha", State.RETRYING, 0, 2),
        ("invalid_url", State.DEAD, 0, 0),
        ("robots_disallowed", State.DEAD, 0, 0),
        ("E_PARSE", State.DEAD, 0, 0),
    ],
)
async def test_the_error_code_decides_whether_a_crawl_is_retried(
    engine: Engine, worker: str, clock: MovableClock, code: str, state: State, least: float, most: float
) -> None:
    """R002-15, R002-20..24: transient codes are retried, permanent ones are not."""
    lease = await run(engine, worker, lifecycle="crawl")
    assert (await engine.fail(worker, lease.id, lease.token, code)).state is state

    job = await engine.reads.get(lease.id)
    if state is State.RETRYING:
        assert least <= (job.run_at - clock.now()).total_seconds() <= most


async def test_backoff_doubles_up_to_a_cap_that_is_higher_for_throttled_codes(
    engine: Engine, worker: str, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-17, R002-21, R002-27: base 2 s, factor 2, cap 600 s; throttled codes go on to an hour."""
    monkeypatch.setattr(engine.ctx.ids, "jitter", lambda: 1.0)
    waits: dict[str, list[float]] = {"network_error": [], "captcha": []}
    for code, waited in waits.items():
        lease = await run(engine, worker, type=code, lifecycle="crawl", max_attempts=14)
        for _ in range(13):
            await engine.fail(worker, lease.id, lease.token, code)
            waited.append(((await engine.reads.get(lease.id)).run_at - clock.now()).total_seconds())
            clock.advance(waited[-1])
            [lease] = await engine.claim(worker, types=[code])

    assert waits["network_error"] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600, 600]
    assert waits["captcha"] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]


async def test_a_retry_waits_for_its_backoff_and_jitter_spreads_it(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """S9, C-17: full jitter, so a hundred failures do not come back in one wave; none comes early."""
    leases = [await run(engine, worker, lifecycle="images") for _ in range(20)]
    await engine.fail_many(worker, [Fail(id=lease.id, token=lease.token, code="E") for lease in leases])

    due = sorted([(await engine.reads.get(lease.id)).run_at - clock.now() for lease in leases])
    assert timedelta(0) < due[0] < due[-1] < timedelta(seconds=2)
    assert len(set(due)) == 20
    clock.advance(due[9].total_seconds())
    assert len(await engine.claim(worker, limit=20)) == 10


async def test_a_worker_may_set_the_retry_delay(engine: Engine, worker: str, clock: MovableClock) -> None:
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_429", retry_after_seconds=7200)

    assert (await engine.reads.get(lease.id)).run_at == clock.now() + timedelta(seconds=7200)


async def test_transcode_retries_at_once(engine: Engine, worker: str) -> None:
    """C-17, R003-75: base 0."""
    lease = await run(engine, worker, lifecycle="transcode")
    await engine.fail(worker, lease.id, lease.token, "E")
    assert [again.id for again in await engine.claim(worker)] == [lease.id]


async def test_a_worker_may_report_a_permanent_failure(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    settled = await engine.fail(worker, lease.id, lease.token, "E_BAD_INPUT", "no such file", permanent=True)

    job = await engine.reads.get(lease.id)
    assert (settled.state, job.attempt, job.max_attempts) == (State.DEAD, 1, 5)
    assert (job.reason, job.error["code"], job.error["message"]) == ("E_BAD_INPUT", "E_BAD_INPUT", "no such file")


@pytest.mark.parametrize("permanent", [True, False])
async def test_an_orchestration_job_goes_to_dead_through_retrying_in_one_transaction(
    engine: Engine, worker: str, permanent: bool
) -> None:
    """C-3, R001-15, R001-19, R001-21: RUNNING -> RETRY -> DEAD, two events, one attempt, never claimable in between."""
    lease = await run(engine, worker, lifecycle="orchestration", max_attempts=5 if permanent else 1)
    settled = await engine.fail(worker, lease.id, lease.token, "E_FATAL", permanent=permanent)

    assert settled.state is State.DEAD
    events = (await engine.reads.history(lease.id))[-2:]
    assert [(e.from_state, e.to_state, e.reason, e.actor) for e in events] == [
        ("running", "retrying", "E_FATAL", "worker"),
        ("retrying", "dead", "E_FATAL", "worker"),
    ]
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["failed"]
    assert events[0].pos == events[1].pos or engine.store.dialect == "sqlite"
    assert await engine.fail(worker, lease.id, lease.token, "E_FATAL", permanent=permanent) == settled


async def test_the_error_of_a_failure_is_stored_and_an_overlong_message_is_truncated(
    engine: Engine, worker: str
) -> None:
    """R002-39, R002-40, R003-11, R003-73: code, message and context; an over-long message is cut, not refused."""
    lease = await run(engine, worker)
    context = {"domain": "example.com", "url": "https://example.com/"}
    await engine.fail(worker, lease.id, lease.token, "E", "\x00\ud800" + "ü" * 5000, context=context)

    error = (await engine.reads.get(lease.id)).error
    assert (error["code"], len(error["message"])) == ("E", 4000)
    assert error["context"] == {**context, "attempt": 1, "workerId": worker}, "the platform adds who and which attempt"
    assert error["message"].startswith("\ufffd?ü")
    assert error["message"].endswith("ü…")
    [attempt] = await engine.reads.attempts(lease.id)
    event = (await engine.reads.history(lease.id))[-1]
    assert attempt.error == event.data == error
    assert (attempt.reason, event.reason) == ("E", "E")


async def test_a_rejection_stores_its_error_context(engine: Engine, worker: str) -> None:
    """R002-40: also in the second attempt, whose number it tells."""
    first = await run(engine, worker, lifecycle="generation")
    await engine.fail(worker, first.id, first.token, "E", retry_after_seconds=0)
    await engine.maintenance.requeue_due()
    [again] = await engine.claim(worker)
    said = {"code": "SAFE_BLOCK", "message": "nsfw", "context": {"url": "https://example.com/"}}
    answer = await engine.reject(worker, again.id, again.token, **said)

    assert (await engine.reads.get(again.id)).error["context"] == {
        "url": "https://example.com/",
        "attempt": 2,
        "workerId": worker,
    }
    assert await engine.reject(worker, again.id, again.token, **said) == answer, "a repeat says the same again"
    with pytest.raises(LeaseLost):
        await engine.reject(worker, again.id, again.token, **{**said, "context": {"url": "https://example.org/"}})


async def test_a_failure_report_with_invalid_fields_is_rejected(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for wrong in (
        {"code": ""},
        {"code": "\n"},
        {"code": "E", "retry_after_seconds": -1},
        {"code": "E", "retry_after_seconds": float("nan")},
        {"code": "E", "retry_after_seconds": "soon"},
        {"code": "E", "context": {"n": float("nan")}},
        {"code": "E", "context": {"n": "x" * 50_000}},
    ):
        with pytest.raises(Invalid):
            await engine.fail(worker, lease.id, lease.token, **wrong)
    assert await stored(engine, lease.id) == before


async def test_a_repeated_fail_gets_the_same_answer_after_later_moves(
    engine: Engine, worker: str, clock: MovableClock
) -> None:
    """S14: the stored answer, also when the job was queued again, claimed again or given up meanwhile."""
    for lifecycle in ("default", "orchestration"):
        lease = await run(engine, worker, type=lifecycle, lifecycle=lifecycle)

        async def fail(code: str = "E", lease: Lease = lease) -> Settled:
            return await engine.fail(worker, lease.id, lease.token, code, "why", retry_after_seconds=0)

        first = await fail()
        assert first.state is State.RETRYING
        assert await fail() == first
        await engine.requeue(lease.id)
        assert await fail() == first
        [again] = await engine.claim(worker, types=[lifecycle])
        assert await fail() == first
        with pytest.raises(LeaseLost):
            await fail("E_OTHER")
        assert (await engine.reads.get(lease.id)).lease_token == again.token


# -- release and snooze -----------------------------------------------------------------------------------------------


async def test_a_released_job_is_claimable_immediately_and_its_attempt_is_not_counted(
    engine: Engine, worker: str
) -> None:
    """C-14, L8, S7: however often; the record keeps each run, and the old token stays worthless."""
    lease = await run(engine, worker, max_attempts=1)
    for epoch in range(1, 5):
        assert (lease.attempt, lease.epoch) == (1, epoch)
        assert await engine.release(worker, lease.id, lease.token) == Settled(lease.id, State.QUEUED)
        assert (await engine.reads.get(lease.id)).attempt == 0
        old = lease
        [lease] = await engine.claim(worker)
        with pytest.raises(LeaseLost):
            await engine.complete(worker, old.id, old.token)

    assert [(a.attempt, a.outcome) for a in await engine.reads.attempts(lease.id)] == [(1, "released")] * 4


async def test_a_snoozed_job_comes_back_after_its_delay(engine: Engine, worker: str, clock: MovableClock) -> None:
    """C-14: no attempt is used up by waiting."""
    lease = await run(engine, worker, max_attempts=1)
    await engine.release(worker, lease.id, lease.token, delay_seconds=30)

    assert (await engine.reads.get(lease.id)).reason == "snoozed"
    clock.advance(29)
    assert await engine.claim(worker) == []
    clock.advance(1)
    [again] = await engine.claim(worker)
    assert (again.id, again.attempt) == (lease.id, 1)


async def test_a_repeated_release_gets_the_same_answer(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    first = await engine.release(worker, lease.id, lease.token)
    assert await engine.release(worker, lease.id, lease.token) == first
    [again] = await engine.claim(worker)

    assert await engine.release(worker, lease.id, lease.token) == first
    assert (await engine.reads.get(lease.id)).lease_token == again.token, "and the new lease is not touched"
    with pytest.raises(LeaseLost):
        await engine.fail(worker, lease.id, lease.token, "E")


async def test_a_release_with_an_invalid_delay_is_rejected(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker)
    before = await stored(engine, lease.id)
    for delay in (-1, float("nan"), float("inf"), True, "soon", None):
        with pytest.raises(Invalid):
            await engine.release(worker, lease.id, lease.token, delay_seconds=delay)  # type: ignore[arg-type]
    assert await stored(engine, lease.id) == before


async def test_a_released_job_keeps_its_position_in_the_queue(engine: Engine, worker: str) -> None:
    first = await run(engine, worker, type="n")
    await engine.create(NewJob(type="n"))
    await engine.release(worker, first.id, first.token)

    assert [lease.id for lease in await engine.claim(worker)] == [first.id]


# -- reject -----------------------------------------------------------------------------------------------------------


async def test_a_worker_may_reject_a_job_it_runs(engine: Engine, worker: str) -> None:
    """R004-6, R004-24, C-4: policy, not failure; final, with its reason, and no retry."""
    lease = await run(engine, worker, lifecycle="generation")
    first = await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK", "nsfw")

    job = await engine.reads.get(lease.id)
    assert (first.state, job.state, job.reason) == (State.REJECTED, State.REJECTED, "SAFE_BLOCK")
    assert job.error == {"code": "SAFE_BLOCK", "message": "nsfw", "context": {"attempt": 1, "workerId": worker}}
    assert [attempt.outcome for attempt in await engine.reads.attempts(lease.id)] == ["rejected"]
    assert (await engine.reads.history(lease.id))[-1].reason == "SAFE_BLOCK"
    assert await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK", "nsfw") == first
    with pytest.raises(LeaseLost):
        await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK", "gore")


async def test_reject_queued_rejects_only_jobs_that_have_not_started(engine: Engine, worker: str) -> None:
    """R004-2, C-4: before it ran; what has left the queue is not touched."""
    running = await run(engine, worker, lifecycle="generation")
    queued = await engine.create(NewJob(type="image", lifecycle="generation", delay_seconds=60))
    before = await stored(engine, running.id)

    verdicts = [
        Rejection(id=job_id, token="", code="SAFE_BLOCK", message="nsfw")
        for job_id in (running.id, queued.id, UNKNOWN_ID)
    ]
    assert await engine.reject_queued(*verdicts) == [queued.id]

    job = await engine.reads.get(queued.id)
    assert (job.state, job.error["code"], job.attempt) == (State.REJECTED, "SAFE_BLOCK", 0)
    assert (await engine.reads.history(queued.id))[-1].actor == "system"
    assert await engine.reads.attempts(queued.id) == []
    assert await stored(engine, running.id) == before


async def test_a_lifecycle_without_rejection_refuses_it(engine: Engine, worker: str) -> None:
    lease = await run(engine, worker, lifecycle="crawl")
    before = await stored(engine, lease.id)
    with pytest.raises(IllegalMove):
        await engine.reject(worker, lease.id, lease.token, "SAFE_BLOCK")
    assert await stored(engine, lease.id) == before
    assert issubclass(IllegalMove, Conflict)


async def test_reject_and_discard_of_a_malformed_id_are_ignored(engine: Engine) -> None:
    assert await engine.reject_queued(Rejection(id="no id at all", token="", code="E")) == []
    assert await engine.discard("no id at all") == []
    assert await sweep(engine, MovableClock(), 10) == []
