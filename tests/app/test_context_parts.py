"""Parts and steps of a handler: finished ones are skipped in the next attempt."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, SyncContext
from holdfast.model import PartStatus
from holdfast.model.history import PART_BYTES_MAX
from holdfast.sdk.definitions import Definition
from tests.app.steps import NO_BACKOFF, drained


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

        return app.job("film", **NO_BACKOFF)(film if kind == "async" else film_sync)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_finished_part_is_skipped_in_the_next_attempt(self, app: App, kind: str) -> None:
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

    async def test_the_progress_of_a_job_follows_its_finished_parts(self, app: App) -> None:
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

    async def test_all_parts_are_visible_in_the_order_of_the_handler(self, app: App) -> None:
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

    async def test_a_part_left_by_break_stays_in_progress(self, app: App) -> None:
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

    async def test_parts_may_be_iterated_twice_and_change_between_attempts(self, app: App) -> None:
        done: list[str] = []

        @app.job(**NO_BACKOFF)
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

        return app.job("order", **NO_BACKOFF)(order if kind == "async" else order_sync)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_step_runs_once_across_attempts(self, app: App, kind: str) -> None:
        called: list[str] = []
        job = await self.order(app, kind, called).enqueue()
        await drained(app)
        assert await job.result(60) == [{"charged": "5 EUR"}, "shipped", None]
        assert called == ["charge", "ship"]
        assert (await job.get()).attempt == 2

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_a_failed_step_runs_again_in_the_next_attempt(self, app: App, kind: str) -> None:
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

        job = await app.job("order", **NO_BACKOFF)(order if kind == "async" else order_sync).enqueue()  # type: ignore[arg-type]
        await drained(app)
        assert (await job.result(60), called) == (2, [1, 2])

    async def test_a_sync_step_runs_in_the_thread_of_its_handler(self, app: App) -> None:
        @app.job()
        def order(ctx: SyncContext) -> bool:
            return bool(ctx.step("where", threading.get_ident) == threading.get_ident())

        job = await order.enqueue()
        await drained(app)
        assert await job.result(60) is True

    async def test_a_step_returns_its_result_as_stored_also_in_the_first_attempt(self, app: App) -> None:
        """A tuple is stored as a list: better to notice now than in a retry."""
        seen: list[Any] = []

        @app.job(**NO_BACKOFF)
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
    async def test_a_step_result_that_cannot_be_stored_fails_the_job_permanently(
        self, app: App, result: Any, code: str
    ) -> None:
        @app.job()
        async def order(ctx: Context) -> None:
            await ctx.step("odd", lambda: result)

        job = await order.enqueue()
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert failed.value.code == code

    async def test_a_step_may_have_the_name_of_an_earlier_part(self, app: App) -> None:
        """An older release of the handler used the name for a part; its data is no step result."""

        @app.job(**NO_BACKOFF)
        async def order(ctx: Context) -> Any:
            if ctx.attempt == 1:
                async for part in ctx.parts(["charge"]):
                    part.data = ["something else"]
                raise ConnectionError
            return await ctx.step("charge", lambda: "charged")

        job = await order.enqueue()
        await drained(app)
        assert await job.result(60) == "charged"
