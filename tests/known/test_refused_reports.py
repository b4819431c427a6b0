"""A report that the database refuses for what is in it is not sent again for ever."""

from collections.abc import AsyncIterator

import pytest

from holdfast import App, Context, JobFailed
from holdfast.errors import RowRefused, StoreUnavailable
from holdfast.model import Job
from holdfast.settings import Settings
from holdfast.store import Tx
from holdfast.store.queries import Query
from tests.engine.hooking import effect
from tests.worker.in_process import until, working

TOO_LONG = {
    "postgres": Query("too_long", "SELECT CAST(40000 AS smallint)"),
    "sqlite": Query("too_long", "SELECT zeroblob(2000000000)"),
}


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()


async def test_a_completion_waits_while_its_effect_writes_a_value_that_the_database_cannot_store(app: App) -> None:
    """As a text too long for its column. The work is done: it is not done again, and its completion is tried again."""
    engine = await app.engine()
    broken = True

    @effect(engine, "complete", job_type="pay")
    async def book(tx: Tx, _verb: str, _job: Job) -> None:
        if broken:
            await tx.one(TOO_LONG[engine.store.dialect])

    @app.job(max_attempts=1)
    async def pay() -> str:
        return "paid"

    async with working(app):
        job = await pay.enqueue()
        await until(lambda: engine.ctx.hook_failures["toy", "complete"] > 1)
        broken = False
        assert await job.result(60) == "paid"


async def test_a_progress_report_that_the_database_refuses_raises_in_the_handler(app: App) -> None:
    """It waited for the database to come back, which was never away."""

    @app.job(max_attempts=1)
    async def report(ctx: Context) -> None:
        await ctx.progress(50)

    async with working(app) as at_work:
        at_work.source.broken["progress"] = RowRefused("out of range, on purpose", code="value_refused")
        job = await report.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "value_refused"


async def test_a_refused_report_is_not_retried(app: App) -> None:
    @app.job(max_attempts=1)
    async def report(ctx: Context) -> None:
        await ctx.progress(50)

    async with working(app) as at_work:
        at_work.source.broken["progress"] = StoreUnavailable("away, on purpose")
        job = await report.enqueue()
        await until(lambda: ("progress", 1) in at_work.source.calls)
        at_work.source.broken["progress"] = RowRefused("out of range, on purpose", code="value_refused")
        with pytest.raises(JobFailed) as failed:
            await job.result(60)
    assert failed.value.code == "value_refused"
