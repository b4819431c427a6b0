"""Functions that extensions run when a server or a worker starts."""

import asyncio
from pathlib import Path

import pytest

from holdfast import App
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from tests.cli.processes import holdfast
from tests.server.steps import serving

APP = """
from holdfast import App
from holdfast.errors import Invalid
from holdfast.extend import Extension

ext = Extension("notes")


@ext.startup
async def refuse():
    raise Invalid("the list of notes is broken: mend notes.txt", code="invalid_setting")


@ext.job("NOTE")
async def note():
    pass


app = App()
app.include(ext)
"""


class Notes:
    def __init__(self, url: str) -> None:
        self.calls: list[str] = []
        self.ext = Extension("notes", package="tests.extension.toy")

        @self.ext.startup
        async def first() -> None:
            self.calls.append("first")

        @self.ext.startup
        async def second() -> None:
            self.calls.append("second")

        @self.ext.job("NOTE")
        async def note() -> None:
            self.calls.append("job")

        self.note = note
        self.app = App(settings=Settings(database_url=url))
        self.app.include(self.ext)


@pytest.fixture
async def notes(store_url: str) -> Notes:
    made = Notes(store_url)
    await migrate(store_url, [made.ext])
    return made


async def test_a_server_runs_them_before_requests(notes: Notes, store_url: str) -> None:
    async with serving(store_url, app=notes.app) as served:
        assert notes.calls == ["first", "second"]
        assert (await served.http.get("/livez")).status_code == 200


async def test_a_worker_runs_them_before_jobs(notes: Notes) -> None:
    job, stop = await notes.note.enqueue(), asyncio.Event()
    working = asyncio.create_task(work(notes.app, WorkerOptions(), stop=stop, on_ready=lambda _: None))
    await job.result(timeout=60)
    stop.set()
    await working
    assert notes.calls == ["first", "second", "job"]
    await notes.app.close()


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",), ("worker", "--processes", "2"), ("dev",)])
def test_what_they_raise_ends_the_process(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "notes_app.py").write_text(APP)
    ended = holdfast(*command, "--app", "notes_app:app", folder=tmp_path)
    assert ended.returncode == 2
    assert "the list of notes is broken: mend notes.txt" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_other_commands_do_not_run_them(tmp_path: Path) -> None:
    (tmp_path / "notes_app.py").write_text(APP)
    assert holdfast("jobs", "list", "--app", "notes_app:app", folder=tmp_path).returncode == 0


def test_they_are_async_functions_of_nothing() -> None:
    ext = Extension("notes", package="tests.extension.toy")
    with pytest.raises(Invalid, match="startup function"):
        ext.startup(lambda: None)  # type: ignore[arg-type, return-value]
    App().include(ext)
    with pytest.raises(Invalid, match=r"declared after app\.include"):
        ext.startup(nothing)


async def nothing() -> None:
    pass
