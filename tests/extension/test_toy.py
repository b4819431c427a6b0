"""The toy extension, in an app, on both databases."""

from pathlib import Path

import pytest

from holdfast import App, JobFailed
from holdfast.engine import Engine
from holdfast.errors import ExtensionMissing, Refused
from holdfast.extend import Extension
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import migrate, missing
from holdfast.store.render import render
from tests.cli.background import Background
from tests.extension import toy
from tests.server.steps import bearer, serving
from tests.worker.in_process import working
from tests.worker.real_processes.harness import ROOT, eventually


@pytest.fixture
async def app(store_url: str):
    toy.app.settings = Settings(database_url=store_url)
    await migrate(store_url, toy.app.extensions.values())
    yield toy.app
    await toy.app.close()


async def entries(app: App) -> list[tuple[str, str]]:
    engine = await app.engine()
    return [(row["job"], row["entry"]) for row in await engine.store.read(lambda tx: tx.all(toy.ext.q.entries))]


async def test_the_toy_job_runs_and_is_recorded_in_the_ledger(app: App, store_url: str) -> None:
    async with working(app):
        job = await toy.index.enqueue("hello")
        assert await job.result(60) == 5
    assert await entries(app) == [(job.id, "commit"), (job.id, "reserve")]
    assert await missing(store_url, app.extensions.values()) == []


async def test_every_query_of_the_toy_runs(app: App) -> None:
    store = (await app.engine()).store
    for query in toy.ext.q.all():
        given = dict.fromkeys(set(render(query, store.dialect).params) - {"now"}, "x")
        await store.write(lambda tx, query=query, given=given: tx.all(query, **given))


async def test_a_job_waits_for_its_children(app: App) -> None:
    async with working(app, concurrency=1):
        assert await (await toy.book.enqueue(["a", "bcd"])).result(60) == 4
        assert await (await toy.book.enqueue([])).result(60) == 0


async def test_the_guard_of_the_toy_rejects_a_job(app: App) -> None:
    with pytest.raises(Refused):
        await toy.index.enqueue("forbidden")
    assert await entries(app) == []


async def test_a_process_without_the_toy_leaves_its_jobs_alone(app: App, store_url: str) -> None:
    job = await toy.index.enqueue("hello")
    other = Engine(await open_store(store_url))
    try:
        with pytest.raises(ExtensionMissing, match="notes"):
            await other.cancel(job.id)
    finally:
        await other.close()


async def test_a_claim_is_deferred_until_the_job_is_woken(app: App) -> None:
    engine = await app.engine()
    job = await toy.index.enqueue("later")

    async def is_put_off() -> bool:
        return (await engine.reads.get(job.id)).reason == "not woken yet"

    async with working(app):
        await eventually(is_put_off)
        assert await app.wake(job.id)
        assert await job.result(60) == 5


async def test_a_job_cancels_another_and_cannot_fetch_internal_addresses(app: App) -> None:
    later = await toy.index.options(delay=3600).enqueue("hello")
    async with working(app):
        assert await (await toy.drop.enqueue(later.id)).result(60) is True
        with pytest.raises(JobFailed, match="address_refused"):
            await (await toy.fetch.enqueue("http://127.0.0.1/")).result(60)
    assert (await (await app.engine()).reads.get(later.id)).state is State.CANCELED
    assert (later.id, "release") in await entries(app)


async def test_claims_keep_the_limits_of_the_toy_and_take_turns(app: App) -> None:
    engine = await app.engine()
    worker = (await engine.workers.register()).id
    await toy.index.enqueue_many([{"text": text} for text in "aaab"])
    await toy.fetch.enqueue_many([{"url": f"http://10.0.0.{host}/"} for host in (1, 1, 2, 3)])

    notes = await engine.claim(worker, limit=10, types=["NOTE_INDEX"])
    assert sorted(lease.payload["text"] for lease in notes) == ["a", "a", "b"]  # 3 at once, and b has its turn
    pages = await engine.claim(worker, limit=10, types=["NOTE_FETCH"])
    assert len({lease.payload["url"] for lease in pages}) == len(pages) == 2  # 4 of 5 units, and one of each key


@pytest.mark.slow
async def test_the_toy_works_over_http_with_a_remote_worker_and_its_child_process(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handlers run where there is no database, its hooks in the server."""
    monkeypatch.setattr(toy.ext, "given_settings", toy.Settings(storage_url=str(tmp_path / "files")))
    async with serving(store_url, app=toy.app) as served:
        _, text = await served.engine.keys.create(NewKey(scopes=["notes:write", "notes:read"], subject="ada"))
        key = (await served.register())["apiKey"]
        variables = {"PYTHONPATH": str(ROOT), "HOLDFAST_WORKER_KEY": key}
        command = ("worker", "--app", "tests.extension.toy:app", "--server", served.url)
        served.http.headers.update(bearer(text))

        async def entries_of(job_id: str) -> list[str]:
            entries: list[str] = (await served.http.get(f"/notes/{job_id}")).json()["entries"]
            return entries

        with Background(*command, folder=tmp_path, **variables):
            made = (await served.http.post("/notes", json={"text": "later"})).json()["id"]
            scanned = (await served.engine.create(NewJob(type="NOTE_SCAN", payload={"text": "hello"}))).id
            fetched = (await served.engine.create(NewJob(type="NOTE_FETCH", payload={"url": "http://10.0.0.1/"}))).id

            async def ended() -> bool:
                await served.http.post(f"/notes/{made}/wake")
                return await entries_of(made) == await entries_of(scanned) == ["commit", "reserve"]

            await eventually(ended)
            await eventually(lambda: _is(served.engine, fetched, State.DEAD))
        assert await entries_of(fetched) == ["release", "reserve"]
        path = f"/notes/{made}/file"
        sent = await served.http.put(path, content=b"0123456789" * 200_000, headers={"content-type": toy.BINARY})
        assert sent.status_code == 204, sent.text
        assert (await served.http.get(path, headers={"range": "bytes=7-12"})).content == b"789012"


async def _is(engine: Engine, job_id: str, state: State) -> bool:
    return (await engine.reads.get(job_id)).state is state


elsewhere = App(name="elsewhere")


def test_child_processes_can_import_an_app_with_extension_jobs_only() -> None:
    ext = Extension("elsewhere", package="tests")
    ext.job("SCAN")(toy.scan.handler.function)
    elsewhere.include(ext)
    assert elsewhere.reference == f"{__name__}:elsewhere"
    assert App(name="unnamed").reference is None


def test_the_toy_has_at_most_200_lines() -> None:
    assert len(Path(toy.__file__).read_text().splitlines()) <= 200
