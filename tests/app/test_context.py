"""The context of a handler: its attributes, progress and checkpoints."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, JobHandle, Retry, SyncContext
from holdfast.errors import Invalid
from holdfast.lifecycle import State
from holdfast.sdk.definitions import Definition
from tests.app.steps import NO_BACKOFF, drained
from tests.worker.in_process import until, working


class TestAttributes:
    async def test_an_async_context_has_the_fields_of_the_job(self, app: App) -> None:
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

    async def test_a_sync_context_has_the_fields_of_the_job(self, app: App) -> None:
        @app.job("FACTS", max_attempts=4)
        def facts(ctx: SyncContext) -> list[Any]:
            return [ctx.job_id, ctx.job_type, ctx.queue, ctx.attempt, ctx.max_attempts, ctx.fence, ctx.tags]

        job = await facts.options(tags=["a"]).enqueue()
        await drained(app)
        assert await job.result(60) == [job.id, "FACTS", "default", 1, 4, 1, ["a"]]

    async def test_the_fence_rises_with_every_execution_and_the_attempt_only_with_counted_ones(self, app: App) -> None:
        seen: list[tuple[int, int, str]] = []

        @app.job(**NO_BACKOFF)
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

    async def test_log_lines_of_a_handler_carry_the_fields_of_the_job(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
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
    async def test_progress_is_stored_and_omitted_fields_are_kept(self, app: App, kind: str) -> None:
        job = await self.told(app, kind).enqueue()
        await drained(app)
        found = await job.get()
        assert (found.step, found.percent) == ("write", 100)  # as complete says
        assert found.counters == {"rows": 2, "bad": 0, "size": "big"}
        history = await (await app.engine()).reads.history(job.id)
        steps = [(event.step, event.percent) for event in history if event.verb == "progress"]
        assert steps == [("read", 10), ("read", 10), ("read", 50), ("write", 50)]

    async def test_progress_is_visible_while_the_job_runs(self, app: App) -> None:
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
    async def test_invalid_progress_fails_the_job(self, app: App, said: dict[str, Any]) -> None:
        @app.job()
        async def odd(ctx: Context) -> None:
            await ctx.progress(**said)

        job = await odd.enqueue()
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert failed.value.code.startswith(("invalid_", "counters_"))

    async def test_invalid_progress_of_one_job_does_not_affect_others(self, app: App) -> None:
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
    async def test_the_next_attempt_gets_the_saved_checkpoint(self, app: App, kind: str) -> None:
        found: list[Any] = []

        @app.job("saves", **NO_BACKOFF)
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

        job_type = saves if kind == "async" else app.job("saves sync", **NO_BACKOFF)(saves_sync)
        job = await job_type.enqueue()
        await drained(app)
        assert await job.result(60) == "done"
        assert found == [None, {"row": 10}]

    async def test_a_checkpoint_that_is_not_json_is_refused_and_the_old_one_is_kept(self, app: App) -> None:
        @app.job()
        async def saves(ctx: Context) -> Any:
            await ctx.save([1])
            with pytest.raises(Invalid, match="checkpoint"):
                await ctx.save({"at": object()})
            return ctx.checkpoint

        job = await saves.enqueue()
        await drained(app)
        assert await job.result(60) == [1]
