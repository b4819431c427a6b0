"""Executions that are interrupted: timeouts, cancel requests and lost leases."""

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, SyncContext
from holdfast.clock import Clock
from holdfast.model.reports import HeldLease
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from tests.worker.in_process import until, verbs, working


class TestTimeouts:
    async def test_an_attempt_over_its_timeout_fails_with_timeout(self, app: App) -> None:
        @app.job(timeout=0.3, max_attempts=1)
        async def endless() -> None:
            await asyncio.sleep(60)

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await endless.enqueue()).result(60)
        assert failed.value.code == "timeout"

    async def test_the_timeout_can_be_set_per_job(self, app: App) -> None:
        @app.job(max_attempts=1)
        async def endless() -> None:
            await asyncio.sleep(60)

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await endless.options(timeout=0.2).enqueue()).result(60)
        assert failed.value.code == "timeout"

    async def test_a_job_without_progress_is_ended(self, app: App) -> None:
        @app.job(no_progress_seconds=0.6, max_attempts=1)
        async def reporting(times: int) -> None:
            async with asyncio.timeout(60):
                for _ in range(times):
                    await asyncio.sleep(0.1)
                    await app_context[0].progress(step="still here")
                await asyncio.sleep(0 if times else 60)

        app_context: list[Context] = []

        @app.middleware
        async def keep_context(ctx: Context, call_next: Any) -> Any:
            app_context[:] = [ctx]
            return await call_next()

        engine = await app.engine()
        assert engine is not None
        async with working(app, middleware=app.middleware_stack):
            talks = await reporting.enqueue(times=12)
            assert await talks.result(60) is None
            silent = await reporting.enqueue(times=0)
            with pytest.raises(JobFailed) as failed:
                await silent.result(60)
        assert failed.value.code in ("no_progress", "timeout")

    async def test_a_thread_that_checks_cancel_requested_ends_at_its_timeout(self, app: App) -> None:
        @app.job(timeout=0.3, max_attempts=1)
        def looks(ctx: SyncContext) -> None:
            while not ctx.cancel_requested:
                time.sleep(0.01)
            raise RuntimeError("told to stop")

        async with working(app) as at_work:
            with pytest.raises(JobFailed) as failed:
                await (await looks.enqueue()).result(60)
            await until(lambda: len(at_work.worker.slots.stuck) == 0)
        assert failed.value.code == "timeout"

    async def test_a_thread_that_returned_in_time_succeeds_although_the_loop_was_blocked(self, app: App) -> None:
        loop = asyncio.get_running_loop()

        @app.job(timeout=2, max_attempts=1)
        def in_time() -> str:
            loop.call_soon_threadsafe(time.sleep, 3)
            return "in time"

        async with working(app):
            assert await (await in_time.enqueue()).result(60) == "in time"

    async def test_a_thread_over_its_timeout_keeps_its_slot_until_it_returns(self, app: App) -> None:
        gate = threading.Event()

        @app.job(timeout=0.2, max_attempts=1)
        def deaf() -> None:
            gate.wait(30)

        @app.job()
        def other() -> str:
            return "ran"

        try:
            async with working(app, concurrency=2, kill_grace_seconds=0.1) as at_work:
                with pytest.raises(JobFailed):
                    await (await deaf.enqueue()).result(60)
                assert len(at_work.worker.slots.stuck) == 1
                assert await (await other.enqueue()).result(60) == "ran"
                gate.set()
                await until(lambda: len(at_work.worker.slots.stuck) == 0)
        finally:
            gate.set()

    async def test_a_process_with_too_many_stuck_slots_exits_to_be_replaced(self, app: App) -> None:
        gate = threading.Event()

        @app.job(timeout=0.2, max_attempts=1)
        def deaf() -> None:
            gate.wait(30)

        try:
            async with working(app, concurrency=1, kill_grace_seconds=0.1, replaceable=True) as at_work:
                await deaf.enqueue()
                await until(at_work.running.done)
        finally:
            gate.set()

    async def test_a_stuck_reserved_slot_restarts_no_process(self, app: App) -> None:
        """The jobs in its other slots go on."""
        gate, leave = threading.Event(), asyncio.Event()

        @app.job()
        async def long() -> str:
            await leave.wait()
            return "done"

        @app.job(timeout=0.2, max_attempts=1, reserved_slot=True)
        def deaf() -> None:
            gate.wait(30)

        try:
            async with working(app, concurrency=1, kill_grace_seconds=0.1, replaceable=True) as at_work:
                job = await long.enqueue()
                await until(lambda: at_work.worker.slots.busy == 1)
                await deaf.enqueue()
                await until(lambda: len(at_work.worker.slots.stuck) == 1)
                at_work.worker.monitor._restart_if_stuck(Clock().monotonic() + 60)
                assert not at_work.worker.slots.stopping.is_set()
                leave.set()
                assert await job.result(60) == "done"
                gate.set()
        finally:
            gate.set()


