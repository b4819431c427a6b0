"""What real processes log: `holdfast worker`, `serve` and `dev`, and those that they start."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.lifecycle import Actor, State
from holdfast.model import NewJob
from holdfast.store import open_store
from holdfast.store.migrate import dialect_of
from tests.cli.background import Background
from tests.cli.processes import PROGRAM, SECONDS, environment, holdfast, on_terminal, without_escapes
from tests.observe.captured import json_lines
from tests.server.processes import server_process
from tests.server.steps import SECRET
from tests.worker.real_processes.harness import eventually

APP = "tests.observe.logged_app:app"
ROOT = Path(__file__).parents[2]
PASSWORD = "canary-of-the-database"
TYPES = ("fine", "flaky", "doomed", "hopeless", "refused", "sleepy", "apart")


def with_password(url: str) -> str:
    """A server that trusts its own machine takes any password."""
    return url.replace("://postgres@", f"://postgres:{PASSWORD}@") if dialect_of(url) == "postgres" else url


@contextmanager
def working(folder: Path, url: str, *arguments: str, **variables: str) -> Iterator[Background]:
    settings = {"HOLDFAST_DATABASE_URL": url, "PYTHONPATH": str(ROOT), "HOLDFAST_ADMIN_SECRET": SECRET}
    with Background("worker", "--app", APP, *arguments, folder=folder, **settings, **variables) as worker:
        worker.until_it_says("ready: ")
        yield worker


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    clock, ids = Clock(), Ids()
    engine = Engine(await open_store(url, clock, ids), clock=clock, ids=ids)
    yield engine
    await engine.close()


@pytest.fixture
async def open_engine(store_url: str) -> AsyncIterator[Engine]:
    async with opened(store_url) as engine:
        yield engine


@pytest.fixture
async def open_sqlite(fresh_sqlite_url: str) -> AsyncIterator[Engine]:
    async with opened(fresh_sqlite_url) as engine:
        yield engine


async def ended(engine: Engine, *jobs: str) -> None:
    async def all_final() -> bool:
        return all([(await engine.reads.get(job)).final for job in jobs])

    await eventually(all_final)


async def runs(engine: Engine, job: str) -> bool:
    return (await engine.reads.get(job)).state is State.RUNNING


async def end_of_each(engine: Engine, folder: Path, url: str) -> tuple[list[dict[str, Any]], Any]:
    """One job of each kind runs to its end; then everything that was logged, and the jobs by type."""
    with working(folder, url) as worker:
        payloads = {"apart": {"payload": "canary-of-a-payload"}}
        made = await engine.create_many([NewJob(type=name, payload=payloads.get(name, {})) for name in TYPES])
        long = await engine.create(NewJob(type="long", payload={"seconds": 60}, policy={"heartbeat_seconds": 0.2}))
        jobs = {name: job.id for name, job in zip((*TYPES, "long"), (*made, long), strict=True)}
        await eventually(lambda: runs(engine, long.id))
        await engine.cancel(long.id)
        await ended(engine, *jobs.values())
        assert worker.end() == 0
    return json_lines(worker.said), jobs


def moves_of(lines: list[dict[str, Any]], job: str) -> list[tuple[Any, ...]]:
    names = ("verb", "from", "to", "reason", "attempt", "actor")
    told = [line for line in lines if line["logger"] == "holdfast.transitions" and line["job_id"] == job]
    return [tuple(line[name] for name in names) for line in told]


def attempts_of(lines: list[dict[str, Any]], job: str) -> list[tuple[Any, ...]]:
    told = [line for line in lines if line["logger"] == "holdfast.attempts" and line["job_id"] == job]
    assert all(isinstance(line["seconds"], float) and line["seconds"] >= 0 for line in told)
    return [
        (line["outcome"], line["state"], line["attempt"], line["retries"], line.get("error_code"), line["level"])
        for line in told
    ]


async def test_every_log_line_is_json_and_reports_the_outcome_of_jobs(
    store_url: str, open_engine: Engine, tmp_path: Path
) -> None:
    """R002-49, R000-49..52, SEC-39, SEC-40: one line a move, one an attempt, no secret and nothing forged."""
    lines, jobs = await end_of_each(open_engine, tmp_path, with_password(store_url))
    for name, job in jobs.items():
        events = await open_engine.reads.history(job)
        moved = [event for event in events if event.to_state is not None and event.verb not in ("create", "accept")]
        assert moves_of(lines, job) == [
            (event.verb, event.from_state, event.to_state, event.reason, event.attempt, event.actor) for event in moved
        ], name
    assert attempts_of(lines, jobs["fine"]) == [("succeeded", "succeeded", 1, 0, None, "info")]
    assert attempts_of(lines, jobs["flaky"]) == [
        ("failed", "retrying", 1, 0, "ValueError", "warning"),
        ("succeeded", "succeeded", 2, 1, None, "info"),
    ]
    assert attempts_of(lines, jobs["doomed"]) == [
        ("failed", "retrying", 1, 0, "ConnectionError", "warning"),
        ("failed", "dead", 2, 1, "ConnectionError", "warning"),
    ]
    traces = [line["exception"] for line in lines if line.get("job_id") == jobs["doomed"] and "exception" in line]
    assert len(traces) == 2, "one for each attempt that failed"
    assert all("in doomed" in trace and "in invoke" not in trace for trace in traces), "of the handler, not of ours"
    assert attempts_of(lines, jobs["hopeless"]) == [("failed", "dead", 1, 0, "E_HOPELESS", "warning")]
    assert attempts_of(lines, jobs["refused"]) == [("rejected", "rejected", 1, 0, "E_NO", "info")]
    assert [each[:2] for each in attempts_of(lines, jobs["sleepy"])] == [
        ("released", "queued"),
        ("succeeded", "succeeded"),
    ]
    assert attempts_of(lines, jobs["long"])[-1][:2] == ("released", "canceled")
    told = [
        line for line in lines if line["logger"] != "holdfast.assembly.startup_log"
    ]  # of the database, which is weak in tests
    assert [line["level"] for line in told].count("warning") == 5, "what failed is not told twice; a child's is one"
    said = str(lines)
    assert not [word for word in (PASSWORD, "canary", SECRET) if word in said]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


async def test_log_lines_of_handlers_have_the_fields_of_their_job(
    fresh_sqlite_url: str, open_sqlite: Engine, tmp_path: Path
) -> None:
    with working(tmp_path, fresh_sqlite_url) as worker:
        made = await open_sqlite.create_many([NewJob(type="fine"), NewJob(type="apart", payload={"payload": ""})])
        jobs = dict(zip(("fine", "apart"), [job.id for job in made], strict=True))
        await ended(open_sqlite, *jobs.values())
        worker.end()
    lines = json_lines(worker.said)
    [half] = [line for line in lines if line["message"] == "half way"]
    assert (half["job_id"], half["job_type"], half["password"], half["time_"]) == (
        *(jobs["fine"], "fine", "***", "mine"),
    )
    [child] = [line for line in lines if line["message"].startswith("from a child")]
    assert (child["job_id"], child["message"]) == (jobs["apart"], f"from a child: {child['pid']}")
    assert child["pid"] != half["pid"]
    assert [line["logger"] for line in lines if line["message"] == "from a library, too"] == ["the app's own"]


async def test_without_job_lines_failures_are_still_logged_as_warnings(
    fresh_sqlite_url: str, tmp_path: Path, open_sqlite: Engine
) -> None:
    with working(tmp_path, fresh_sqlite_url, HOLDFAST_LOG_JOBS="false") as worker:
        jobs = await open_sqlite.create_many([NewJob(type="fine"), NewJob(type="hopeless")])
        await ended(open_sqlite, *(job.id for job in jobs))
        await ended(open_sqlite, (await open_sqlite.create(NewJob(type="doomed", policy={"max_attempts": 1}))).id)
        worker.end()
    lines = json_lines(worker.said)
    assert not [line for line in lines if line["logger"] == "holdfast.transitions"]
    hopeless, doomed = [line for line in lines if line["logger"] == "holdfast.attempts"]
    assert hopeless["message"].startswith(f"job {jobs[1].id} (hopeless), attempt 1 of 5, failed: E_HOPELESS")
    assert "in doomed" in doomed["exception"]
    assert "canary" not in doomed["exception"]


async def test_the_log_level_filters_lines(fresh_sqlite_url: str, tmp_path: Path, open_sqlite: Engine) -> None:
    variables = {"HOLDFAST_LOG_LEVEL": "warning", "HOLDFAST_DATABASE_URL": fresh_sqlite_url, "PYTHONPATH": str(ROOT)}
    jobs = await open_sqlite.create_many([NewJob(type="fine"), NewJob(type="hopeless")])
    with Background("worker", "--app", APP, folder=tmp_path, **variables) as worker:
        await ended(open_sqlite, *(job.id for job in jobs))
        worker.end()
    lines = [
        line for line in json_lines(worker.said) if line["logger"] != "holdfast.assembly.startup_log"
    ]  # of SQLite's version
    assert [(line["level"], line["outcome"]) for line in lines] == [("warning", "failed")]


async def test_a_job_that_crashed_its_process_is_logged_by_the_process_that_requeues_it(
    fresh_sqlite_url: str, tmp_path: Path, open_sqlite: Engine
) -> None:
    with working(tmp_path, fresh_sqlite_url) as worker:
        job = (await open_sqlite.create(NewJob(type="deadly"))).id
        await ended(open_sqlite, job)
        worker.end()
    lines = json_lines(worker.said)
    [reaped] = [line for line in lines if line.get("verb") == "reap"]
    assert (reaped["job_id"], reaped["from"], reaped["to"], reaped["level"]) == (job, "running", "retrying", "warning")
    assert reaped["pid"] != next(line["pid"] for line in lines if line.get("job_id") == job)
    [event] = [event for event in await open_sqlite.reads.history(job) if event.verb == "reap"]
    assert (reaped["reason"], reaped["attempt"], reaped["actor"]) == (event.reason, event.attempt, Actor.SYSTEM)


async def test_a_blocked_log_pipe_does_not_stop_jobs(
    fresh_sqlite_url: str, tmp_path: Path, open_sqlite: Engine
) -> None:
    """The pipe holds 64 KiB; what is more than that waits in memory, and comes when somebody reads."""
    worker = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "worker", "--app", APP),
        cwd=tmp_path,
        env=environment(HOLDFAST_DATABASE_URL=fresh_sqlite_url, PYTHONPATH=str(ROOT)),
        stderr=(ends := os.pipe())[1],
    )
    os.close(ends[1])
    jobs = await open_sqlite.create_many([NewJob(type="fine") for _ in range(500)])
    try:
        await ended(open_sqlite, *(job.id for job in jobs))
        worker.send_signal(signal.SIGTERM)
        with os.fdopen(ends[0], "rb") as log:
            said = await asyncio.to_thread(log.read)
        assert await asyncio.wait_for(worker.wait(), SECONDS) == 0
    finally:
        if worker.returncode is None:
            worker.kill()
    lines = json_lines(said.decode())
    assert len(said) > 3 * 65_536
    assert all(len(moves_of(lines, job.id)) == 2 for job in jobs)


async def test_a_server_logs_its_transitions(store_url: str) -> None:
    async with server_process(with_password(store_url)) as served:
        body = {"jobType": "j\u202e", "payload": {"p": "canary-of-a-payload"}}
        refused = await served.http.post("/jobs", json=body)
        assert refused.status_code == 422
        job = (await served.http.post("/jobs", json={**body, "jobType": "j"})).json()["jobId"]
        await served.http.post(f"/jobs/{job}/cancel")
        await served.http.get("/jobs", headers={"authorization": "Bearer canary-of-a-key"})
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
    lines = json_lines("".join(served.log))
    assert moves_of(lines, job) == [
        ("create", None, "queued", None, 0, "client"),
        ("cancel", "queued", "canceled", "canceled", 0, "client"),
    ]
    assert not [word for word in (PASSWORD, "canary", SECRET) if word in str(lines)]


def test_startup_errors_are_logged_as_json(tmp_path: Path) -> None:
    done = holdfast("worker", "--app", "nowhere:app", folder=tmp_path)
    [line] = json_lines(done.stderr)
    assert (done.returncode != 0, line["level"]) == (True, "critical")
    assert "nowhere" in line["message"]


# -- on a terminal -------------------------------------------------------------------------------------------------


def test_on_a_terminal_the_log_is_text(tmp_path: Path) -> None:
    variables = {"PYTHONPATH": str(ROOT)}
    for name in ("fine", "hopeless"):
        holdfast("jobs", "create", name, folder=tmp_path)
    command = ("worker", "--app", APP)
    _, seen = on_terminal(*command, folder=tmp_path, interrupt_at="now dead", columns=100, **variables)
    assert '{"time"' not in seen
    assert "\x1b[32msucceeded 1/5\x1b[0m" in seen
    assert "canary" not in seen
    lines = without_escapes(seen).splitlines()
    assert len([line for line in lines if " fine " in line and "half way" not in line]) == 1, "one for each attempt"
    assert [line for line in lines if "failed 1/5, now dead: E_HOPELESS: xxx" in line]
    assert max(len(line) for line in lines if "1/5" in line) <= 100
    holdfast("jobs", "create", "fine", folder=tmp_path)
    _, plain = on_terminal(*command, folder=tmp_path, interrupt_at="succeeded 1/5", NO_COLOR="1", **variables)
    assert "\x1b[" not in plain


def test_dev_logs_each_job_once(tmp_path: Path) -> None:
    """The narrator does; with --quiet nobody does but of what failed."""
    variables = {"PYTHONPATH": str(ROOT)}
    for name in ("fine", "hopeless"):
        holdfast("jobs", "create", name, folder=tmp_path)
    _, seen = on_terminal(
        *("dev", "--app", APP, "--port", "0"), folder=tmp_path, interrupt_at="E_HOPELESS", **variables
    )
    seen = without_escapes(seen)
    assert seen.count("E_HOPELESS") == 1
    assert "holdfast.transitions" not in seen
    assert "holdfast.attempts" not in seen
    holdfast("jobs", "create", "hopeless", folder=tmp_path)
    _, seen = on_terminal(
        *("dev", "--app", APP, "--port", "0", "--quiet"), folder=tmp_path, interrupt_at="E_HOPELESS", **variables
    )
    assert seen.count("E_HOPELESS") == 2, "cut in the line of its attempt, and whole below it"
    assert "failed 1/5" in without_escapes(seen)
    assert "holdfast.transitions" not in seen
