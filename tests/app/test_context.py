"""What a handler may ask and say while it runs: the same in async handlers and, from threads, in sync ones."""

import asyncio
import logging
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, JobHandle, Retry, SyncContext
from holdfast.errors import Invalid, LeaseLost
from holdfast.lifecycle import State
from holdfast.model import PartStatus
from holdfast.model.history import PART_BYTES_MAX
from holdfast.sdk.definitions import Definition
from holdfast.worker.runtime import Worker
from tests.app.steps import drained
from tests.worker.in_process import until, working

AT_ONCE = {"backoff_base_seconds": 0}


async def verbs(app: App, job: JobHandle[Any]) -> list[str]:
    return [event.verb for event in await (await app.engine()).reads.history(job.id)]


class TestFacts:
    async def test_a_handler_knows_what_it_runs(self, app: App) -> None:
        @app.job("FACTS", queue="q", max_attempts=4)
        async def facts(ctx: Context) -> dict[str, Any]:
            assert isinstance(ctx.created_at, datetime)
            assert datetime(2026, 1, 1, tzinfo=UTC) < ctx.created_at
            assert (ctx.cancel_requested, ctx.lost, ctx.stopping) == (False, False, False)
            return {
                "id": ctx.job_id,
                "what": [ctx.job_type, ctx.queue, ctx.tenant, ctx.attempt, ctx.max_attempts, ctx.fence],
                "token": ctx.lease_token,
                "tags": ctx.tags,
                "checkpoint": ctx.checkpoint,
                "state": ctx.state,
            }

        job = await facts.options(tags=["b", "a"]).enqueue()
        await drained(app)
        said = await job.result(60)
        [attempt] = await (await app.engine()).reads.attempts(job.id)
        assert said == {
            "id": job.id,
            "what": ["FACTS", "q", "default", 1, 4, 1],
            "token": attempt.token,
            "tags": ["a", "b"],
            "checkpoint": None,
            "state": None,
        }

    async def test_a_thread_knows_the_same(self, app: App) -> None:
        @app.job("FACTS", max_attempts=4)
        def facts(ctx: SyncContext) -> list[Any]:
            return [ctx.job_id, ctx.job_type, ctx.queue, ctx.attempt, ctx.max_attempts, ctx.fence, ctx.tags]

        job = await facts.options(tags=["a"]).enqueue()
        await drained(app)
        assert await job.result(60) == [job.id, "FACTS", "default", 1, 4, 1, ["a"]]

    async def test_the_fence_rises_with_every_execution_and_the_attempt_only_with_those_that_count(
        self, app: App
    ) -> None:
        seen: list[tuple[int, int, str]] = []

        @app.job(**AT_ONCE)
        async def fenced(ctx: Context) -> Any:
            seen.append((ctx.fence, ctx.attempt, ctx.lease_token))
            if len(seen) == 1:
                return ctx.snooze(0)
            if len(seen) == 2:
                raise Retry("E_AGAIN")
            return None

        await fenced.enqueue()
        await drained(app)
        assert [(fence, attempt) for fence, attempt, _ in seen] == [(1, 1), (2, 1), (3, 2)]
        assert len({token for *_, token in seen}) == 3

    async def test_its_log_lines_carry_the_jobs_fields(self, app: App, caplog: pytest.LogCaptureFixture) -> None:
        @app.job("LOGS", queue="q")
        async def logs(ctx: Context) -> None:
            ctx.log.info("rendering %s", "a.png", extra={"size": 5})

        @app.job("LOGS_TOO")
        def logs_too(ctx: SyncContext) -> None:
            ctx.log.warning("from a thread")

        jobs = [await logs.enqueue(), await logs_too.enqueue()]
        with caplog.at_level(logging.INFO, logger="holdfast.job"):
            await drained(app)
        lines = {line.getMessage(): line.__dict__ for line in caplog.records if line.name == "holdfast.job"}
        async_line, sync_line = lines["rendering a.png"], lines["from a thread"]
        fields = {"job_id": jobs[0].id, "job_type": "LOGS", "queue": "q", "attempt": 1, "size": 5}
        assert fields.items() <= async_line.items()
        assert {"job_id": jobs[1].id, "job_type": "LOGS_TOO"}.items() <= sync_line.items()


