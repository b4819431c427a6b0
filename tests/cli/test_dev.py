"""`holdfast dev`: the first thing anybody types. It works, says what to type next, and tells what happens."""

import re
import signal
import socket
import sqlite3
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import App
from holdfast.cli.dev import _hello
from holdfast.cli.event_printer import LINES_MAX, EventPrinter
from holdfast.engine import Engine
from holdfast.model import NewJob
from tests.cli.background import Background, until
from tests.cli.processes import PROGRAM, SECONDS, environment, holdfast
from tests.cli.sample_jobs import claimed

APP = """
import asyncio
from holdfast import App, Context

app = App()

@app.job()
async def twice(number: int) -> int:
    return 2 * number

@app.job()
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"

@app.job()
async def outlast(ctx: Context) -> str:
    while not ctx.stopping:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    return "done"
"""


BROKEN = {
    "broken": "x = 1\nprint(",
    "failing": "import json\n\njson.dumps(1 / 0)\n",
    "refused": "from holdfast import App\napp = App()\n@app.job(quue='x')\nasync def a() -> None: ...\n",
    "empty": "from holdfast import App\napp, number = App(), 5\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(APP, encoding="utf-8")
    return tmp_path


@pytest.fixture
def tasks(folder: Path, store_url: str) -> Iterator[Background]:
    """`holdfast dev` with an app of one's own, on each store."""
    with Background("dev", "--app", "tasks:app", folder=folder, HOLDFAST_DATABASE_URL=store_url) as dev:
        dev.until_it_says("Ctrl-C stops it")
        yield dev


def create(folder: Path, job_type: str, payload: str, url: str = "") -> str:
    return holdfast("jobs", "create", job_type, "--payload", payload, folder=folder, url=url).stdout.strip()


# -- the example ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sqlite
def test_the_example_app_shows_each_outcome_of_a_job(tmp_path: Path) -> None:
    with Background("dev", folder=tmp_path) as dev:
        dev.until_it_says(
            'hello       succeeded  attempt 1 of 5: "Hello, world!"',
            "flaky       retrying   attempt 2 of 5: ConnectionError: connection refused",
            'flaky       succeeded  attempt 3 of 5: "connected at attempt 3"',
            'film        succeeded  attempt 1 of 5: "a.mov in three sizes, with a thumbnail"',
            "primes      succeeded  attempt 1 of 5: 25997",
            "poison      retrying   attempt 1 of 3: E_CRASHED: the child process ended with exit code 13",
            "poison      dead       attempt 3 of 3: E_CRASHED",
            "endless     canceled   no longer needed",
            "count       retrying   attempt 1 of 5: E_CRASHED: the child process was killed by SIGKILL",
            'count       succeeded  attempt 2 of 5: {"counted to":20,"resumed after":10}',
        )
        assert f"SQLite in {tmp_path}/.holdfast/holdfast.db" in dev.said
        assert dev.end() == 0
        assert dev.said.endswith("\nstopped\n")
        assert dev.said.count("    Traceback (most recent call last):") == 2, "of the two failures of flaky"
    states = [line.split("\t")[3] for line in holdfast("jobs", "list", folder=tmp_path).stdout.splitlines()]
    assert sorted(states) == ["canceled", "dead", *["succeeded"] * 6]


@pytest.mark.slow
@pytest.mark.sqlite
def test_the_example_app_creates_its_jobs_once(tmp_path: Path) -> None:
    for _ in range(2):
        with Background("dev", "--quiet", folder=tmp_path) as dev:
            dev.until_it_says("Ctrl-C stops it")
            assert dev.end() == 0
    jobs = holdfast("jobs", "list", folder=tmp_path).stdout.splitlines()
    assert len(jobs) == 8
    assert "the example jobs were created at an earlier start" in dev.said
    assert not re.search(r"retrying +attempt", dev.said)  # --quiet: no lines about jobs


@pytest.mark.sqlite
def test_dev_names_the_port_that_it_uses_instead_of_one_in_use(folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with Background("dev", "--app", "tasks:app", "--port", str(port), folder=folder) as dev:
            dev.until_it_says(f"port {port} is in use; listening on port ", "Ctrl-C stops it")
            assert f"http://127.0.0.1:{port}" not in dev.said


CHECKPOINT = "SELECT checkpoint FROM holdfast_jobs WHERE id = ?"


@pytest.mark.slow
@pytest.mark.sqlite
def test_a_job_resumes_after_the_process_was_killed(tmp_path: Path) -> None:
    with Background("dev", "--app", "holdfast.example:app", folder=tmp_path) as first:
        first.until_it_says(f"kill -9 {first.process.pid}")
        job = create(tmp_path, "count", '{"to": 50}')
        with closing(sqlite3.connect(tmp_path / ".holdfast" / "holdfast.db")) as database:  # quicker than a command
            until(lambda: int(database.execute(CHECKPOINT, (job,)).fetchone()[0] or 0) >= 5)
        first.end(signal.SIGKILL)
    with Background("dev", "--app", "holdfast.example:app", folder=tmp_path) as second:
        second.until_it_says("count       retrying   attempt 1 of 5: worker_died", '"counted to":50')
        resumed_after = re.search(r'"resumed after":(\d+)', second.said)
        assert resumed_after is not None
        assert int(resumed_after[1]) >= 5


# -- an app of one's own ----------------------------------------------------------------------------------------


def test_jobs_created_in_another_terminal_are_run_and_printed(tasks: Background, folder: Path, store_url: str) -> None:
    create(folder, "twice", '{"number": 21}', store_url)
    tasks.until_it_says("twice       succeeded  attempt 1 of 5: 42")
    assert """jobs create twice --payload '{"number":1}'""" in tasks.said
    assert f"kill -9 {tasks.process.pid}" in tasks.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_running_jobs_finish(
    tasks: Background, folder: Path, store_url: str, number: signal.Signals
) -> None:
    job = create(folder, "outlast", "{}", store_url)
    until(lambda: "running" in holdfast("jobs", "show", job, folder=folder, url=store_url).stdout)
    assert tasks.end(number) == 0
    assert tasks.said.endswith("stopped\n")
    shown = holdfast("jobs", "show", job, folder=folder, url=store_url).stdout
    assert "succeeded" in shown
    assert "1 of 5" in shown or "1/5" in shown


def test_a_second_signal_exits_at_once(folder: Path, fresh_sqlite_url: str) -> None:
    with Background("dev", "--app", "tasks:app", folder=folder, HOLDFAST_DATABASE_URL=fresh_sqlite_url) as dev:
        dev.until_it_says("Ctrl-C stops it")
        job = create(folder, "sleep", '{"seconds": 600}', fresh_sqlite_url)
        until(lambda: "running" in holdfast("jobs", "show", job, folder=folder, url=fresh_sqlite_url).stdout)
        dev.process.send_signal(signal.SIGINT)
        stopped_claiming = create(folder, "twice", '{"number": 1}', fresh_sqlite_url)
        assert dev.end(signal.SIGINT) == 130
        assert dev.said.count("second signal: exiting without waiting") == 1
        shown = holdfast("jobs", "show", stopped_claiming, folder=folder, url=fresh_sqlite_url).stdout
        assert "queued" in shown


@pytest.mark.sqlite
def test_dev_exits_when_its_output_pipe_is_closed(folder: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "dev", "--app", "tasks:app"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(),
    ) as dev:
        assert dev.stdout is not None
        assert dev.stderr is not None
        dev.stdout.read(100)
        dev.stdout.close()
        create(folder, "twice", '{"number": 1}')
        assert dev.wait(SECONDS) == 141
        assert b"Traceback" not in dev.stderr.read()


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("tasks", "'tasks' names no app; write tasks:app"),
        ("tasks.py", "'tasks.py' names no app; write tasks.py:app"),
        ("tasks:ap", "has no 'ap'"),
        ("./tasks:app", "'./tasks' is a path, not a module; write tasks:app, or ./tasks.py:app"),
        ("./nowhere.py:app", "there is no file ./nowhere.py"),
        ("broken:app", "SyntaxError: '(' was never closed ({folder}/broken.py, line 2)"),
        ("failing:app", "ZeroDivisionError: division by zero ({folder}/failing.py, line 3)"),
        ("refused:app", "did you mean 'queue'?"),
        ("refused:app", "({folder}/refused.py, line 3)"),
        ("empty:app", "defines no jobs"),
        ("empty:number", "is an int, not a holdfast.App"),
    ],
)
@pytest.mark.sqlite
def test_a_missing_app_is_an_error_message_without_traceback(folder: Path, app: str, says: str) -> None:
    for name, text in BROKEN.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    done = holdfast("dev", "--app", app, folder=folder)
    assert done.returncode == 2
    assert says.format(folder=folder) in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.sqlite
