"""What a handler sees when its lease is lost, its job canceled or its worker stopping."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, JobHandle, SyncContext
from holdfast.errors import LeaseLost
from holdfast.lifecycle import State
from holdfast.worker.runtime import Worker
from tests.worker.in_process import until, working


async def verbs(app: App, job: JobHandle[Any]) -> list[str]:
    return [event.verb for event in await (await app.engine()).reads.history(job.id)]


class TestLostLeases:
    async def test_an_async_handler_that_lost_its_lease_cannot_report(self, app: App) -> None:
        """Every report raises LeaseLost; the next execution of the job has a higher fence."""
        refused: list[str] = []
        may_go_on = asyncio.Event()

        @app.job()
        async def slow(ctx: Context) -> str:
            if ctx.fence == 1:
                await may_go_on.wait()
                try:
                    await ctx.progress(50)
                except LeaseLost as error:
                    refused.append(error.code)
                assert ctx.lost
                for again in (ctx.progress(60), ctx.save(1), ctx.counters(n=1), ctx.step("x", lambda: 1)):
                    with pytest.raises(LeaseLost):
                        await again
            return f"fence {ctx.fence}"

        async with working(app) as one:
            job = await slow.enqueue()
            await until(lambda: len(one.worker.slots.executions) == 1)
            await lose_lease(app, job)
            may_go_on.set()
            assert await job.result(60) == "fence 2"
        assert refused == ["lease_lost"]

    async def test_a_sync_handler_that_lost_its_lease_cannot_report(self, app: App) -> None:
        saw: list[bool] = []
        may_go_on = threading.Event()

        @app.job()
        def slow(ctx: SyncContext) -> str:
            if ctx.fence == 1:
                may_go_on.wait(20)
                with pytest.raises(LeaseLost):
                    ctx.progress(50)
                saw.append(ctx.lost)
            return f"fence {ctx.fence}"

        async with working(app) as one:
            job = await slow.enqueue()
            await until(lambda: len(one.worker.slots.executions) == 1)
            await lose_lease(app, job)
            may_go_on.set()
            assert await job.result(60) == "fence 2"
        assert saw == [True]

    async def test_a_sync_handler_sees_a_cancel_request(self, app: App) -> None:
        running = threading.Event()

        @app.job()
        def endless(ctx: SyncContext) -> str:
            running.set()
            while not ctx.cancel_requested:
                ctx.progress()
            raise ConnectionError("stopped in the middle")

        async with working(app):
            job = await endless.enqueue()
            await until(running.is_set)
            assert await job.cancel() is False
            with pytest.raises(JobFailed):
                await job.result(60)
        assert (await job.get()).state is State.CANCELED

    async def test_an_async_handler_is_interrupted_at_its_await_and_may_clean_up(self, app: App) -> None:
        tidied: list[bool] = []
        running = asyncio.Event()

        @app.job()
        async def endless(ctx: Context) -> None:
            running.set()
            try:
                while True:
                    await ctx.progress()
                    await asyncio.sleep(0.01)
            finally:
                tidied.append(ctx.cancel_requested)

        async with working(app):
            job = await endless.enqueue()
            await running.wait()
            await job.cancel()
            with pytest.raises(JobFailed):
                await job.result(60)
        assert tidied == [True]

    async def test_a_stopping_worker_sets_the_stopping_flag_of_the_context(self, app: App) -> None:
        running = threading.Event()

        @app.job()
        def careful(ctx: SyncContext) -> Any:
            running.set()
            while not ctx.stopping:
                threading.Event().wait(0.01)
            ctx.save("so far")
            return ctx.snooze(0)

        async with working(app) as one:
            job = await careful.enqueue()
            await until(running.is_set)
            await one.stop()
        found = await job.get()
        assert (found.state, found.attempt, found.checkpoint) == (State.QUEUED, 0, "so far")
        assert isinstance(one.worker, Worker)
        assert (await verbs(app, job))[-1] == "release"


async def lose_lease(app: App, job: JobHandle[Any]) -> None:
    """As if its worker had crashed: its lease is reaped, and its token invalid."""
    engine = await app.engine()
    found = await job.get()
    assert found.lease_instance is not None
    [_] = await engine.maintenance.reap(gone=[found.lease_instance])