class TestProgress:
    def told(self, app: App, kind: str) -> Definition[[], None]:
        @app.job("told")
        async def told(ctx: Context) -> None:
            await ctx.progress(percent=10, step="read", eta_seconds=60, counters={"rows": 1, "bad": 0})
            await ctx.counters(rows=2, size="big")
            await ctx.progress(50)
            await ctx.progress(step="write")

        def told_sync(ctx: SyncContext) -> None:
            ctx.progress(percent=10, step="read", eta_seconds=60, counters={"rows": 1, "bad": 0})
            ctx.counters(rows=2, size="big")
            ctx.progress(50)
            ctx.progress(step="write")

        return told if kind == "async" else app.job("told sync")(told_sync)

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_it_is_kept_and_told_and_what_is_not_said_stays(self, app: App, kind: str) -> None:
        job = await self.told(app, kind).enqueue()
        await drained(app)
        found = await job.get()
        assert (found.step, found.percent) == ("write", 100)  # as complete says
        assert found.counters == {"rows": 2, "bad": 0, "size": "big"}
        history = await (await app.engine()).reads.history(job.id)
        steps = [(event.step, event.percent) for event in history if event.verb == "progress"]
        assert steps == [("read", 10), ("read", 10), ("read", 50), ("write", 50)]

    async def test_it_can_be_watched_while_the_job_runs(self, app: App) -> None:
        seen = asyncio.Event()

        @app.job()
        async def slow(ctx: Context) -> None:
            await ctx.progress(25, "quarter", eta_seconds=60)
            await seen.wait()

        async with working(app):
            job = await slow.enqueue()
            await until(lambda: at(job, "quarter"))
            found = await job.get()
            assert (found.state, found.percent, found.eta_at is not None) == (State.RUNNING, 25, True)
            seen.set()
            await job.result(60)

    @pytest.mark.parametrize("said", [{"percent": 101}, {"percent": "half"}, {"step": ""}, {"counters": [1]}])
    async def test_nonsense_is_an_error_of_the_handler(self, app: App, said: dict[str, Any]) -> None:
        @app.job()
        async def odd(ctx: Context) -> None:
            await ctx.progress(**said)

        job = await odd.enqueue()
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert failed.value.code.startswith(("invalid_", "counters_"))

    async def test_one_handlers_nonsense_does_not_harm_its_neighbours(self, app: App) -> None:
        """Reports of many jobs share a commit."""

        @app.job(max_attempts=1)
        async def says(ctx: Context, percent: int) -> None:
            for _ in range(3):
                await ctx.progress(percent)

        jobs = [await says.enqueue(percent) for percent in (10, 1000, 30, -5, 50)]
        await drained(app)
        assert [await job.status() for job in jobs] == ["COMPLETED", "FAILED", "COMPLETED", "FAILED", "COMPLETED"]
        history = [await (await app.engine()).reads.history(job.id) for job in jobs]
        said = [[event.percent for event in events if event.verb == "progress"] for events in history]
        assert said == [[10] * 3, [], [30] * 3, [], [50] * 3]


async def at(job: JobHandle[Any], step: str) -> bool:
    return (await job.get()).step == step


class TestCheckpoints:
    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_the_next_attempt_finds_what_this_one_saved(self, app: App, kind: str) -> None:
        found: list[Any] = []

        @app.job("saves", **AT_ONCE)
        async def saves(ctx: Context) -> str:
            found.append(ctx.checkpoint)
            if ctx.attempt == 1:
                await ctx.save({"row": 5})
                await ctx.progress(10, checkpoint={"row": 10})
                assert ctx.checkpoint == {"row": 10}
                raise ConnectionError
            return "done"

        def saves_sync(ctx: SyncContext) -> str:
            found.append(ctx.checkpoint)
            if ctx.attempt == 1:
                ctx.save({"row": 5})
                ctx.progress(10, checkpoint={"row": 10})
                assert ctx.checkpoint == {"row": 10}
                raise ConnectionError
            return "done"

        job_type = saves if kind == "async" else app.job("saves sync", **AT_ONCE)(saves_sync)
        job = await job_type.enqueue()
        await drained(app)
        assert await job.result(60) == "done"
        assert found == [None, {"row": 10}]

    async def test_what_is_not_json_is_refused_and_the_old_one_stays(self, app: App) -> None:
        @app.job()
        async def saves(ctx: Context) -> Any:
            await ctx.save([1])
            with pytest.raises(Invalid, match="checkpoint"):
                await ctx.save({"at": object()})
            return ctx.checkpoint

        job = await saves.enqueue()
        await drained(app)
        assert await job.result(60) == [1]


