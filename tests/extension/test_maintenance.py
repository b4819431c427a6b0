"""Maintenance of an app's extensions runs in its servers and in its workers, and doctor tells of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.assembly.worker import WorkerOptions, work
from holdfast.cli import main
from holdfast.engine import Engine
from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import migrate
from tests.engine.steps import ask
from tests.extension import toy
from tests.server.steps import serving


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.05)


def has_swept(engine: Engine) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        [row] = await ask(engine, "SELECT times FROM holdfast_notes_sweeps")
        return row["times"] == 1

    return holds


async def test_a_server_runs_extension_maintenance(store_url: str) -> None:
    async with serving(store_url, app=toy.app) as served:
        await until(has_swept(served.engine))


@pytest.mark.slow
async def test_a_worker_runs_extension_maintenance_and_doctor_reports_it(
    fresh_sqlite_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    toy.app.settings = Settings(database_url=fresh_sqlite_url)
    await migrate(fresh_sqlite_url, toy.app.extensions.values())
    engine, stop = Engine(await open_store(fresh_sqlite_url)), asyncio.Event()
    working = asyncio.create_task(work(toy.app, WorkerOptions(), stop=stop, on_ready=lambda _: None))
    await until(has_swept(engine))
    stop.set()
    await working
    await toy.app.close()

    async def said() -> str:
        await asyncio.to_thread(main, ["doctor", "--database", fresh_sqlite_url])
        return capsys.readouterr().out

    assert "notes.sweep last ran at" in await said()
    await ask(engine, "UPDATE holdfast_maintenance SET failures = 3, error = 'ZeroDivisionError: oh' RETURNING task")
    assert "maintenance notes.sweep\tfailed 3 times in a row, last ran at" in (text := await said())
    assert "ZeroDivisionError: oh" in text
    await engine.close()


def test_an_invalid_maintenance_task_is_rejected_immediately() -> None:
    ext = Extension("pages", package="tests")
    with pytest.raises(Invalid, match="extension 'pages': maintenance runs every"):
        ext.maintenance(every=0)
    with pytest.raises(Invalid, match="async function"):
        ext.maintenance(every=1)(lambda tx: None)  # type: ignore[arg-type, return-value]

    async def sweep(_tx: object) -> None: ...

    ext.maintenance(every=1)(sweep)
    with pytest.raises(Invalid, match="two maintenance functions are called 'sweep'"):
        ext.maintenance(every=1)(sweep)
