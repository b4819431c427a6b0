"""What an app puts around its handlers: middleware, an error hook, a lifespan."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Permanent, Reject, Snooze, SyncContext
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.lifecycle import State
from tests.app.steps import drained

Next = Callable[[], Awaitable[Any]]


class TestMiddleware:
    async def test_the_first_middleware_is_outermost(self, app: App) -> None:
        told: list[str] = []

        @app.middleware
        async def outer(ctx: Context, call_next: Next) -> Any:
            told.append(f"outer before {ctx.job_type}")
            result = await call_next()
            told.append(f"outer after {result}")
            return result

        @app.middleware
        async def inner(_ctx: Context, call_next: Next) -> Any:
            told.append("inner before")
            result = await call_next()
            told.append("inner after")
            return f"{result}!"

        @app.job()
        async def hello(name: str) -> str:
            told.append("handler")
            return f"hello {name}"

        job = await hello.enqueue("you")
        await drained(app)
        assert await job.result(60) == "hello you!"
        assert told == ["outer before hello", "inner before", "handler", "inner after", "outer after hello you!"]

    async def test_middleware_may_be_passed_to_the_app(self, store_url: str) -> None:
        async def shout(_ctx: Context, call_next: Next) -> Any:
            return (await call_next()).upper()

        async with App(database_url=store_url, middleware=[shout]) as app:

            @app.job()
            def hello() -> str:
                return "hello"

            job = await hello.enqueue()
            await drained(app)
            assert await job.result(60) == "HELLO"

    async def test_middleware_may_return_a_result_without_calling_the_handler(self, app: App) -> None:
        ran: list[int] = []

        @app.middleware
        async def cached(_ctx: Context, _call_next: Next) -> Any:
            return 42

        @app.job()
        async def answer() -> int:
            ran.append(1)
            return 0

        job = await answer.enqueue()
        await drained(app)
        assert (await job.result(60), ran) == (42, [])

    async def test_a_result_of_middleware_is_validated_against_the_return_type(self, app: App) -> None:
        @app.middleware
        async def wrong(_ctx: Context, _call_next: Next) -> Any:
            return "forty-two"

        @app.job()
        async def answer() -> int:
            return 0

        job = await answer.enqueue()
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert failed.value.code == "invalid_result"

    async def test_middleware_may_catch_and_replace_the_error_of_a_handler(self, app: App) -> None:
        seen: list[str] = []

        @app.middleware
        async def translate(_ctx: Context, call_next: Next) -> Any:
            try:
                return await call_next()
            except ConnectionError as error:
                seen.append(str(error))
                raise Permanent("E_PARTNER_GONE", "for ever") from error
            except ValueError:
                return "never mind"

        @app.job()
        async def call(kind: str) -> str:
            raise ConnectionError("connection refused") if kind == "connection" else ValueError

        gone, fine = await call.enqueue("connection"), await call.enqueue("value")
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await gone.result(60)
        assert (failed.value.code, seen) == ("E_PARTNER_GONE", ["connection refused"])
        assert await fine.result(60) == "never mind"

    async def test_an_error_of_middleware_fails_the_attempt(self, app: App) -> None:
        @app.middleware
        async def broken(_ctx: Context, _call_next: Next) -> Any:
            raise RuntimeError("the middleware itself")

        @app.job(max_attempts=1)
        async def hello() -> None: ...

        job = await hello.enqueue()
        await drained(app)
        with pytest.raises(JobFailed, match="the middleware itself") as failed:
            await job.result(60)
        assert failed.value.code == "RuntimeError"

    async def test_middleware_may_snooze_or_reject_a_job(self, app: App) -> None:
        @app.middleware
        async def closed(ctx: Context, call_next: Next) -> Any:
            match ctx.queue:
                case "later":
                    return Snooze(3600)
                case "never":
                    raise ctx.reject("E_CLOSED", "not here")
            return await call_next()

        @app.job()
        async def hello() -> str:
            return "hello"

        jobs = [await hello.options(queue=queue).enqueue() for queue in ("now", "later", "never")]
        await drained(app)
        assert [(await job.get()).state for job in jobs] == [State.SUCCEEDED, State.QUEUED, State.REJECTED]

    async def test_middleware_of_a_sync_handler_runs_on_the_event_loop(self, app: App) -> None:
        @app.middleware
        async def mark(ctx: Context, call_next: Next) -> Any:
            asyncio.get_running_loop()
            await ctx.counters(seen=1)
            return await call_next()

        @app.job()
        def hello(ctx: SyncContext) -> str:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return ctx.job_id

        job = await hello.enqueue()
        await drained(app)
        assert await job.result(60) == job.id
        assert (await job.get()).counters == {"seen": 1}


class TestErrorHook:
    def fails(self, app: App) -> Any:
        @app.job(max_attempts=1)
        async def fails(how: str) -> Any:
            match how:
                case "error":
                    raise ConnectionError("connection refused")
                case "permanent":
                    return Permanent("E_GONE")
                case "reject":
                    raise Reject("E_NO")
                case "snooze":
                    return Snooze(3600)
                case "odd":
                    return object()
            return how

        return fails

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_the_error_hook_gets_every_error_of_a_handler_and_nothing_else(self, app: App, kind: str) -> None:
        heard: list[tuple[str, str]] = []

        def hook(ctx: Context, error: BaseException) -> None:
            heard.append((ctx.job_id, type(error).__name__))

        async def hook_async(ctx: Context, error: BaseException) -> None:
            await asyncio.sleep(0)
            hook(ctx, error)

        app.on_error(hook_async if kind == "async" else hook)
        fails = self.fails(app)
        words = ["well", "error", "permanent", "reject", "snooze", "odd"]
        ids = {word: (await fails.enqueue(word)).id for word in words}
        await drained(app)
        assert set(heard) == {
            (ids["error"], "ConnectionError"),
            (ids["permanent"], "Permanent"),
            (ids["reject"], "Reject"),
            (ids["odd"], "Invalid"),
        }
        assert len(heard) == 4

    async def test_an_error_hook_that_fails_is_logged_and_changes_nothing(
        self, app: App, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.on_error
        def broken(_ctx: Context, _error: BaseException) -> None:
            raise RuntimeError("the hook itself")

        job = await self.fails(app).enqueue("error")
        with caplog.at_level(logging.ERROR, logger="holdfast.job"):
            await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert (failed.value.code, failed.value.message) == ("ConnectionError", "connection refused")
        assert "the app's error hook failed" in caplog.text
        assert "the hook itself" in caplog.text


class TestLifespan:
    async def test_the_lifespan_is_entered_once_per_worker_and_exited_at_its_stop(self, app: App) -> None:
        """The whole worker process, as `holdfast worker` runs it."""
        told: list[str] = []

        @app.lifespan
        @asynccontextmanager
        async def pools(own: App) -> AsyncIterator[dict[str, Any]]:
            assert own is app
            told.append("opened")
            yield {"pool": [1, 2, 3]}
            told.append("closed")

        @app.job()
        async def use(ctx: Context) -> int:
            told.append("used")
            return sum(ctx.state["pool"])

        @app.job()
        def use_sync(ctx: SyncContext) -> int:
            told.append("used")
            return len(ctx.state["pool"])

        stop = asyncio.Event()
        at_work = asyncio.create_task(work(app, WorkerOptions(concurrency=2), stop=stop, on_ready=lambda _: None))
        jobs = [await one.enqueue() for one in (use, use_sync, use)]
        assert [await job.result(60) for job in jobs] == [6, 3, 6]
        stop.set()
        await at_work
        assert told == ["opened", "used", "used", "used", "closed"]

    async def test_enqueueing_does_not_enter_the_lifespan(self, app: App) -> None:
        entered: list[bool] = []

        @app.lifespan
        @asynccontextmanager
        async def pools(_app: App) -> AsyncIterator[None]:
            entered.append(True)
            yield

        @app.job()
        async def use() -> None: ...

        await use.enqueue()
        assert entered == []

    async def test_a_worker_whose_lifespan_fails_does_not_start(self, app: App) -> None:
        @app.lifespan
        @asynccontextmanager
        async def broken(_app: App) -> AsyncIterator[None]:
            raise ConnectionError("no pool today")
            yield

        @app.job()
        async def use() -> None: ...

        job = await use.enqueue()
        with pytest.raises(ConnectionError, match="no pool today"):
            await work(app, WorkerOptions(), stop=asyncio.Event(), on_ready=lambda _: None)
        assert (await job.get()).state is State.QUEUED
