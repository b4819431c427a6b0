"""Releases without a run: only jobs that another worker can start sooner are released."""

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast import App, Context, SyncContext
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.reports import Fleet, HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.prefetch import Prefetch
from tests.engine.steps import ask
from tests.known.outages.churn import churn
from tests.worker.in_process import until, verbs, working

AWAY = StoreUnavailable("the database is away, on purpose")


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(300)
async def test_faults_cause_no_failure_no_loss_and_few_releases(fresh_postgres_url: str, tmp_path: Path) -> None:
    """A sample; `make soak` goes on for longer."""
    cost = await churn(fresh_postgres_url, tmp_path, seed=2, seconds=12)
    print(cost)
    assert cost.failed == {}
    assert cost.reaped == {}
    assert cost.given_back_without_a_run <= cost.jobs / 100


async def test_prefetched_jobs_are_not_released_during_an_outage(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    @app.job()
    async def reports(ctx: Context) -> None:
        await ctx.progress(50)

    async with working(app, concurrency=1) as at_work:
        for job in await quick.enqueue_many([{}] * 30):
            await job.result(60)
        at_work.source.broken["progress"] = AWAY
        handed_in = [await reports.enqueue(), *await quick.enqueue_many([{}] * 10)]
        await until(lambda: at_work.worker.slots.buffer and at_work.worker.progress.waiting)
        await asyncio.sleep(1.5)  # longer than a job may wait behind a handler that does not end
        at_work.source.broken.clear()
        for job in handed_in:
            await job.result(60)
    assert [await verbs(app, job.id) for job in handed_in if "release" in await verbs(app, job.id)] == []


async def test_a_single_worker_releases_no_prefetched_job(app: App) -> None:
    gate = threading.Event()

    @app.job()
    async def quick() -> None: ...

    @app.job()
    def long(ctx: SyncContext) -> None:
        gate.wait(30)

    try:
        async with working(app, concurrency=1) as at_work:
            for job in await quick.enqueue_many([{}] * 30):
                await job.result(60)
            at_work.worker.on_heartbeat(HeartbeatResult(renewed=True, fleet=Fleet(live=1)))
            handed_in = [await long.enqueue(), *await quick.enqueue_many([{}] * 10)]
            await until(lambda: at_work.worker.slots.buffer)
            await asyncio.sleep(1.5)
            assert at_work.worker.slots.buffer, "no other worker could start them"
            at_work.worker.on_heartbeat(HeartbeatResult(renewed=True, fleet=Fleet(live=2)))
            await until(lambda: not at_work.worker.slots.buffer)
            gate.set()
            for job in handed_in:
                await job.result(60)
    finally:
        gate.set()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_claim_whose_answer_was_lost_is_run_and_not_released(app: App, times: int) -> None:
    """Also when the database goes away again while the worker asks what it holds."""

    @app.job()
    async def quick() -> str:
        return "ran"

    jobs = await quick.enqueue_many([{}] * 5)
    async with working(app) as at_work:
        at_work.source.lost_answers.add("claim")
        at_work.source.broken["recover_claims"] = OutcomeUnknown("away again, on purpose")
        await until(lambda: [verb for verb, _ in at_work.source.calls].count("recover_claims") >= times)
        at_work.source.broken.clear()
        assert [await job.result(60) for job in jobs] == ["ran"] * 5
    for job in jobs:
        assert "release" not in await verbs(app, job.id)
        assert (await verbs(app, job.id)).count("claim") == 1


async def test_a_claimed_job_that_cannot_be_read_does_not_end_the_worker(app: App) -> None:
    """The answer to the claim was lost, and SQL typed by hand spoilt one of its jobs: the worker ended."""

    @app.job()
    async def quick() -> str:
        return "ran"

    spoilt, good = await quick.enqueue_many([{}] * 2)
    async with working(app) as at_work:
        at_work.source.lost_answers.add("claim")
        at_work.source.broken["recover_claims"] = OutcomeUnknown("away again, on purpose")
        await until(lambda: "recover_claims" in [verb for verb, _ in at_work.source.calls])
        engine = await app.engine()
        await ask(engine, "UPDATE holdfast_jobs SET payload = '{not json' WHERE id = :id RETURNING id", id=spoilt.id)
        at_work.source.broken.clear()
        assert await good.result(60) == "ran"
        assert await (await quick.enqueue()).result(60) == "ran"


async def test_a_prefetched_job_whose_lease_was_lost_is_not_run(app: App) -> None:
    gate = threading.Event()

    @app.job()
    async def quick() -> None: ...

    @app.job()
    def long() -> None:
        gate.wait(30)

    try:
        async with working(app, concurrency=1) as at_work:
            for job in await quick.enqueue_many([{}] * 30):
                await job.result(60)
            at_work.worker.on_heartbeat(HeartbeatResult(renewed=True, fleet=Fleet(live=1)))
            await long.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            waits = await quick.enqueue()
            await until(lambda: at_work.worker.slots.buffer)
            [run] = at_work.worker.slots.buffer
            calls = len(at_work.source.calls)
            at_work.worker.on_heartbeat(HeartbeatResult(renewed=True, lost=[HeldLease(run.lease.id, run.lease.token)]))
            await until(lambda: run.lease.token not in at_work.worker.slots.executions)
            assert "release" not in [verb for verb, _ in at_work.source.calls[calls:]]
            engine = await app.engine()
            await engine.release(at_work.source.worker, run.lease.id, run.lease.token)  # as the sweeper would free it
            gate.set()
            await waits.result(60)
    finally:
        gate.set()


def test_prefetch_adapts_to_jobs_that_may_not_be_prefetched() -> None:
    """A worker whose jobs all have one attempt gave one of them back with every second claim."""
    pace, given_back = Prefetch(10), 0
    pace.ended(0.001)
    for _ in range(1000):
        back = min(pace.ahead(), 1)
        given_back += back
        pace.claimed(10 + back, back=back)
    assert given_back < 20


async def test_an_unexpected_error_while_reports_are_sent_singly_ends_the_worker(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """The error was lost: the worker renewed the leases of these jobs for ever, and never reported them."""
    gate = asyncio.Event()

    @app.job()
    async def quick() -> None:
        await gate.wait()

    async def work() -> None:
        async with working(app, concurrency=4) as at_work:
            at_work.source.broken["complete"] = OutcomeUnknown("the answer was lost, on purpose")
            await quick.enqueue_many([{}] * 4)
            await until(lambda: at_work.worker.slots.busy == 4)
            gate.set()
            await until(lambda: {("complete", 4), ("complete", 1)} <= set(at_work.source.calls))  # whole, then apart
            at_work.source.broken["complete"] = RuntimeError("a mistake, on purpose")
            await until(at_work.running.done)

    with pytest.raises(RuntimeError, match="a mistake"):
        await work()
    assert "cannot be reported" in caplog.text
