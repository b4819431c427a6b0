"""The toy extension, in an app, on both databases."""

import pytest

from holdfast import App
from holdfast.engine import Engine
from holdfast.errors import ExtensionMissing, Refused
from holdfast.extend import Extension
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import migrate, missing
from tests.extension import toy
from tests.worker.in_process import working


@pytest.fixture
async def app(store_url: str):
    toy.app.settings = Settings(database_url=store_url)
    await migrate(store_url, toy.app.extensions.values())
    yield toy.app
    await toy.app.close()


async def entries(app: App) -> list[tuple[str, str]]:
    engine = await app.engine()
    return [(row["job"], row["entry"]) for row in await engine.store.read(lambda tx: tx.all(toy.ext.q.entries))]


async def test_its_job_runs_and_is_booked(app: App, store_url: str) -> None:
    async with working(app):
        job = await toy.index.enqueue("hello")
        assert await job.result(20) == 5
    assert await entries(app) == [(job.id, "commit"), (job.id, "reserve")]
    assert await missing(store_url, app.extensions.values()) == []


async def test_a_job_waits_for_its_children(app: App) -> None:
    async with working(app, concurrency=1):
        assert await (await toy.book.enqueue(["a", "bcd"])).result(30) == 4


async def test_its_guard_refuses(app: App) -> None:
    with pytest.raises(Refused):
        await toy.index.enqueue("forbidden")
    assert await entries(app) == []


async def test_a_process_without_it_runs_on_its_database_and_leaves_its_jobs_alone(app: App, store_url: str) -> None:
    job = await toy.index.enqueue("hello")
    other = Engine(await open_store(store_url))
    try:
        with pytest.raises(ExtensionMissing, match="notes"):
            await other.cancel(job.id)
    finally:
        await other.close()


def test_two_extensions_of_one_name_are_refused() -> None:
    other = App(name="other")
    other.include(Extension("pages", package="tests"))
    with pytest.raises(Exception, match="pages"):
        other.include(Extension("pages", package="tests"))
