"""Handlers and object storage: what a handler publishes counts when its transaction records it, and never before."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import App, Context
from holdfast.clock import MovableClock
from holdfast.errors import LeaseLost
from holdfast.extend import Extension
from holdfast.net import EgressRules, GuardedClient
from holdfast.settings import Settings
from holdfast.storage import open_storage
from holdfast.store.migrate import migrate
from tests.webhooks.receiver import answer, receiving
from tests.worker.in_process import working


async def entries(app: App, ext: Extension) -> set[str]:
    engine = await app.engine()
    return {row["entry"] for row in await engine.store.read(lambda tx: tx.all(ext.q.entries))}


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(Settings(database_url=store_url), name="objects")
    app.include(Extension("notes", package="tests.extension.toy"))
    await migrate(store_url, app.extensions.values())
    yield app
    await app.close()


async def test_a_page_is_fetched_into_storage_and_recorded_with_the_end_of_its_job(app: App, tmp_path: Path) -> None:
    ext, page = app.extensions["notes"], b"<p>hello</p>" * 300_000
    storage = ext.open_storage(str(tmp_path / "objects"))

    @app.job()
    async def fetch(ctx: Context, url: str) -> None:
        async with (
            GuardedClient(EgressRules(private=True)) as client,
            client.stream("GET", url) as answer,
            storage.staging(ctx.job_id, ctx.fence) as staged,
        ):
            await staged.put("page", answer.chunks(), content_type=answer.headers["content-type"])
            published = await staged.publish("notes", fence=ctx.progress)
            async with ctx.transaction() as tx:
                await tx.run(ext.q.add_entry, job=ctx.job_id, entry=published["page"])
                await tx.complete(published["page"])
            staged.confirm()

    async with receiving() as server, working(app), storage:
        server.otherwise = answer(200, page, content_type="text/html")
        key = await (await fetch.enqueue(server.url)).result(60)
        assert (await storage.read(key), (await storage.head(key)).content_type) == (page, "text/html")
        assert await entries(app, ext) == {key}
        assert await storage.stale_staging(-3600) == []


async def test_a_worker_that_lost_its_lease_never_replaces_what_a_newer_one_published(app: App, tmp_path: Path) -> None:
    """The first one publishes, and wakes up when the second one has long recorded its own."""
    ext, clock = app.extensions["notes"], MovableClock()
    storage = open_storage(tmp_path / "objects", clock=clock)
    recorded, told = asyncio.Event(), asyncio.Event()

    @app.job(max_attempts=5)
    async def encode(ctx: Context) -> None:
        async with storage.staging(ctx.job_id, ctx.fence) as staged:
            await staged.put("video", f"of {ctx.fence}".encode())
            published = await staged.publish("videos", fence=ctx.progress)
            if ctx.fence == 1:
                await engine.release(at_work.source.worker, ctx.job_id, ctx.lease_token)
                await recorded.wait()
            try:
                async with ctx.transaction() as tx:
                    await tx.run(ext.q.add_entry, job=ctx.job_id, entry=published["video"])
                    await tx.complete(published["video"])
            except LeaseLost:
                told.set()
                raise
            recorded.set()

    async def is_recorded(key: str) -> bool:
        return key in await entries(app, ext)

    engine = await app.engine()
    async with working(app, concurrency=2) as at_work:
        job = await encode.enqueue()
        key = await job.result(60)
        await asyncio.wait_for(told.wait(), 60)
    assert await entries(app, ext) == {key} == {f"videos/{job.id}-2/video"}
    clock.advance(10 * 365 * 86_400)
    assert await storage.sweep(86_400, recorded=is_recorded) == 2
    assert [info.key async for info in storage.list()] == [key]
    assert await storage.read(key) == b"of 2"
    await storage.close()
