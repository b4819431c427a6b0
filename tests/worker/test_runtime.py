"""The runtime as stories: what is claimed, what waits, what is given back, and how an execution is ended."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Permanent, Reject, Retry, Snooze, SyncContext
from holdfast.errors import NotFound, Refused, StoreError, StoreUnavailable
from holdfast.lifecycle import State
from holdfast.model.reports import HeldLease
from holdfast.settings import Settings
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.prefetch import AHEAD_MAX, Prefetch
from tests.engine.hooking import effect, guard
from tests.worker.in_process import until, working


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()


async def verbs(app: App, job_id: str) -> list[str]:
    return [event.verb for event in await (await app.engine()).reads.history(job_id)]


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


async def test_never_more_at_once_than_slots(app: App) -> None:
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
        await until(lambda: at_work.worker.held == 0)
        claims = [size for verb, size in at_work.source.calls if verb == "claim"]
        completes = [size for verb, size in at_work.source.calls if verb == "complete"]
    assert max(claims) > 10, "more than its slots: it looks ahead once it knows the pace"
    assert sum(completes) == 1000
    assert len(completes) < 500


async def is_done(app: App, job_id: str) -> bool:
    return (await (await app.engine()).reads.get(job_id)).final


async def test_a_job_is_not_held_by_a_worker_that_cannot_start_it(app: App) -> None:
    """Quick ones make the worker look ahead; then come slow ones, and what waits too long goes back."""
    gate, waiting_in = asyncio.Event(), 0

    @app.job(max_attempts=3)
    async def gated(wait: bool) -> None:
        nonlocal waiting_in
        if wait:
            waiting_in += 1
            await gate.wait()

    await gated.enqueue_many([{"wait": False}] * 600 + [{"wait": True}] * 300)
    async with working(app, concurrency=4) as at_work:
        await until(lambda: waiting_in == 4 and at_work.worker.held == 4)
        engine = await app.engine()
        counts = {state: number for _, _, state, number in await engine.reads.counts()}
        assert counts[State.RUNNING] == 4
        waiting = (await engine.reads.page()).jobs
        assert {job.attempt for job in waiting if job.state is State.QUEUED} == {0}, "no attempt was used up"
        gate.set()
        await until(lambda: everything_done(app))


async def everything_done(app: App) -> bool:
    return {state for _, _, state, _ in await (await app.engine()).reads.counts()} <= {State.SUCCEEDED}


async def test_a_job_on_its_last_attempt_never_waits_in_a_worker(app: App) -> None:
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


async def test_what_waits_is_given_back_when_the_worker_stops_and_what_runs_is_finished(app: App) -> None:
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
        await until(lambda: at_work.worker.held > 1)
        at_work.worker.stop()
        claims = sum(verb == "claim" for verb, _ in at_work.source.calls)
        await until(lambda: at_work.worker.held == 1)
        assert [await job.status() for job in waiting] == ["PENDING"] * 20
        gate.set()
        await at_work.running
        assert sum(verb == "claim" for verb, _ in at_work.source.calls) <= claims + 1
    assert await slow.status() == "COMPLETED"
    assert {(await job.get()).attempt for job in waiting} == {0}


async def test_what_does_not_finish_within_the_grace_is_released_with_its_attempt(app: App) -> None:
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


async def test_a_handler_that_swallows_the_interruption_is_not_given_back_while_it_runs(app: App) -> None:
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
        assert at_work.worker.stuck == 1
        assert (await job.get()).state is State.RUNNING, "another worker would run it at the same time"
        await at_work.worker.release_unfinished(1)  # as a process does that is about to end
        found = await job.get()
        assert (found.state, found.attempt) == (State.QUEUED, 0)
        gate.set()


async def test_a_thread_that_ends_while_the_worker_stops_has_succeeded(app: App) -> None:
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
            await until(lambda: not at_work.worker.unfinished)

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


async def test_what_an_interrupted_handler_says_on_its_way_out_costs_no_attempt(app: App) -> None:
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


async def test_a_worker_that_never_claimed_anything_stops_at_once(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    async with working(app, stop_grace_seconds=60) as at_work:
        at_work.worker.stop()
        async with asyncio.timeout(60):
            await at_work.running


async def test_results_get_the_whole_grace_to_arrive(app: App) -> None:
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


WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_nothing_leaks_from_one_job_into_the_next(app: App, kind: str) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(WHOSE.get())
        WHOSE.set("the job before")

    async def look_async() -> None:
        look()

    job_type = app.job("look")(look_async if kind == "async" else look)
    jobs = await job_type.enqueue_many([{}] * 20)
    async with working(app, concurrency=1):
        for job in jobs:
            await job.result(60)
    assert set(seen) == {"nobody's"}


async def test_a_disabled_worker_finishes_and_goes_on_when_it_is_enabled_again(app: App) -> None:
    @app.job()
    async def quick() -> str:
        return "ran"

    async with working(app) as at_work:
        engine = await app.engine()
        await engine.workers.disable(at_work.source.worker)
        job = await quick.enqueue()
        await until(lambda: not at_work.worker.claim_loop.enabled)
        before = at_work.worker.table_header.polled
        await until(lambda: at_work.worker.table_header.polled > before)
        assert await job.status() == "PENDING"
        await engine.workers.enable(at_work.source.worker)
        at_work.worker.on_heartbeat(HeartbeatResult(enabled=True))
        assert await job.result(60) == "ran"


async def test_a_worker_that_was_forgotten_ends_so_that_another_can_register(app: App) -> None:
    @app.job()
    async def quick() -> None: ...

    async with working(app) as at_work:
        at_work.source.broken["claim"] = NotFound("no such worker", code="worker_not_found")
        await quick.enqueue()
        await until(at_work.running.done)
        with pytest.raises(NotFound):
            await at_work.running
        at_work.running = asyncio.create_task(asyncio.sleep(0))


class TestOutcomes:
    @pytest.mark.parametrize(
        ("raised", "state", "code"),
        [
            (Permanent("E_GONE", "no such page"), State.DEAD, "E_GONE"),
            (Retry("E_BUSY", after=3600), State.RETRYING, "E_BUSY"),
            (ValueError("nonsense"), State.RETRYING, "ValueError"),
            (SystemExit(3), State.RETRYING, "SystemExit"),
            (StopIteration(), State.RETRYING, "RuntimeError"),
        ],
    )
    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_an_error_decides_where_the_job_goes(
        self, app: App, kind: str, raised: BaseException, state: State, code: str
    ) -> None:
        def fails() -> None:
            raise raised

        async def fails_async() -> None:
            raise raised

        job_type = app.job("fails", backoff_base_seconds=3600, backoff_jitter=0)(
            fails_async if kind == "async" else fails
        )
        async with working(app):
            job = await job_type.enqueue()
            await until(lambda: has_left(app, job.id, State.QUEUED, State.RUNNING))
            found = await job.get()
        assert (found.state, found.error["code"]) == (state, code)

    async def test_snoozed_by_return_or_by_raise_gives_the_attempt_back(self, app: App) -> None:
        @app.job()
        async def later(how: str) -> Any:
            if how == "raise":
                raise Snooze(3600)
            return Snooze(3600)

        async with working(app):
            jobs = [await later.enqueue("raise"), await later.enqueue("return")]
            for job in jobs:
                await until(lambda job=job: released(app, job.id))
        for job in jobs:
            found = await job.get()
            assert (found.state, found.attempt) == (State.QUEUED, 0)

    async def test_rejected_where_the_lifecycle_can_and_dead_where_it_cannot(self, app: App) -> None:
        async def verdict() -> None:
            raise Reject("SAFE_BLOCK", "not this")

        can = app.job("can", lifecycle="generation")(verdict)
        cannot = app.job("cannot", lifecycle="crawl")(verdict)
        async with working(app):
            first, second = await can.enqueue(), await cannot.enqueue()
            for job in (first, second):
                with pytest.raises(JobFailed):
                    await job.result(60)
        assert (await first.get()).state is State.REJECTED
        assert (await second.get()).state is State.DEAD

    async def test_an_error_class_can_be_permanent(self, app: App) -> None:
        @app.job(errors={ValueError: "permanent"})
        async def picky() -> None:
            raise UnicodeError("a kind of ValueError")

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await picky.enqueue()).result(60)
        assert failed.value.code == "ValueError"

    async def test_a_result_that_is_not_json_fails_for_good_and_harms_nobody_else(self, app: App) -> None:
        @app.job()
        async def odd(bad: bool) -> Any:
            return object() if bad else "fine"

        async with working(app):
            bad, good = await odd.enqueue(True), await odd.enqueue(False)
            assert await good.result(60) == "fine"
            with pytest.raises(JobFailed) as failed:
                await bad.result(60)
        assert failed.value.code == "result_not_json"

    async def test_an_error_that_quotes_what_no_database_keeps_is_still_told(self, app: App) -> None:
        @app.job(errors={ValueError: "permanent"})
        async def binary() -> None:
            raise ValueError("got \x00")

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await binary.enqueue()).result(60)
        assert failed.value.code == "ValueError"

    async def test_a_report_that_the_database_refuses_does_not_hold_up_the_others(self, app: App) -> None:
        async def pay(account: str) -> str:
            return account

        paid, booked = app.job("paid", max_attempts=1)(pay), app.job("booked", max_attempts=1)(pay)
        engine = await app.engine()

        broken = True

        @effect(engine, "complete", job_type="booked")
        async def book(_tx: Any, _verb: str, _job: Any) -> None:
            if broken:
                raise StoreError("duplicate key in the ledger", code="constraint_violated")

        async with working(app):
            broke, fine = await booked.enqueue("broke"), await paid.enqueue("fine")
            assert await fine.result(60) == "fine"
            await until(lambda: engine.ctx.hook_failures["toy", "complete"] > 1)
            broken = False
            assert await broke.result(60) == "broke", "its report was tried again"

    async def test_a_worker_whose_hook_fails_stops_all_the_same(self, app: App) -> None:
        """What it could not report is lost with its lease, and done again."""

        @app.job("booked")
        async def pay() -> str:
            return "paid"

        engine = await app.engine()
        broken = True

        @effect(engine, "complete", job_type="booked")
        async def book(_tx: Any, _verb: str, _job: Any) -> None:
            if broken:
                raise ZeroDivisionError

        async with working(app, stop_grace_seconds=0.1, kill_grace_seconds=0.1):
            job = await pay.enqueue()
            await until(lambda: engine.ctx.hook_failures["toy", "complete"] > 1)
        held = await engine.reads.get(job.id)
        assert held.state is State.RUNNING
        broken = False
        await engine.maintenance.reap(gone=[str(held.lease_instance)])
        async with working(app):
            assert await job.result(60) == "paid"

    async def test_a_guard_that_refuses_a_completion_makes_it_a_failure(self, app: App) -> None:
        @app.job(max_attempts=1)
        async def guarded() -> str:
            return "done"

        engine = await app.engine()

        @guard(engine, "complete", job_type="guarded")
        async def never(_tx: Any, _done: Any) -> None:
            raise Refused("quota used up", code="no_quota")

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await guarded.enqueue()).result(60)
        assert failed.value.code == "no_quota"


async def has_left(app: App, job_id: str, *states: State) -> bool:
    return (await (await app.engine()).reads.get(job_id)).state not in states


async def released(app: App, job_id: str) -> bool:
    return "release" in await verbs(app, job_id)


class TestClocks:
    async def test_an_attempt_that_takes_too_long_is_ended_and_counts_as_a_failure(self, app: App) -> None:
        @app.job(timeout=0.3, max_attempts=1)
        async def endless() -> None:
            await asyncio.sleep(60)

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await endless.enqueue()).result(60)
        assert failed.value.code == "timeout"

    async def test_the_timeout_of_one_job_can_be_its_own(self, app: App) -> None:
        @app.job(max_attempts=1)
        async def endless() -> None:
            await asyncio.sleep(60)

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await endless.options(timeout=0.2).enqueue()).result(60)
        assert failed.value.code == "timeout"

    async def test_silence_ends_a_job_that_promised_progress(self, app: App) -> None:
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

    async def test_a_thread_that_looks_ends_when_its_time_is_up(self, app: App) -> None:
        @app.job(timeout=0.3, max_attempts=1)
        def looks(ctx: SyncContext) -> None:
            while not ctx.cancel_requested:
                time.sleep(0.01)
            raise RuntimeError("told to stop")

        async with working(app) as at_work:
            with pytest.raises(JobFailed) as failed:
                await (await looks.enqueue()).result(60)
            await until(lambda: at_work.worker.stuck == 0)
        assert failed.value.code == "timeout"

    async def test_a_thread_that_ended_in_time_is_believed_although_the_loop_was_blocked_then(self, app: App) -> None:
        loop = asyncio.get_running_loop()

        @app.job(timeout=2, max_attempts=1)
        def in_time() -> str:
            loop.call_soon_threadsafe(time.sleep, 3)
            return "in time"

        async with working(app):
            assert await (await in_time.enqueue()).result(60) == "in time"

    async def test_a_thread_that_does_not_end_costs_its_slot_until_it_does(self, app: App) -> None:
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
                assert at_work.worker.stuck == 1
                assert await (await other.enqueue()).result(60) == "ran"
                gate.set()
                await until(lambda: at_work.worker.stuck == 0)
        finally:
            gate.set()

    async def test_a_process_that_lost_too_many_slots_ends_to_be_replaced(self, app: App) -> None:
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


class TestCancel:
    async def test_a_running_job_is_canceled_when_the_heartbeat_process_hears_of_it(self, app: App) -> None:
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

    async def test_progress_hears_of_a_cancel_too(self, app: App) -> None:
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

    async def test_a_handler_that_finishes_all_the_same_has_succeeded(self, app: App) -> None:
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
    async def test_an_execution_that_lost_its_lease_is_told_and_records_nothing(self, app: App) -> None:
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
            await until(lambda: at_work.worker.held == 0)
            assert await verbs(app, job.id) == ["create", "claim"]
        assert seen == [(True, True)]

    async def test_a_lease_that_nobody_renewed_is_given_up_in_time(self, app: App) -> None:
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

    async def test_a_late_completion_is_refused_and_the_worker_goes_on(self, app: App) -> None:
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


class TestTrouble:
    async def test_results_wait_for_the_database_and_arrive(self, app: App) -> None:
        @app.job()
        async def quick(number: int) -> int:
            return number

        async with working(app) as at_work:
            at_work.source.broken["complete"] = StoreUnavailable("away")
            jobs = await quick.enqueue_many([{"number": number} for number in range(20)])
            await until(lambda: sum(verb == "complete" for verb, _ in at_work.source.calls) >= 3)
            assert {await job.status() for job in jobs} == {"RUNNING"}
            at_work.source.broken.clear()
            assert [await job.result(60) for job in jobs] == list(range(20))

    async def test_claiming_goes_on_when_the_database_is_back(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        async with working(app) as at_work:
            at_work.source.broken["claim"] = StoreUnavailable("away")
            job = await quick.enqueue()
            await until(lambda: sum(verb == "claim" for verb, _ in at_work.source.calls) >= 3)
            at_work.source.broken.clear()
            assert await job.result(60) == "ran"

    async def test_jobs_claimed_in_an_answer_that_was_lost_are_run_and_not_given_back(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        job = await quick.enqueue()
        engine = await app.engine()
        async with working(app) as at_work:
            at_work.source.lost_answers.add("claim")
            second = await quick.enqueue()
            await until(lambda: "claim" not in at_work.source.lost_answers)
            assert [await job.result(60), await second.result(60)] == ["ran", "ran"]
        outcomes = [attempt.outcome for made in (job, second) for attempt in await engine.reads.attempts(made.id)]
        assert outcomes == ["succeeded", "succeeded"]

    async def test_a_completion_whose_answer_was_lost_counts_once(self, app: App) -> None:
        @app.job()
        async def quick() -> str:
            return "ran"

        async with working(app) as at_work:
            at_work.source.lost_answers.add("complete")
            job = await quick.enqueue()
            assert await job.result(60) == "ran"
            await until(lambda: at_work.worker.held == 0)
        assert (await verbs(app, job.id)).count("complete") == 1

    async def test_more_than_the_board_can_hold_is_not_claimed(self, app: App) -> None:
        @app.job()
        async def quick() -> None: ...

        async with working(app) as at_work:
            at_work.source.broken["complete"] = StoreUnavailable("away")
            jobs = await quick.enqueue_many([{}] * 5000)
            await until(lambda: not at_work.worker.slots.wanted(), seconds=60)
            at_work.source.broken.clear()
            await until(lambda: is_done(app, jobs[-1].id), seconds=60)
            await until(lambda: everything_done(app), seconds=60)


class TestPace:
    def test_nothing_is_held_ahead_before_the_pace_is_known(self) -> None:
        assert Prefetch(10).ahead() == 0

    def test_slow_jobs_are_not_claimed_ahead(self) -> None:
        pace = Prefetch(10)
        pace.ended(2.0)
        assert pace.ahead() == 0

    def test_quick_jobs_are_up_to_a_limit(self) -> None:
        pace = Prefetch(10)
        pace.ended(0.01)
        assert pace.ahead() == 100
        for _ in range(200):
            pace.ended(0.0)
        assert pace.ahead() == AHEAD_MAX

    def test_it_falls_when_jobs_become_slow(self) -> None:
        pace = Prefetch(10)
        pace.ended(0.001)
        for _ in range(3):
            pace.ended(30.0)
        assert pace.ahead() == 0

    def test_what_had_to_be_given_back_makes_it_careful_for_a_while(self) -> None:
        pace = Prefetch(10)
        pace.ended(0.0)
        pace.claimed(100, back=10)
        assert pace.ahead() == AHEAD_MAX // 2
        pace.claimed(100, back=60)
        assert pace.ahead() == 0
        pace.claimed(10, back=0)
        assert pace.ahead() == 0, "it was too many twice"
        pace.claimed(10, back=0)
        assert pace.ahead() == 1
        for _ in range(30):
            pace.claimed(10, back=0)
        assert pace.ahead() == AHEAD_MAX