class TestCancel:
    async def test_a_cancel_request_in_a_heartbeat_cancels_the_handler(self, app: App) -> None:
        @app.job()
        async def endless() -> None:
            await asyncio.sleep(60)

        async with working(app) as at_work:
            job = await endless.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            assert await job.cancel() is False
            found = await job.get()
            at_work.worker.on_heartbeat(HeartbeatResult(cancel=[HeldLease(job.id, str(found.lease_token))]))
            with pytest.raises(JobFailed) as failed:
                await job.result(60)
        assert failed.value.status == "CANCELED"

    async def test_a_cancel_request_in_a_progress_answer_cancels_the_handler(self, app: App) -> None:
        @app.job()
        async def reporting(ctx: Context) -> None:
            while True:
                await ctx.progress(step="working")
                await asyncio.sleep(0.02)

        async with working(app) as at_work:
            job = await reporting.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            await job.cancel()
            with pytest.raises(JobFailed) as failed:
                await job.result(60)
        assert failed.value.status == "CANCELED"

    async def test_a_handler_that_returns_after_its_cancellation_has_succeeded(self, app: App) -> None:
        @app.job()
        async def stubborn() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "done anyway"
            return "never"

        async with working(app) as at_work:
            job = await stubborn.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            await job.cancel()
            at_work.worker.on_heartbeat(HeartbeatResult(cancel=[HeldLease(job.id, str((await job.get()).lease_token))]))
            assert await job.result(60) == "done anyway"


class TestLostLeases:
    async def test_an_execution_that_lost_its_lease_is_interrupted_and_reports_nothing(self, app: App) -> None:
        seen: list[tuple[bool, bool]] = []

        @app.job()
        async def endless(ctx: Context) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                seen.append((ctx.lost, ctx.cancel_requested))

        async with working(app) as at_work:
            job = await endless.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            token = str((await job.get()).lease_token)
            at_work.worker.on_heartbeat(HeartbeatResult(lost=[HeldLease(job.id, token)]))
            await until(lambda: len(at_work.worker.slots.executions) == 0)
            assert await verbs(app, job.id) == ["create", "claim"]
        assert seen == [(True, True)]

    async def test_a_lease_that_is_not_renewed_is_given_up_before_it_expires(self, app: App) -> None:
        seen: list[bool] = []

        @app.job(lease_seconds=1, heartbeat_seconds=0.3)
        async def endless(ctx: Context) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                seen.append(ctx.lost)

        async with working(app, heartbeats=True) as at_work:
            await endless.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            await until(lambda: seen == [True])

    async def test_a_late_completion_is_rejected_and_the_worker_continues(self, app: App) -> None:
        gate = asyncio.Event()

        @app.job()
        async def gated() -> str:
            await gate.wait()
            return "late"

        async with working(app) as at_work:
            job = await gated.enqueue()
            await until(lambda: at_work.worker.slots.busy == 1)
            engine = await app.engine()
            instance = (await job.get()).lease_instance
            assert instance is not None
            await engine.maintenance.reap(gone=[instance])
            gate.set()
            assert await job.result(60) == "late"
        assert [attempt.outcome for attempt in await engine.reads.attempts(job.id)] == ["lost", "succeeded"]
