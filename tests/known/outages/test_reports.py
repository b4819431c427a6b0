"""A short database outage while handlers report: no handler fails, and nothing runs twice."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Permanent, SyncContext
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, StoreUnavailable
from holdfast.lifecycle import State
from holdfast.worker import outcomes
from tests.servers.proxy import Proxy
from tests.worker.in_process import until, working
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.harness import WorkerHarness, eventually

AWAY = StoreUnavailable("the database is away, on purpose")


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_database_outage_of_two_seconds_does_not_fail_a_healthy_job(
    fresh_postgres_url: str, harness: Callable[..., Awaitable[WorkerHarness]]
) -> None:
    """On the loop, in a thread and in a child process, each with a single attempt."""
    async with Proxy.to(fresh_postgres_url) as proxy:
        on = await harness(fresh_postgres_url, through=proxy.url)
        await on.start()
        kinds = (jobs.reports_on_the_loop, jobs.reports_in_a_thread, jobs.reports_in_a_process)
        running = [await kind.enqueue() for kind in kinds]
        for job in running:
            await eventually(lambda job=job: len(on.handler_log.notes("stepped", job.id)) >= 3)
        await proxy.go_away()
        await asyncio.sleep(2.5)  # the outage itself
        await proxy.come_back()
        for job in running:
            ended = await on.final(job)
            assert (ended.state, ended.attempt, ended.failures, ended.lost) == (State.SUCCEEDED, 1, 0, 0), ended.error
            assert (ended.percent, ended.counters) == (100, {"done": jobs.REPORTS})
            steps = [note["number"] for note in on.handler_log.notes("stepped", job.id)]
            assert steps == list(range(jobs.REPORTS)), "each function ran once, in order"


@pytest.mark.parametrize("trouble", [AWAY, OutcomeUnknown("the commit was not confirmed, on purpose")])
@pytest.mark.parametrize("way", ["progress", "counters", "save", "parts", "step"])
async def test_each_kind_of_report_waits_for_the_database_to_come_back(
    app: App, way: str, trouble: HoldfastError
) -> None:
    ran: list[str] = []

    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> str:
        match way:
            case "progress":
                await ctx.progress(50, "half")
            case "counters":
                await ctx.counters(done=1)
            case "save":
                await ctx.save({"place": 1})
            case "parts":
                ran.extend([part.name async for part in ctx.parts(["one"])])
            case "step":
                await ctx.step("one", ran.append, "one")
        return "done"

    async with working(app) as at_work:
        at_work.source.broken["progress"] = trouble
        job = await handler.enqueue()
        await until(lambda: [verb for verb, _ in at_work.source.calls].count("progress") >= 3)
        at_work.source.broken.clear()
        assert await job.result(60) == "done"
    assert ran == (["one"] if way in ("parts", "step") else [])
    assert (await job.get()).failures == 0


async def test_a_hanging_report_does_not_count_against_the_timeout(app: App) -> None:
    """The database neither answers nor refuses for longer than the timeout."""

    @app.job(max_attempts=1, timeout=2)
    async def handler(ctx: Context) -> str:
        await ctx.progress(50, "half")
        return "done"

    async with working(app) as at_work:
        back = at_work.source.hanging["progress"] = asyncio.Event()
        job = await handler.enqueue()
        await until(lambda: len(at_work.worker.progress.waiting) == 1)
        await asyncio.sleep(2.5)  # the hang itself
        back.set()
        assert await job.result(60) == "done"
    assert (await job.get()).failures == 0


async def test_a_report_of_a_thread_waits_during_an_outage(app: App) -> None:
    ran: list[str] = []

    @app.job(max_attempts=1)
    def handler(ctx: SyncContext) -> str:
        ctx.progress(10)
        ctx.step("one", ran.append, "one")
        return "done"

    async with working(app) as at_work:
        at_work.source.broken["progress"] = AWAY
        job = await handler.enqueue()
        await until(lambda: [verb for verb, _ in at_work.source.calls].count("progress") >= 3)
        at_work.source.broken.clear()
        assert await job.result(60) == "done"
    assert ran == ["one"]


async def test_the_newest_report_is_stored_last(app: App) -> None:
    """Several tasks of one handler report while the database is away; what was said last is stored last."""

    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> None:
        await asyncio.gather(*(ctx.progress(step=f"step-{number}") for number in range(10)))

    async with working(app) as at_work:
        at_work.source.broken["progress"] = AWAY
        job = await handler.enqueue()
        await until(lambda: [verb for verb, _ in at_work.source.calls].count("progress") >= 2)
        at_work.source.broken.clear()
        await job.result(60)
    assert (await job.get()).step == "step-9"


async def test_a_retry_finds_its_steps_after_waiting_for_the_database(app: App) -> None:
    ran: list[int] = []

    @app.job(max_attempts=2, backoff_base_seconds=0)
    async def handler(ctx: Context) -> str:
        await ctx.step("once", ran.append, ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("the handler's own trouble")
        return "done"

    async with working(app) as at_work:
        at_work.source.broken["parts"] = AWAY
        job = await handler.enqueue()
        await until(lambda: [verb for verb, _ in at_work.source.calls].count("parts") >= 2)
        at_work.source.broken.clear()
        assert await job.result(60) == "done"
    assert ran == [1]


async def test_a_step_whose_write_was_interrupted_does_not_run_again(app: App) -> None:
    ran: list[str] = []

    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> Any:
        try:
            async with asyncio.timeout(0.3):
                await ctx.step("pay", lambda: ran.append("paid") or "receipt")
        except TimeoutError:
            ran.append("interrupted")
        return await ctx.step("pay", lambda: ran.append("paid again"))

    async with working(app) as at_work:
        at_work.source.broken["progress"] = AWAY
        job = await handler.enqueue()
        await until(lambda: "interrupted" in ran)
        at_work.source.broken.clear()
        assert await job.result(60) == "receipt"
    assert ran == ["paid", "interrupted"]


async def test_time_spent_waiting_for_the_database_does_not_count_against_the_timeout(app: App) -> None:
    begun = threading.Event()

    @app.job(max_attempts=1, timeout=2, no_progress_seconds=2)
    async def handler(ctx: Context) -> str:
        begun.set()
        await ctx.progress(50)
        return "done"

    async with working(app) as at_work:
        at_work.source.broken["progress"] = AWAY
        job = await handler.enqueue()
        await until(begun.is_set)
        [run] = at_work.worker.slots.running()
        await until(lambda: run in at_work.worker.progress.waiting)
        assert run.begun_at is not None
        run.begun_at -= 60  # as if it had waited for a minute
        run.progress_at -= 60
        at_work.worker.monitor.check(run, asyncio.get_running_loop().time())
        assert run.stop_reason is None
        run.begun_at += 60
        run.progress_at += 60
        at_work.source.broken.clear()
        assert await job.result(60) == "done"


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_a_report_is_given_up_when_the_lease_may_have_expired(app: App, kind: str) -> None:
    """Then the job is another worker's, and the handler is told so: that is no failure of its own."""
    heard: list[str] = []

    @app.job(max_attempts=1, lease_seconds=1, heartbeat_seconds=0.3)
    async def on_the_loop(ctx: Context) -> None:
        try:
            await ctx.progress(50)
        except LeaseLost as error:
            heard.append(error.code)
            raise

    @app.job(max_attempts=1, lease_seconds=1, heartbeat_seconds=0.3)
    def in_a_thread(ctx: SyncContext) -> None:
        try:
            ctx.progress(50)
        except LeaseLost as error:
            heard.append(error.code)
            raise

    async with working(app) as at_work:
        at_work.source.broken["progress"] = AWAY
        job = await (on_the_loop if kind == "loop" else in_a_thread).enqueue()
        await until(lambda: len(at_work.worker.slots.executions) == 0 and heard)
    assert heard == ["lease_lost"]
    engine = await app.engine()
    assert {attempt.outcome for attempt in await engine.reads.attempts(job.id)} <= {"lost"}, (
        "nothing was reported as a failure"
    )
    assert (await job.get()).failures == 0