class TestParts:
    def film(self, app: App, kind: str, done: list[str], found: list[Any]) -> Definition[[], str]:
        """Its first attempt breaks in the second of three parts."""

        async def film(ctx: Context) -> str:
            async for part in ctx.parts(["1080p", "720p", "480p"]):
                found.append((ctx.attempt, part.name, part.place, part.total, part.data))
                part.data = {"frames": 10 * (part.place + 1)}
                await part.progress(50, total=20, done=10)
                if ctx.attempt == 1 and part.name == "720p":
                    raise ConnectionError
                done.append(part.name)
            return "cut"

        def film_sync(ctx: SyncContext) -> str:
            for part in ctx.parts(["1080p", "720p", "480p"]):
                found.append((ctx.attempt, part.name, part.place, part.total, part.data))
                part.data = {"frames": 10 * (part.place + 1)}
                part.progress(50, total=20, done=10)
                if ctx.attempt == 1 and part.name == "720p":
                    raise ConnectionError
                done.append(part.name)
            return "cut"

        return app.job("film", **AT_ONCE)(film if kind == "async" else film_sync)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_finished_part_is_not_done_again(self, app: App, kind: str) -> None:
        done: list[str] = []
        found: list[Any] = []
        job = await self.film(app, kind, done, found).enqueue()
        await drained(app)
        assert await job.result(60) == "cut"
        assert done == ["1080p", "720p", "480p"]
        assert found == [
            (1, "1080p", 0, 3, None),
            (1, "720p", 1, 3, None),
            (2, "720p", 1, 3, {"frames": 20}),  # with the data of the attempt that broke
            (2, "480p", 2, 3, None),
        ]
        parts = await (await app.engine()).reads.parts(job.id)
        assert [(part.name, part.status, part.percent, part.data) for part in parts] == [
            ("1080p", PartStatus.COMPLETED, 100, {"frames": 10}),
            ("720p", PartStatus.COMPLETED, 100, {"frames": 20}),
            ("480p", PartStatus.COMPLETED, 100, {"frames": 30}),
        ]

    async def test_the_job_is_as_far_as_its_parts(self, app: App) -> None:
        far: list[tuple[str | None, float | None]] = []

        @app.job()
        async def film(ctx: Context) -> None:
            async for _ in ctx.parts(["d", "b", "c", "a"]):
                found = await app.job_handle(ctx.job_id).get()
                far.append((found.step, found.percent))

        job = await film.enqueue()
        await drained(app)
        assert far == [("d", None), ("b", 25), ("c", 50), ("a", 75)]
        assert (await job.get()).percent == 100

    async def test_whoever_watches_sees_all_of_them_in_the_handlers_order(self, app: App) -> None:
        seen: list[list[tuple[str, str]]] = []

        @app.job()
        async def film(ctx: Context) -> None:
            async for _ in ctx.parts(["z", "a", "m"]):
                parts = await (await app.engine()).reads.parts(ctx.job_id)
                seen.append([(part.name, part.status.value) for part in parts])

        await film.enqueue()
        await drained(app)
        assert seen == [
            [("z", "in_progress"), ("a", "pending"), ("m", "pending")],
            [("z", "completed"), ("a", "in_progress"), ("m", "pending")],
            [("z", "completed"), ("a", "completed"), ("m", "in_progress")],
        ]

    async def test_a_part_that_was_left_is_not_finished(self, app: App) -> None:
        @app.job()
        async def film(ctx: Context) -> None:
            async for part in ctx.parts(["a", "b"]):
                if part.name == "b":
                    break

        job = await film.enqueue()
        await drained(app)
        parts = await (await app.engine()).reads.parts(job.id)
        assert [(part.name, part.status) for part in parts] == [
            ("a", PartStatus.COMPLETED),
            ("b", PartStatus.IN_PROGRESS),
        ]

    async def test_parts_may_be_worked_through_twice_and_change_between_attempts(self, app: App) -> None:
        done: list[str] = []

        @app.job(**AT_ONCE)
        async def film(ctx: Context) -> None:
            for _ in range(2):
                done.extend([part.name async for part in ctx.parts(["a", "b"] if ctx.attempt == 1 else ["b", "c"])])
            if ctx.attempt == 1:
                raise ConnectionError

        await film.enqueue()
        await drained(app)
        assert done == ["a", "b", "c"]