def test_dev_uses_the_database_of_the_app(folder: Path) -> None:
    (folder / "elsewhere.py").write_text(APP.replace("App()", "App(database_url='sqlite:///own.db')"), encoding="utf-8")
    create(folder, "twice", '{"number": 4}', "sqlite:///own.db")
    with Background("dev", "--app", "elsewhere:app", folder=folder) as dev:
        dev.until_it_says("twice       succeeded  attempt 1 of 5: 8")
        assert f"SQLite in {folder}/own.db" in dev.said


@pytest.mark.sqlite
def test_an_app_without_jobs_is_served() -> None:
    """Its extensions may bring routes alone."""
    app = App(database_url="sqlite:///jobs.db")
    said = _hello(app, Namespace(app="pages:app", example=False), "http://127.0.0.1:8080")
    assert "Holdfast serves pages:app, which defines no jobs, on SQLite in " in said


def test_an_invalid_number_is_an_error_message_without_traceback(folder: Path) -> None:
    done = holdfast("dev", "--app", "tasks:app", "--concurrency", "0", folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--concurrency must be a number from 1" in done.stderr


# -- the event printer -----------------------------------------------------------------------------------------------


async def canceled(engine: Engine, job_type: str, jobs: int) -> None:
    """All of it can be read in the feed, which other transactions of the same server may hold back for a moment."""
    for _ in range(jobs):
        job = await engine.create(NewJob(type=job_type))
        await engine.cancel(job.id, reason="too many")
    for _ in range(5000):
        events, _ = await engine.reads.feed()
        if any(event.job_id == job.id and event.verb == "cancel" for event in events):
            return


async def test_a_burst_of_events_is_summarized(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    printer = EventPrinter(engine, await engine.reads.feed_end())
    await canceled(engine, "many", LINES_MAX + 5)
    assert await printer.poll()
    told = capsys.readouterr().out.splitlines()
    assert told[:-1] == ["00:00:00  many        canceled   too many"] * LINES_MAX
    assert told[-1] == "          and 5 more jobs: 5 canceled"
    assert not await printer.poll()


async def test_the_traceback_of_a_failed_attempt_is_printed_below_it(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    printer = EventPrinter(engine, await engine.reads.feed_end())
    worker, lease = await claimed(engine, type="send")
    trace = {"traceback": "Traceback (most recent call last):\n  connect(password=canary)\nOSError: no\n"}
    await engine.fail(worker, lease.id, lease.token, "OSError", "no", context=trace, permanent=True)
    while not (told := capsys.readouterr().out):
        await printer.poll()
    line, *below = told.splitlines()
    assert line.endswith("send        dead       attempt 1 of 5: OSError: no")
    assert below == ["    Traceback (most recent call last):", "      connect(password=***)", "    OSError: no"]


async def test_events_before_the_start_are_not_printed(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    await canceled(engine, "old", 1)
    printer = EventPrinter(engine, await engine.reads.feed_end())
    await canceled(engine, "new", 2)
    await printer.poll()
    told = capsys.readouterr().out
    assert told.count("new") == 2
    assert "old" not in told
