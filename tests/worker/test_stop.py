"""A worker that stops: it finishes or releases its jobs within the grace period."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.errors import StoreUnavailable
from holdfast.lifecycle import State
from tests.worker.in_process import until, working


async def test_a_stopping_worker_releases_prefetched_jobs_and_finishes_running_ones(app: App) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @app.job()
    async def gated(wait: bool) -> None:
        if wait:
            started.set()
            await gate.wait()

    async with working(app, concurrency=1) as at_work:
        slow = await gated.enqueue(wait=True)
        await started.wait()
        at_work.worker.slots.prefetch.ended(0.001)
        waiting = await gated.enqueue_many([{"wait": False}] * 20)
        at_work.worker.slots.capacity_changed.set()
        await until(lambda: len(at_work.worker.slots.executions) > 1)
        at_work.worker.stop()
        claims = sum(verb == "claim" for verb, _ in at_work.source.calls)
        await until(lambda: len(at_work.worker.slots.executions) == 1)
        assert [await job.status() for job in waiting] == ["PENDING"] * 20
        gate.set()
        await at_work.running
        assert sum(verb == "claim" for verb, _ in at_work.source.calls) <= claims + 1
    assert await slow.status() == "COMPLETED"
    assert {(await job.get()).attempt for job in waiting} == {0}


async def test_a_job_that_exceeds_the_stop_grace_is_released_without_using_an_attempt(app: App) -> None:
    told: list[bool] = []

    @app.job()
    async def patient(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            told.append(ctx.stopping)

    async with working(app, stop_grace_seconds=0.1) as at_work:
        job = await patient.enqueue()
        await until(lambda: at_work.worker.slots.busy == 1)
    assert told == [True]
    found = await job.get()
    assert (found.state, found.attempt) == (State.QUEUED, 0)


async def test_a_handler_that_ignores_its_cancellation_is_not_released_while_it_runs(app: App) -> None:
    gate = asyncio.Event()

    @app.job()
    async def deaf() -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    async with working(app, stop_grace_seconds=0.1, kill_grace_seconds=0.3) as at_work:
        job = await deaf.enqueue()
        await until(lambda: at_work.worker.slots.busy == 1)
        await at_work.stop()
        assert len(at_work.worker.slots.stuck) == 1
        assert (await job.get()).state is State.RUNNING, "another worker would run it at the same time"
        await at_work.worker.release_unfinished(1)  # as a process does that is about to end
        found = await job.get()
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        gate.set()


async def test_a_thread_that_returns_while_the_worker_stops_has_succeeded(app: App) -> None:
    told, gate = asyncio.Event(), threading.Event()

    @app.job()
    def in_a_thread() -> str:
        gate.wait(30)
        return "done"

    @app.job()
    async def patient() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.set()
            await until(lambda: not at_work.worker.executor.unfinished)

    try:
        async with working(app, stop_grace_seconds=0.1, kill_grace_seconds=20) as at_work:
            job = await in_a_thread.enqueue()
            await patient.enqueue()
            await until(lambda: at_work.worker.slots.busy == 2)
            at_work.worker.stop()
            await told.wait()
            gate.set()
            assert await job.result(60) == "done"
    finally:
        gate.set()


async def test_an_error_raised_by_an_interrupted_handler_uses_no_attempt(app: App) -> None:
    @app.job()
    async def translates() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("a library's word for it") from None

    async with working(app, stop_grace_seconds=0.1) as at_work:
        job = await translates.enqueue()
        await until(lambda: at_work.worker.slots.busy == 1)
    found = await job.get()
    assert (found.state, found.attempt) == (State.QUEUED, 0)


async def test_a_worker_without_jobs_stops_immediately(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    async with working(app, stop_grace_seconds=60) as at_work:
        at_work.worker.stop()
        async with asyncio.timeout(60):
            await at_work.running


async def test_a_stopping_worker_retries_its_reports_until_the_grace_ends(app: App) -> None:
    @app.job()
    async def quick() -> str:
        return "ran"

    async with working(app, stop_grace_seconds=30) as at_work:
        at_work.source.broken["complete"] = StoreUnavailable("away")
        job = await quick.enqueue()
        await until(lambda: any(verb == "complete" for verb, _ in at_work.source.calls))
        at_work.worker.stop()
        await asyncio.sleep(0.5)
        assert not at_work.running.done()
        at_work.source.broken.clear()
        await at_work.running
    assert await job.status() == "COMPLETED"


async def test_a_claim_in_flight_when_the_grace_period_ends_loses_no_job(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its response comes after the grace period: the jobs are released, not left to the crash detector."""

    @app.job()
    async def any_job() -> None: ...

    claimed, answered = asyncio.Event(), asyncio.Event()
    async with working(app, stop_grace_seconds=0.05) as at_work:
        claim = at_work.source.claim

        async def slow(limit: int, **where: Any) -> Any:
            if claims := await claim(limit, **where):
                claimed.set()
                await answered.wait()
            return claims

        monkeypatch.setattr(at_work.source, "claim", slow)
        job = await any_job.enqueue()
        await claimed.wait()
        at_work.worker.stop()
        asyncio.get_running_loop().call_later(0.5, answered.set)
        await at_work.running
    found = await job.get()
    assert (found.state, found.attempt, found.lost) == (State.QUEUED, 0, 0)
