"""Real processes that lack the extension: they leave its jobs alone, or refuse and say which extension is missing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.lifecycle import State
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.cli.processes import holdfast
from tests.extension import accounts, other, toy
from tests.extension.workers import SETTINGS, kill, workers
from tests.server.processes import server_process
from tests.server.steps import ADMIN, bearer
from tests.worker.real_processes.harness import ROOT, eventually

APP = "tests.extension.accounts:app"


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    await migrate(store_url, accounts.app.extensions.values())
    for each in (accounts.app, other.app):
        each.settings = Settings(database_url=store_url)
    yield accounts.app
    for each in (accounts.app, other.app):
        await each.close()


async def entries(job_id: str) -> list[str]:
    engine = await accounts.app.engine()
    rows = await engine.store.read(lambda tx: tx.all(toy.ext.q.entries))
    return [row["entry"] for row in rows if row["job"] == job_id]


async def state(job_id: str) -> State:
    return (await (await accounts.app.engine()).reads.get(job_id)).state


async def command(url: str, *arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(holdfast, *arguments, folder=ROOT, url=url)
    return done.returncode, done.stdout + done.stderr


async def test_a_process_without_the_extension_rejects_requests_about_its_jobs(app: App, store_url: str) -> None:
    waiting, ended = (await accounts.work.enqueue()).id, (await accounts.work.enqueue()).id
    engine = await app.engine()
    await engine.cancel(ended)
    key = bearer((await engine.keys.create(NewKey())).text)
    async with server_process(store_url) as plain:

        async def refused(path: str, body: dict[str, Any]) -> None:
            answer = await plain.http.post(path, json=body, headers=ADMIN if "admin" in path else key)
            assert (answer.status_code, answer.json()["code"]) == (409, "extension_missing"), answer.text
            assert "notes" in answer.json()["detail"]

        await refused("/jobs", {"jobType": "NOTE_WORK", "payload": {"do": "end"}})
        await refused(f"/jobs/{waiting}/cancel", {})
        await refused(f"/api/admin/jobs/{waiting}/cancel", {})
        await refused(f"/api/admin/jobs/{ended}/redrive", {})
    for verb, job_id in (("cancel", waiting), ("redrive", ended)):
        code, told = await command(store_url, "jobs", verb, job_id)
        assert code != 0
        assert "extension notes" in told, told
    assert (await state(waiting), await entries(waiting)) == (State.QUEUED, ["reserve"])
    assert len((await engine.reads.page()).jobs) == 2

    code, told = await command(store_url, "jobs", "cancel", waiting, "--app", APP)
    assert code == 0, told
    assert (await state(waiting), await entries(waiting)) == (State.CANCELED, ["release", "reserve"])
    code, told = await command(store_url, "jobs", "redrive", ended, "--app", APP)
    assert code == 0, told
    [new] = [job.id for job in (await engine.reads.page()).jobs if job.redrive_of == ended]
    assert await entries(new) == ["reserve"]


async def test_jobs_of_a_killed_worker_wait_for_a_process_with_the_extension(
    app: App, store_url: str, tmp_path: Path
) -> None:
    """A server that sweeps and a worker of another app, whose crash detector finds them too, both without it."""
    ours, theirs = (await accounts.work.enqueue("hang")).id, (await other.work.enqueue()).id
    async with server_process(store_url, **SETTINGS), workers(store_url, tmp_path) as start:
        killed = [await start(APP), await start("tests.extension.other:app")]
        for job_id in (ours, theirs):
            await eventually(lambda job_id=job_id: is_in(job_id, State.RUNNING))
        for each in killed:
            kill(each)
        await start("tests.extension.other:app")
        await eventually(lambda: is_in(theirs, State.SUCCEEDED))
        assert (await state(ours), await entries(ours)) == (State.RUNNING, ["reserve"]), "it is left alone"

        await start(APP)
        await eventually(lambda: is_in(ours, State.SUCCEEDED))
        assert await entries(ours) == ["commit", "reserve"]


async def is_in(job_id: str, wanted: State) -> bool:
    return await state(job_id) is wanted
