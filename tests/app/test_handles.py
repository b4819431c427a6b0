"""Job handles: wait for the result, read events, cancel; from async and sync code."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast import App, Context, JobFailed, JobHandle, Permanent, Reject, SyncContext
from holdfast.engine import Retention
from holdfast.errors import Invalid, NotFound
from holdfast.lifecycle import State
from holdfast.sdk.definitions import Definition
from tests.app.steps import drained
from tests.engine.steps import UNKNOWN_ID
from tests.worker.in_process import working


@dataclasses.dataclass
class Point:
    x: int


class Order(msgspec.Struct):
    number: int


class Bill(pydantic.BaseModel):
    total: int


@pytest.fixture
def ends(app: App) -> Definition[[str], str]:
    """A job that ends as its payload says."""

    @app.job(max_attempts=1)
    async def ends(how: str) -> str:
        match how:
            case "permanent":
                raise Permanent("E_NO_SUCH_CARD", "the card is gone")
            case "reject":
                raise Reject("SAFE_BLOCK", "not this")
            case "error":
                raise ConnectionError("connection refused")
            case "bare":
                raise KeyError
        return how

    return ends


class TestResult:
    async def test_result_returns_the_value_when_the_job_succeeded(
        self, app: App, ends: Definition[[str], str]
    ) -> None:
        job = await ends.enqueue("well")
        waiting = asyncio.create_task(job.result(60))
        await drained(app)
        assert await waiting == "well"
        assert (await job.status(), await job.result(), await job.result(timeout=0)) == ("COMPLETED", "well", "well")

    async def test_result_has_the_annotated_return_type(self, app: App) -> None:
        @app.job()
        async def point() -> Point:
            return Point(1)

        @app.job()
        async def orders() -> list[Order]:
            return [Order(1)]

        @app.job()
        def bill() -> Bill | None:
            return Bill(total=5)

        @app.job()
        async def nothing() -> None: ...

        @app.job()
        async def anything():  # type: ignore[no-untyped-def]
            return Point(1)

        jobs: list[JobHandle[Any]] = [await one.enqueue() for one in (point, orders, bill, nothing, anything)]  # type: ignore[attr-defined]
        await drained(app)
        assert [await job.result(60) for job in jobs] == [Point(1), [Order(1)], Bill(total=5), None, {"x": 1}]

    async def test_result_of_a_handle_by_id_is_plain_json(self, app: App) -> None:
        @app.job()
        async def point() -> Point:
            return Point(1)

        job = await point.enqueue()
        await drained(app)
        assert await app.job_handle(job.id).result(60) == {"x": 1}

    @pytest.mark.parametrize(
        ("how", "code", "message", "status"),
        [
            ("permanent", "E_NO_SUCH_CARD", "the card is gone", "FAILED"),
            ("reject", "SAFE_BLOCK", "not this", "REJECTED"),
            ("error", "ConnectionError", "connection refused", "FAILED"),
            ("bare", "KeyError", "", "FAILED"),
        ],
    )
    async def test_result_of_a_failed_job_raises_with_its_code_and_message(
        self, app: App, ends: Definition[[str], str], how: str, code: str, message: str, status: str
    ) -> None:
        job = await ends.enqueue(how)
        await drained(app)
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
        assert (failed.value.code, failed.value.message) == (code, message)
        assert (failed.value.job_id, failed.value.status, await job.status()) == (job.id, status, status)
        assert job.id in str(failed.value)
        assert code in str(failed.value)

    async def test_result_of_a_canceled_job_raises(self, app: App, ends: Definition[[str], str]) -> None:
        job = await ends.enqueue("well")
        assert await job.cancel("changed my mind")
        with pytest.raises(JobFailed, match="is CANCELED") as failed:
            await job.result(60)
        assert (failed.value.code, failed.value.message) == ("canceled", "changed my mind")

    async def test_result_raises_timeout_error(self, app: App, ends: Definition[[str], str]) -> None:
        job = await ends.enqueue("well")
        for seconds in (0, 0.05):
            with pytest.raises(TimeoutError, match=f"{job.id} is still PENDING after {seconds:g} s"):
                await job.result(seconds)
        await drained(app)
        assert await job.result(60) == "well"

    async def test_a_result_that_does_not_match_the_return_type_raises_invalid(self, app: App) -> None:
        """Stored by an older release, read by a newer one."""

        @app.job("POINT")
        async def old() -> dict[str, str]:
            return {"x": "one"}

        job = await old.enqueue()
        await drained(app)
        newer = App(app.settings)

        @newer.job("POINT")
        async def new() -> Point: ...  # type: ignore[empty-body]

        with pytest.raises(Invalid, match=r"result of POINT: Expected `int`, got `str` - at `\$.x`"):
            await JobHandle(newer, job.id, read=new.handler.signature.returned).result(60)
        await newer.close()

    @pytest.mark.parametrize("ask", [JobHandle.get, JobHandle.status, JobHandle.result, JobHandle.cancel])
    async def test_a_handle_of_an_unknown_job_raises_not_found(self, app: App, ask: Callable[..., Any]) -> None:
        with pytest.raises(NotFound):
            await ask(app.job_handle(UNKNOWN_ID))


class TestEvents:
    async def test_events_yield_the_whole_history_and_end_with_the_job(
        self, app: App, ends: Definition[[str], str]
    ) -> None:
        job = await ends.enqueue("well")
        await drained(app)
        events = [event async for event in job.events()]
        assert [event.verb for event in events] == ["create", "claim", "complete"]
        assert [event.seq for event in events] == [1, 2, 3]
        assert [event.verb for event in job.events_sync()] == [event.verb for event in events]

    async def test_events_arrive_while_the_job_runs(self, app: App) -> None:
        seen, half_way = asyncio.Event(), asyncio.Event()

        @app.job()
        async def slow(ctx: Context) -> None:
            await ctx.progress(50, "half")
            half_way.set()
            await seen.wait()

        job = await slow.enqueue()
        told: list[tuple[str, float | None]] = []
        working = asyncio.create_task(drained(app))
        async for event in job.events():
            told.append((event.verb, event.percent))
            if event.verb == "progress":
                seen.set()
        await working
        assert half_way.is_set()
        assert told[:3] == [("create", None), ("claim", None), ("progress", 50)]
        assert told[-1][0] == "complete"

    async def test_events_of_a_long_history_are_complete(self, app: App) -> None:
        @app.job()
        async def chatty(ctx: Context) -> None:
            for n in range(300):
                await ctx.progress(step=f"step {n}")

        job = await chatty.enqueue()
        await drained(app)
        events = [event async for event in job.events()]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert (events[-2].step, events[-1].verb) == ("step 299", "complete")

    async def test_events_of_an_unknown_job_raise_not_found(self, app: App) -> None:
        with pytest.raises(NotFound):
            await asyncio.wait_for(anext(app.job_handle(UNKNOWN_ID).events()), 60)

    async def test_events_raise_not_found_when_the_job_is_pruned(self, app: App, ends: Definition[[str], str]) -> None:
        """Maintenance prunes the job between two reads."""
        job = await ends.enqueue("well")
        events = job.events()
        assert (await anext(events)).verb == "create"
        await drained(app)
        assert await (await app.engine()).maintenance.prune(Retention(succeeded=0)) == 1
        with pytest.raises(NotFound):
            await asyncio.wait_for(anext(events), 60)


class TestCancel:
    async def test_a_waiting_job_is_canceled_at_once(self, app: App, ends: Definition[[str], str]) -> None:
        job = await ends.enqueue("well")
        assert (await job.cancel(), await job.cancel()) == (True, True)
        assert (await drained(app), await job.status()) == (0, "CANCELED")

    async def test_a_running_job_gets_a_cancel_request(self, app: App) -> None:
        started = asyncio.Event()

        @app.job()
        async def endless(ctx: Context) -> None:
            started.set()
            while True:
                await ctx.progress()
                await asyncio.sleep(0.01)

        async with working(app):
            job = await endless.enqueue()
            await started.wait()
            assert await job.cancel() is False
            with pytest.raises(JobFailed):
                await job.result(60)
        assert (await job.get()).state is State.CANCELED


class TestFromSyncCode:
    """The same methods with `_sync` at the end."""

    @pytest.fixture
    async def at_work(self, app: App) -> AsyncIterator[None]:
        async with working(app):
            yield

    async def test_every_method_has_a_sync_form(self, app: App, ends: Definition[[str], str], at_work: None) -> None:
        @app.job()
        def point(ctx: SyncContext) -> Point:
            return Point(ctx.attempt)

        def story() -> None:
            job = ends.enqueue_sync("well")
            assert job.result_sync(30) == "well"
            assert (job.status_sync(), job.get_sync().state) == ("COMPLETED", State.SUCCEEDED)
            assert [event.verb for event in job.events_sync()][-1] == "complete"
            with pytest.raises(JobFailed, match="E_NO_SUCH_CARD"):
                ends.enqueue_sync("permanent").result_sync(timeout=30)
            delayed = ends.options(delay=3600).enqueue_sync("well")
            with pytest.raises(TimeoutError):
                delayed.result_sync(0.01)
            assert delayed.cancel_sync()

        await asyncio.to_thread(story)

    async def test_a_handle_works_from_sync_and_async_code(self, app: App, ends: Definition[[str], str]) -> None:
        job = await ends.enqueue("well")
        await drained(app)
        assert await asyncio.to_thread(job.result_sync, 20) == await job.result(60) == "well"
