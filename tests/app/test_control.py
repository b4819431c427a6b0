"""What handlers and apps do with other jobs: wait for children without a slot, wake, cancel."""

from typing import Any

import pytest

from holdfast import App, Context, SyncContext
from holdfast.lifecycle import State
from tests.app.steps import drained
from tests.worker.in_process import until, working


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_parent_that_waits_for_children_holds_no_slot_and_continues_when_they_end(app: App, kind: str) -> None:
    @app.job(max_attempts=1)
    async def page(number: int) -> int:
        if number == 2:
            raise ValueError("torn")
        return number * 10

    async def book(ctx: Context, pages: int) -> Any:
        if ctx.checkpoint is None:
            async with ctx.transaction() as tx:
                for number in range(pages - 1):
                    await tx.enqueue(page, number)
            await ctx.enqueue(page, pages - 1)
            await ctx.save({"pages": pages})
            raise ctx.wait_for_children()
        return [(child.state, child.result) for child in await ctx.children()], ctx.attempt

    def book_sync(ctx: SyncContext, pages: int) -> Any:
        if ctx.checkpoint is None:
            for number in range(pages):
                ctx.enqueue(page, number)
            ctx.save({"pages": pages})
            return ctx.wait_for_children()
        return [(child.state, child.result) for child in ctx.children()], ctx.attempt

    definition: Any = app.job("book")(book if kind == "async" else book_sync)  # type: ignore[arg-type]
    async with working(app, concurrency=1):  # one slot: it would wait for ever if it held it
        job = await definition.enqueue(pages=3)
        result = await job.result(60)
    assert result == [[["succeeded", 0], ["succeeded", 10], ["dead", None]], 1]
    releases = [event for event in await (await app.engine()).reads.history(job.id) if event.verb == "release"]
    assert [event.reason for event in releases] == ["waiting_for_children"]


async def test_app_wake_ends_the_snooze_of_a_job(app: App) -> None:
    @app.job()
    async def provider(ctx: Context) -> str:
        if ctx.checkpoint is None:
            await ctx.save({"asked": True})
            raise ctx.snooze(3600)
        return "answered"

    async with working(app):
        job = await provider.enqueue()
        await until(lambda: _is(job, State.QUEUED, "snoozed"))
        assert await app.wake(job.id) is True
        assert await job.result(60) == "answered"


async def test_a_wake_while_the_handler_runs_ends_its_next_snooze(app: App) -> None:
    @app.job()
    async def provider(ctx: Context) -> str:
        if ctx.fence == 1:
            assert await app.wake(ctx.job_id) is False  # the answer comes before the handler has put itself off
            raise ctx.snooze(3600)
        return "answered"

    async with working(app):
        assert await (await provider.enqueue()).result(60) == "answered"


async def test_a_handler_cancels_and_wakes_others(app: App) -> None:
    @app.job(queue="elsewhere")
    async def other() -> None: ...

    @app.job()
    async def decides(ctx: Context, bad: str, late: str) -> list[bool]:
        canceled = await ctx.cancel_job(bad, "not wanted")
        async with ctx.transaction() as tx:
            return [canceled, await tx.wake(late)]

    bad, late = await other.enqueue(), await other.options(delay=3600).enqueue()
    job = await decides.enqueue(bad.id, late.id)
    await drained(app, queues=["default"])
    assert await job.result(60) == [True, True]
    assert ((await bad.get()).state, (await late.get()).due) == (State.CANCELED, True)


async def _is(job: Any, state: State, reason: str) -> bool:
    found = await job.get()
    return (found.state, found.reason) == (state, reason)
