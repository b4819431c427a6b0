"""How the return value or the exception of a handler ends its job."""

from typing import Any

import pytest

from holdfast import App, JobFailed, Permanent, Reject, Retry, Snooze
from holdfast.errors import Refused, StoreError
from holdfast.lifecycle import State
from tests.engine.hooking import effect, guard
from tests.worker.in_process import until, verbs, working


async def has_left(app: App, job_id: str, *states: State) -> bool:
    return (await (await app.engine()).reads.get(job_id)).state not in states


async def released(app: App, job_id: str) -> bool:
    return "release" in await verbs(app, job_id)


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
    async def test_the_exception_decides_the_state_of_the_job(
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

    async def test_a_snooze_uses_no_attempt(self, app: App) -> None:
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

    async def test_reject_ends_as_rejected_or_as_dead_depending_on_the_lifecycle(self, app: App) -> None:
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

    async def test_a_result_that_is_not_json_fails_only_its_own_job_permanently(self, app: App) -> None:
        @app.job()
        async def odd(bad: bool) -> Any:
            return object() if bad else "fine"

        async with working(app):
            bad, good = await odd.enqueue(True), await odd.enqueue(False)
            assert await good.result(60) == "fine"
            with pytest.raises(JobFailed) as failed:
                await bad.result(60)
        assert failed.value.code == "result_not_json"

    async def test_an_error_message_with_a_nul_character_is_stored(self, app: App) -> None:
        @app.job(errors={ValueError: "permanent"})
        async def binary() -> None:
            raise ValueError("got \x00")

        async with working(app):
            with pytest.raises(JobFailed) as failed:
                await (await binary.enqueue()).result(60)
        assert failed.value.code == "ValueError"

    async def test_a_report_that_a_hook_fails_does_not_delay_other_reports(self, app: App) -> None:
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

    async def test_a_worker_with_a_failing_hook_stops_and_its_job_is_retried(self, app: App) -> None:
        """Its unreported job is lost with its lease, and runs again."""

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

    async def test_a_guard_that_refuses_a_completion_fails_the_job(self, app: App) -> None:
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