class TestSteps:
    def order(self, app: App, kind: str, called: list[str]) -> Definition[[], list[Any]]:
        """Its first attempt breaks after its second step."""

        def charge(amount: int, *, currency: str) -> dict[str, Any]:
            called.append("charge")
            return {"charged": f"{amount} {currency}"}

        async def ship() -> str:
            called.append("ship")
            await asyncio.sleep(0)
            return "shipped"

        async def order(ctx: Context) -> list[Any]:
            paid = await ctx.step("charge", charge, 5, currency="EUR")
            sent = await ctx.step("ship", ship)
            if ctx.attempt == 1:
                raise ConnectionError
            return [paid, sent, await ctx.step("nothing", lambda: None)]

        def order_sync(ctx: SyncContext) -> list[Any]:
            paid = ctx.step("charge", charge, 5, currency="EUR")
            sent = ctx.step("ship", ship)
            if ctx.attempt == 1:
                raise ConnectionError
            return [paid, sent, ctx.step("nothing", lambda: None)]

        return app.job("order", **AT_ONCE)(order if kind == "async" else order_sync)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_step_is_done_once_in_the_life_of_the_job(self, app: App, kind: str) -> None:
        called: list[str] = []
        job = await self.order(app, kind, called).enqueue()
        await drained(app)
        assert await job.result(60) == [{"charged": "5 EUR"}, "shipped", None]
        assert called == ["charge", "ship"]
        assert (await job.get()).attempt == 2

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_step_that_failed_is_done_again(self, app: App, kind: str) -> None:
        called: list[int] = []

        def charge(attempt: int) -> int:
            called.append(attempt)
            if attempt == 1:
                raise ConnectionError("the bank is closed")
            return attempt

        async def order(ctx: Context) -> int:
            return int(await ctx.step("charge", charge, ctx.attempt))

        def order_sync(ctx: SyncContext) -> int:
            return int(ctx.step("charge", charge, ctx.attempt))

        job = await app.job("order", **AT_ONCE)(order if kind == "async" else order_sync).enqueue()  # type: ignore[arg-type]
        await drained(app)
        assert (await job.result(60), called) == (2, [1, 2])

    async def test_a_sync_step_runs_in_the_thread_of_its_handler(self, app: App) -> None:
        @app.job()
        def order(ctx: SyncContext) -> bool:
            return bool(ctx.step("where", threading.get_ident) == threading.get_ident())

        job = await order.enqueue()
        await drained(app)
        assert await job.result(60) is True

    async def test_the_first_attempt_sees_what_the_next_would(self, app: App) -> None:
        """A tuple is stored as a list: better to notice now than in a retry."""
        seen: list[Any] = []

        @app.job(**AT_ONCE)
        async def order(ctx: Context) -> None:
            seen.append(await ctx.step("pair", lambda: (1, 2)))
            if ctx.attempt == 1:
                raise ConnectionError

        await order.enqueue()
        await drained(app)
        assert seen == [[1, 2], [1, 2]]

    @pytest.mark.parametrize(
        ("result", "code"), [(object(), "part_not_json"), ("x" * PART_BYTES_MAX, "part_too_large")]
    )
    async def test_a_result_that_cannot_be_stored_is_an_error_for_good(self, app: App, result: Any, code: str) -> None:
        @app.job()
        async def order(ctx: Context) -> None:
            await ctx.step("odd", lambda: result)

        job = await order.enqueue()
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert failed.value.code == code

    async def test_a_name_may_have_been_a_part_before(self, app: App) -> None:
        """An older release of the handler called it so; what it left is no result."""

        @app.job(**AT_ONCE)
        async def order(ctx: Context) -> Any:
            if ctx.attempt == 1:
                async for part in ctx.parts(["charge"]):
                    part.data = ["something else"]
                raise ConnectionError
            return await ctx.step("charge", lambda: "charged")

        job = await order.enqueue()
        await drained(app)
        assert await job.result(60) == "charged"


class TestTheEndOfALease:
    async def test_a_handler_that_lost_its_job_cannot_report(self, app: App) -> None:
        """And is told why, whatever it tries; the job's next execution has a higher fence."""
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
            await until(lambda: one.worker.held == 1)
            await taken_away(app, job)
            may_go_on.set()
            assert await job.result(60) == "fence 2"
        assert refused == ["lease_lost"]

    async def test_a_thread_sees_that_it_lost_its_job(self, app: App) -> None:
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
            await until(lambda: one.worker.held == 1)
            await taken_away(app, job)
            may_go_on.set()
            assert await job.result(60) == "fence 2"
        assert saw == [True]

    async def test_a_thread_sees_that_its_job_is_to_be_canceled(self, app: App) -> None:
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

    async def test_an_async_handler_is_interrupted_where_it_waits_and_may_tidy_up(self, app: App) -> None:
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

    async def test_a_worker_that_stops_warns_those_who_look(self, app: App) -> None:
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


async def taken_away(app: App, job: JobHandle[Any]) -> None:
    """As if its worker had been silent for too long: its lease is over, and its token worth nothing."""
    engine = await app.engine()
    found = await job.get()
    assert found.lease_instance is not None
    [_] = await engine.maintenance.reap(gone=[found.lease_instance])