async def test_a_handler_that_enqueues_during_an_outage_uses_no_attempt(app: App) -> None:
    """It is put off for a moment and keeps its only attempt."""
    times: list[int] = []

    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> str:
        times.append(ctx.fence)
        if len(times) == 1:
            raise AWAY  # as `other.enqueue()` does
        return "done"

    async with working(app):
        job = await handler.enqueue()
        assert await job.result(60) == "done"
    found = await job.get()
    assert (found.attempt, found.failures, found.lost) == (1, 0, 0)


async def test_a_handler_that_reports_an_outage_in_every_run_fails_eventually(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put off for ever: a job that only looks as if the database were away never ended."""
    monkeypatch.setattr(outcomes, "OUTAGE_SECONDS", 0.0)
    times: list[int] = []

    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> None:
        times.append(ctx.fence)
        raise OutcomeUnknown("the commit was not confirmed, on purpose")

    async with working(app):
        job = await handler.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "outcome_unknown"
    assert len(times) == outcomes.GIVEN_BACK_MAX + 1
    assert (await job.get()).failures == 1


async def test_a_parent_whose_child_failed_with_an_outage_code_fails(app: App) -> None:
    """The database was there: the parent was put off for ever, and enqueued its child each time."""

    @app.job(max_attempts=1)
    async def child() -> None:
        raise Permanent("store_unavailable", "the child's own trouble")

    @app.job(max_attempts=1)
    async def parent() -> None:
        await (await child.enqueue()).result(60)

    async with working(app):
        job = await parent.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "store_unavailable"
    assert (await job.get()).attempt == 1


async def test_an_invalid_report_during_an_outage_fails_the_handler(app: App) -> None:
    @app.job(max_attempts=1)
    async def handler(ctx: Context) -> None:
        await ctx.progress(101)

    async with working(app):
        job = await handler.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "invalid_field"
