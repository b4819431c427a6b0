"""The worker runtime: claiming, prefetching, and disabled workers."""

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import App
from holdfast.errors import NotFound
from holdfast.lifecycle import State
from holdfast.worker.context import Context
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from tests.worker.in_process import everything_done, is_done, until, working


async def test_a_job_runs_and_its_result_is_kept(app: App) -> None:
    @app.job()
    async def double(number: int) -> int:
        return 2 * number

    async with working(app):
        assert await (await double.enqueue(21)).result(60) == 42


async def test_sync_and_async_handlers_run_side_by_side(app: App) -> None:
    meet = threading.Barrier(2, timeout=20)

    @app.job()
    def in_thread() -> str:
        meet.wait()
        return threading.current_thread().name

    @app.job()
    async def on_loop() -> str:
        await asyncio.to_thread(meet.wait)
        return threading.current_thread().name

    async with working(app):
        first, second = await in_thread.enqueue(), await on_loop.enqueue()
        assert (await first.result(60)).startswith("holdfast-job")
        assert await second.result(60) == "MainThread"


async def test_no_more_jobs_run_than_the_worker_has_slots(app: App) -> None:
    running, most = 0, 0

    @app.job()
    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    async with working(app, concurrency=3):
        jobs = await count.enqueue_many([{}] * 40)
        await asyncio.gather(*(job.result(60) for job in jobs))
    assert most == 3


async def test_quick_jobs_are_claimed_and_completed_in_batches(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    jobs = await quick.enqueue_many([{}] * 1000)
    async with working(app) as at_work:
        await until(lambda: is_done(app, jobs[-1].id))
        await until(lambda: len(at_work.worker.slots.executions) == 0)
        claims = [size for verb, size in at_work.source.calls if verb == "claim"]
        completes = [size for verb, size in at_work.source.calls if verb == "complete"]
    assert max(claims) > 10, "more than its slots: it prefetches once it knows how long jobs take"
    assert sum(completes) == 1000
    assert len(completes) < 500


async def test_a_worker_releases_prefetched_jobs_that_it_cannot_start_soon(app: App) -> None:
    """Quick jobs make the worker prefetch; then slow ones follow, and jobs that wait too long are released."""
    gate, waiting_in = asyncio.Event(), 0

    @app.job(max_attempts=3)
    async def gated(wait: bool) -> None:
        nonlocal waiting_in
        if wait:
            waiting_in += 1
            await gate.wait()

    await gated.enqueue_many([{"wait": False}] * 600 + [{"wait": True}] * 300)
    async with working(app, concurrency=4) as at_work:
        await until(lambda: waiting_in == 4 and len(at_work.worker.slots.executions) == 4)
        engine = await app.engine()
        counts = {state: number for _, _, state, number in await engine.reads.counts()}
        assert counts[State.RUNNING] == 4
        waiting = (await engine.reads.page()).jobs
        assert {job.attempt for job in waiting if job.state is State.QUEUED} == {0}, "no attempt was used up"
        gate.set()
        await until(lambda: everything_done(app))


async def test_a_job_on_its_last_attempt_is_never_prefetched(app: App) -> None:
    seen: list[int] = []

    @app.job(max_attempts=1)
    async def once() -> None:
        await asyncio.sleep(0)

    jobs = await once.enqueue_many([{}] * 200)
    async with working(app, concurrency=5) as at_work:

        async def watch() -> None:
            while True:
                seen.append(len(at_work.worker.slots.buffer))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(job.result(60) for job in jobs))
        watching.cancel()
    assert set(seen) == {0}


CURRENT_JOB: ContextVar[str] = ContextVar("whose", default="unset")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_context_variables_do_not_leak_into_the_next_job(app: App, kind: str) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(CURRENT_JOB.get())
        CURRENT_JOB.set("the job before")

    async def look_async() -> None:
        look()

    job_type = app.job("look")(look_async if kind == "async" else look)
    jobs = await job_type.enqueue_many([{}] * 20)
    async with working(app, concurrency=1):
        for job in jobs:
            await job.result(60)
    assert set(seen) == {"unset"}


async def test_a_disabled_worker_claims_again_when_it_is_enabled(app: App) -> None:
    @app.job()
    async def quick() -> str:
        return "ran"

    async with working(app) as at_work:
        engine = await app.engine()
        await engine.workers.disable(at_work.source.worker)
        job = await quick.enqueue()
        await until(lambda: not at_work.worker.claim_loop.enabled)
        before = at_work.worker.slots.lease_table.header().polled
        await until(lambda: at_work.worker.slots.lease_table.header().polled > before)
        assert await job.status() == "PENDING"
        await engine.workers.enable(at_work.source.worker)
        at_work.worker.on_heartbeat(HeartbeatResult(enabled=True))
        assert await job.result(60) == "ran"


async def test_a_worker_whose_registration_was_deleted_ends(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    async with working(app) as at_work:
        at_work.source.broken["claim"] = NotFound("no such worker", code="worker_not_found")
        await quick.enqueue()
        await until(at_work.running.done)
        with pytest.raises(NotFound):
            await at_work.running
        at_work.running = asyncio.create_task(asyncio.sleep(0))


async def test_a_late_request_to_stop_a_job_that_ended_does_not_stop_another(app: App) -> None:
    """Both began in the same task, where tasks do not start eagerly."""
    go, waiting = asyncio.Event(), asyncio.Event()

    @app.job()
    async def quick() -> None: ...

    @app.job()
    async def slow() -> str:
        waiting.set()
        await go.wait()
        return "not stopped"

    first, second = await quick.enqueue(), await slow.enqueue()
    async with working(app) as at_work:
        at_work.source.hanging["complete"] = stored = asyncio.Event()
        await waiting.wait()
        [ended] = [run for run in at_work.worker.slots.executions.values() if run.lease.id == first.id]
        assert ended.finished
        at_work.worker.executor.cancel(ended)
        go.set()
        stored.set()
        assert await second.result(60) == "not stopped"
        await first.result(60)


async def test_the_work_of_short_jobs_is_reported_in_batches_and_needs_no_task_each(app: App) -> None:
    @app.job()
    async def nothing() -> None: ...

    await nothing.enqueue_many([{}] * 500)
    made: list[object] = []
    loop = asyncio.get_running_loop()

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(work)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(counted)
    try:
        async with working(app, concurrency=50) as at_work:
            await until(lambda: everything_done(app))
            reports = [size for verb, size in at_work.source.calls if verb == "complete"]
    finally:
        loop.set_task_factory(None)
    assert sum(reports) == 500
    assert len(reports) < 100
    assert len(made) < 250, "a task for each claim and each turn, not for each job"


async def test_what_a_job_leaves_is_freed_without_the_garbage_collector(app: App) -> None:
    """References in a circle would make it run over all jobs in memory, again and again."""
    contexts: list[weakref.ref[Context]] = []

    @app.job()
    async def quick(ctx: Context) -> None:
        contexts.append(weakref.ref(ctx))

    @app.job()
    async def waiting(ctx: Context) -> None:
        contexts.append(weakref.ref(ctx))
        await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        async with working(app) as at_work:
            await quick.enqueue_many([{}] * 5)
            await waiting.enqueue_many([{}] * 5)
            await until(lambda: len(contexts) == 10 and not at_work.worker.slots.executions)
            await until(lambda: [one for one in contexts if one() is not None] == [], seconds=5)
    finally:
        gc.enable()
