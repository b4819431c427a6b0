"""The remote worker: the runtime of the local one with a server as its source; in process, then real processes."""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Client, Context, Permanent, Reject
from holdfast.assembly.worker import WorkerOptions, work
from holdfast.cli.exit_codes import code_of
from holdfast.clock import Clock
from holdfast.errors import Invalid, JobFailed, StoreUnavailable, Unauthorized
from holdfast.ids import Ids
from holdfast.lifecycle import Policy, State
from holdfast.model import Lease, Liveness, NewJob
from holdfast.model.reports import HeldLease
from holdfast.settings import Settings
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from holdfast.worker.sources.http import HttpSource
from tests.cli.processes import holdfast
from tests.client.fault_proxy import FaultProxy
from tests.server.steps import Served, serving
from tests.worker.in_process import until
from tests.worker.in_process import working as working_on_database
from tests.worker.real_processes import app as jobs
from tests.worker.real_processes.conftest import PROC
from tests.worker.real_processes.harness import WorkerHarness, eventually

NO_SUCH_KEY = "hfw_0000000000000000_00000000000000000000000000000000"


@asynccontextmanager
async def source_at(served: Served, url: str = "", **options: Any) -> AsyncIterator[HttpSource]:
    key = (await served.register())["apiKey"]
    source = HttpSource(Client(url or served.url, key, **options), Clock(), Ids())
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def working(source: HttpSource, app: App, **config: Any) -> AsyncIterator[Worker]:
    """No heartbeats are sent: the leases are long enough."""
    worker = Worker(
        source, app.handlers, config=WorkerConfig(**{"heartbeats": False, "stop_grace_seconds": 5, **config})
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
        worker.stop()
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def first_wait(source: HttpSource) -> None:
    """Until its worker waits for jobs."""
    wait, begun = source.wait, asyncio.Event()

    async def noted(*args: Any, **options: Any) -> bool:
        begun.set()
        return await wait(*args, **options)

    source.wait = noted  # type: ignore[method-assign]
    await begun.wait()


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    async with serving(store_url) as served:
        yield served


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    """Its worker never uses this database; the test enqueues through it."""
    app = App(Settings(database_url=store_url))
    yield app
    await app.close()


# -- in process -------------------------------------------------------------------------------------------------------


async def test_a_remote_worker_runs_jobs_as_a_local_one_does(served: Served, app: App) -> None:
    @app.job(max_attempts=2, backoff_base_seconds=0)
    async def tour(ctx: Context, cities: list[str]) -> dict[str, Any]:
        seen = await ctx.step("plan", lambda: sorted(cities))
        async for part in ctx.parts(seen):
            if part.name == "Oslo" and ctx.attempt == 1:
                raise ConnectionError("the ferry is gone")
        await ctx.counters(cities=len(seen))
        return {"attempt": ctx.attempt, "seen": seen, "tags": ctx.lease.tags}

    async with source_at(served) as source, working(source, app):
        job = await tour.options(tags=["summer"]).enqueue(cities=["Paris", "Oslo", "Bern"])
        expected = {"attempt": 2, "seen": ["Bern", "Oslo", "Paris"], "tags": ["summer"]}
        assert await job.result(timeout=60) == expected
    stored = await job.get()
    assert (stored.counters, stored.percent, stored.failures) == ({"cities": 3}, 100, 1)
    parts = await served.engine.reads.parts(job.id)
    assert {part.name: str(part.status) for part in parts} == dict.fromkeys(
        ["plan", "Bern", "Oslo", "Paris"], "completed"
    )


async def test_a_claim_right_after_a_canceled_wait_loses_nothing(served: Served) -> None:
    """As when a child process becomes free meanwhile. What the wait may have claimed, one of the two has alone."""
    async with source_at(served) as source:
        for _ in range(10):
            waiting = asyncio.create_task(source.wait(30))
            await asyncio.sleep(0.01)
            job = await served.engine.create(NewJob(type="a"))
            waiting.cancel()
            claimed: list[tuple[Lease, Policy]] = []
            while not claimed:
                claimed = [*await source.claim(2, queues=None, types=None)]
            held = [HeldLease(lease.id, lease.token) for lease, _ in claimed]
            assert [lease.id for lease in held] == [job.id]
            assert (await source.heartbeat(held, liveness=Liveness.BUSY, slots=1)).lost == []


@pytest.mark.parametrize("word", [Permanent, Reject])
async def test_a_remote_worker_reports_the_context_of_an_error(served: Served, app: App, word: type[Permanent]) -> None:
    """R002-40."""

    @app.job()
    async def crawl() -> None:
        raise word("E_ROBOTS", "not allowed", context={"domain": "example.com", "depth": 2})

    async with source_at(served) as source, working(source, app):
        job = await crawl.enqueue()
        with pytest.raises(JobFailed):
            await job.result(timeout=60)
    stored = await job.get()
    added = {"attempt": 1, "workerId": stored.last_worker}
    assert stored.error["context"] == {"domain": "example.com", "depth": 2, **added}


async def test_a_remote_worker_runs_parts_concurrently_and_reopens_them(served: Served, app: App) -> None:
    @app.job(max_attempts=2, backoff_base_seconds=0)
    async def film(ctx: Context) -> list[bool]:
        async def render(name: str) -> bool:
            async with ctx.part(name, total=4) as part:
                if was := part.finished:
                    await part.reopen()
                await part.progress(done=1)
                if name == "b" and ctx.attempt == 1:
                    raise ConnectionError("gone")
                return was

        return list(await asyncio.gather(render("a"), render("b")))

    async with source_at(served) as source, working(source, app):
        job = await film.enqueue()
        assert await job.result(timeout=60) == [True, False]
    parts = {part.name: (str(part.status), part.done) for part in await served.engine.reads.parts(job.id)}
    assert parts == {"a": ("completed", 4), "b": ("completed", 4)}


@pytest.mark.parametrize("pages", [2, 0])
async def test_a_remote_job_that_waits_for_children_holds_no_slot(served: Served, app: App, pages: int) -> None:
    """It has one slot, which its children need. They were made by others: it has no database to make them in."""
    began, made = asyncio.Event(), asyncio.Event()

    @app.job("page")
    async def page(number: int) -> int:
        return number

    @app.job("book")
    async def book(ctx: Context) -> str:
        if ctx.checkpoint is None:
            began.set()
            await made.wait()
            await ctx.save({"asked": True})
            raise ctx.wait_for_children()
        return f"attempt {ctx.attempt}, execution {ctx.fence}"

    async with source_at(served) as source, working(source, app, concurrency=1):
        job = await book.enqueue()
        await asyncio.wait_for(began.wait(), 60)
        children = [NewJob(type="page", payload={"number": number}, parent_id=job.id) for number in range(pages)]
        made_of = await served.engine.create_many(children)
        made.set()
        assert await job.result(timeout=60) == "attempt 1, execution 2"
    assert [(await served.engine.reads.get(child.id)).state for child in made_of] == [State.SUCCEEDED] * pages
    told = [
        (event.verb, event.reason) for event in await served.engine.reads.history(job.id) if event.verb == "release"
    ]
    assert told == [("release", "waiting_for_children")]


async def test_a_remote_handler_that_opens_a_transaction_fails_with_a_hint(served: Served, app: App) -> None:
    @app.job(max_attempts=3)
    async def writer(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with source_at(served) as source, working(source, app):
        job = await writer.enqueue()
        with pytest.raises(JobFailed, match="a guard or an effect of the job type") as failed:
            await job.result(timeout=60)
    assert (failed.value.code, (await job.get()).attempt) == ("no_database", 1)


@asynccontextmanager
async def remote_worker(served: Served, app: App) -> AsyncIterator[Worker]:
    """As `holdfast worker --server` runs it, in this process."""
    key, stop, ready = (await served.register())["apiKey"], asyncio.Event(), asyncio.Queue[Worker]()
    app.settings = msgspec.structs.replace(app.settings, worker_key=key)
    options = WorkerOptions(server=served.url, concurrency=2)
    running = asyncio.create_task(work(app, options, stop=stop, on_ready=ready.put_nowait))
    starting = asyncio.create_task(ready.get())
    try:
        await asyncio.wait({running, starting}, return_when=asyncio.FIRST_COMPLETED)
        yield starting.result() if starting.done() else await running
        stop.set()
        await running
    finally:
        starting.cancel()
        running.cancel()
        await asyncio.gather(starting, running, return_exceptions=True)


async def test_a_remote_worker_leaves_jobs_that_need_the_database(
    served: Served, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job()
    async def plain() -> str:
        return "plain"

    @app.job(needs_database=True)
    async def writer(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await tx.complete("written")
        return ""

    @app.job(needs_database=True, reserved_slot=True)
    async def control() -> None: ...

    caplog.set_level(logging.INFO, "holdfast")
    first, reserved = await writer.enqueue(), await control.enqueue()
    async with remote_worker(served, app) as worker:
        for _ in range(2):
            assert await (await plain.enqueue()).result(timeout=60) == "plain"
        assert (worker.slots.types, worker.slots.reserved_types) == (["plain"], [])
        assert [(await job.get()).attempt for job in (first, reserved)] == [0, 0]
        assert [await job.status() for job in (first, reserved)] == ["PENDING", "PENDING"]
    [line] = [record.getMessage() for record in caplog.records if "has no database" in record.getMessage()]
    assert line.endswith("leaves these job types to workers that have one: control, writer")
    async with working_on_database(app):
        assert await first.result(timeout=60) == "written"


async def test_a_remote_worker_says_nothing_where_no_job_needs_the_database(
    served: Served, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.job("plain")(asyncio.sleep)
    caplog.set_level(logging.INFO, "holdfast")
    async with remote_worker(served, app):
        pass
    assert not [record for record in caplog.records if "has no database" in record.getMessage()]


async def test_a_remote_worker_without_any_job_type_ends(served: Served, app: App) -> None:
    for name in ("two", "one"):
        app.job(name, needs_database=True)(asyncio.sleep)
    with pytest.raises(Invalid, match=r"all job types need the database \(one, two\)") as refused:
        async with remote_worker(served, app):
            pass
    assert (refused.value.code, code_of(refused.value)) == ("needs_database", 2)
    async with working_on_database(app) as at_work:
        assert at_work.worker.slots.types == ["one", "two"]


async def test_a_result_that_cannot_be_sent_fails_the_job_and_not_the_remote_worker(served: Served, app: App) -> None:
    @app.job(max_attempts=1)
    async def strange(what: str) -> Any:
        if what == "raise":
            raise ValueError("a lone surrogate: \udc80, and much of it " + "x" * 2_000_000)
        return {"nan": float("nan"), "long": "x" * 300_000, "fine": "yes"}[what]

    async with source_at(served) as source, working(source, app):
        handed_in = {what: await strange.enqueue(what=what) for what in ("nan", "long", "raise", "fine")}
        assert await handed_in["fine"].result(timeout=60) == "yes"
        ended = {}
        for what, job in handed_in.items():
            await until(lambda job=job: is_final(job))
            ended[what] = ((await job.get()).error or {}).get("code")
    assert ended == {"nan": "result_not_json", "long": "result_too_large", "raise": "ValueError", "fine": None}


async def is_final(job: Any) -> bool:
    return bool((await job.get()).final)


async def test_many_reports_are_split_into_bodies_that_the_server_takes(served: Served, app: App) -> None:
    @app.job()
    async def big(n: int) -> str:
        return str(n) * 200_000

    async with source_at(served) as source, working(source, app, concurrency=20):
        handed_in = await big.enqueue_many([{"n": n} for n in range(10)] * 3)
        assert [len(await job.result(timeout=60)) for job in handed_in] == [200_000] * 30
    assert {(await job.get()).epoch for job in handed_in} == {1}


@pytest.mark.parametrize("verb", ["claim", "report"])
@pytest.mark.parametrize("heard", [True, False])
async def test_a_remote_worker_repeats_a_request_whose_answer_was_lost(
    served: Served, app: App, verb: str, heard: bool
) -> None:
    """The job runs once: a repeated claim brings the same lease, a repeated report the same answer."""
    ran = []

    @app.job()
    async def once(ctx: Context) -> int:
        ran.append(ctx.fence)
        return ctx.fence

    job = await once.enqueue()
    async with FaultProxy.to(served.url) as gate:
        gate.cut_at(f"POST /api/worker/{verb}".encode(), after=heard)
        async with source_at(served, gate.url) as source, working(source, app):
            assert await job.result(timeout=60) == ran[0]
        assert gate.cuts >= 1
    stored = await job.get()
    assert (len(ran), stored.attempt, stored.failures, stored.lost) == (1, 1, 0, 0)


async def test_a_remote_worker_that_stops_during_a_long_poll_holds_no_lease(served: Served, app: App) -> None:
    """What a long poll may have claimed at that moment is given back."""

    @app.job()
    async def quick() -> None: ...

    for _ in range(5):
        async with source_at(served) as source, working(source, app) as worker:
            await first_wait(source)
            job = await quick.enqueue()
            worker.stop()
        stored = await job.get()
        assert stored.state in (State.SUCCEEDED, State.QUEUED)
        assert stored.lease_token is None


async def test_an_idle_remote_worker_gets_a_new_job_by_long_poll(served: Served, app: App) -> None:
    """By a long poll: in the meantime it asks for nothing else."""

    @app.job()
    async def quick() -> str:
        return "done"

    async with source_at(served) as source, working(source, app):
        await first_wait(source)
        await asyncio.sleep(0.5)
        assert await (await quick.enqueue()).result(timeout=60) == "done"


async def test_a_heartbeat_over_http_reports_cancel_requests_and_lost_leases(served: Served, app: App) -> None:
    engine = served.engine

    @app.job()
    async def long() -> None: ...

    async with source_at(served) as source:
        job, other = await long.enqueue(), await long.enqueue()
        claimed = await source.claim(2, queues=None, types=["long"])
        held = [HeldLease(lease.id, lease.token) for lease, _ in claimed]
        await engine.cancel(job.id)
        beat = await source.heartbeat([*held, HeldLease(other.id, Ids().token())], liveness=Liveness.BUSY, slots=2)
        assert (beat.cancel, beat.lost, beat.enabled) == ([job.id], [other.id], True)
        assert set(beat.expires_at) == {job.id, other.id}
        [worker] = await engine.workers.all()
        assert (worker.liveness, worker.slots) == ("busy", 2)
        await engine.workers.disable(worker.id)
        assert not (await source.heartbeat([], liveness=Liveness.IDLE, slots=2)).enabled


async def test_a_claim_over_http_returns_the_time_limits_of_the_policy(served: Served, app: App) -> None:
    @app.job(timeout=7, lease_seconds=90, cancel_grace_seconds=11, no_progress_seconds=5, max_lost=4)
    async def timed() -> None: ...

    await timed.enqueue()
    async with source_at(served) as source:
        [(lease, policy)] = await source.claim(1, queues=["default"], types=None)
    assert (policy.timeout_seconds, policy.lease_seconds, policy.cancel_grace_seconds) == (7, 90, 11)
    assert (policy.no_progress_seconds, policy.max_lost, lease.lost, lease.epoch) == (5, 4, 0, 1)


async def test_an_unreachable_server_is_retried_and_a_rejected_key_ends_the_worker(served: Served) -> None:
    away = HttpSource(Client("http://127.0.0.1:1", NO_SUCH_KEY, retries=0), Clock(), Ids())
    with pytest.raises(StoreUnavailable):
        await away.claim(1, queues=None, types=None)
    await away.close()
    stranger = HttpSource(Client(served.url, NO_SUCH_KEY, retries=0), Clock(), Ids())
    with pytest.raises(Unauthorized) as refused:
        await stranger.claim(1, queues=None, types=None)
    assert refused.value.code == "worker_not_found"  # which ends the runtime
    assert NO_SUCH_KEY not in str(refused.value)
    await stranger.close()


# -- real processes: `holdfast worker --server` -----------------------------------------------------------------------


class RemoteHarness(WorkerHarness):
    """Its workers know a server and a key, and no database."""

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in super()._environment().items() if name != "HOLDFAST_DATABASE_URL"}


@asynccontextmanager
async def remote(url: str, folder: Path, **settings: Any) -> AsyncIterator[tuple[FaultProxy, RemoteHarness]]:
    """Servers on the database, a proxy before them, and a harness for workers that connect through it."""
    if not PROC:
        pytest.skip("the processes of a worker are found by their environment, in /proc")
    settings = {"lease_seconds": 6, "heartbeat_seconds": 1, "sweep_seconds": 0.5, "startup_grace_seconds": 0} | settings
    jobs.app.settings = Settings(database_url=url, **settings)
    async with serving(url, **settings) as served, FaultProxy.to(served.url) as gate:
        key = (await served.register(name="far away"))["apiKey"]
        harness = RemoteHarness(folder, msgspec.structs.replace(jobs.app.settings, worker_key=key))
        try:
            yield gate, harness  # type: ignore[misc]
        finally:
            await harness.close()
            await jobs.app.close()


@pytest.mark.slow
async def test_a_remote_worker_runs_jobs_recovers_from_a_crash_and_releases_on_stop(
    fresh_sqlite_url: str, tmp_path: Path
) -> None:
    """On the loop, in threads, in child processes; killed with kill -9; told to stop."""
    async with remote(fresh_sqlite_url, tmp_path, stop_grace_seconds=0.5) as (gate, on):
        command = await on.start("--server", gate.url)
        kinds = (jobs.on_the_loop, jobs.in_a_thread, jobs.in_a_process, jobs.innocent)
        for job in [await kind.enqueue() for kind in kinds]:
            assert (await on.final(job)).state is State.SUCCEEDED

        lost = await jobs.on_the_loop.enqueue(seconds=60)
        command.signal(signal.SIGKILL, {await on.started(lost)})
        assert (await on.final(lost)).result == 2
        assert await on.outcomes(lost) == ["lost", "succeeded"]

        canceled = await jobs.until_canceled.enqueue()
        await on.started(canceled)
        await canceled.cancel()
        assert (await on.final(canceled)).state is State.CANCELED

        kept = await jobs.on_the_loop.enqueue(seconds=60)
        await on.started(kept)
        assert await command.stop() == 0
        assert not command.pids()
        assert await on.outcomes(kept) == ["released"]
        [worker] = await (await on.engine()).workers.all()
        assert (worker.name, worker.liveness) == ("far away", "offline")


@pytest.mark.slow
async def test_a_remote_worker_loses_no_job_when_its_server_is_replaced(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
    """Jobs that run go on under their leases, and are reported to whichever server is there when they end."""
    async with remote(fresh_postgres_url, tmp_path, lease_seconds=30) as (gate, on):
        await on.start("--server", gate.url)
        running = [await jobs.on_the_loop.enqueue(seconds=2) for _ in range(3)]
        for job in running:
            await on.started(job)
        gate.lead_to("http://127.0.0.1:1")
        short = await jobs.innocent.enqueue_many([{"seconds": 0.01}] * 50)
        await eventually(lambda: all(on.handler_log.notes("returned", job.id) for job in running))
        async with serving(fresh_postgres_url, sweep_seconds=0.5) as second:
            gate.lead_to(second.url)
            finals = [await on.final(job) for job in (*running, *short)]
            assert {(job.state, job.attempt, job.lost) for job in finals} == {(State.SUCCEEDED, 1, 0)}
            gate.lead_to("http://127.0.0.1:1")


def run_refused(*arguments: str, folder: Path, **variables: str) -> tuple[int, str]:
    (folder / "tasks.py").write_text("from holdfast import App\napp = App()\n\n@app.job()\ndef hello(): ...\n")
    ended = holdfast("worker", "--app", "tasks:app", *arguments, folder=folder, **variables)
    return ended.returncode, ended.stderr


@pytest.mark.slow
async def test_a_remote_worker_that_cannot_start_prints_the_reason(tmp_path: Path, fresh_sqlite_url: str) -> None:
    code, said = run_refused("--server", "http://127.0.0.1:1", folder=tmp_path)
    assert (code, "HOLDFAST_WORKER_KEY" in said) == (1, True)
    code, said = run_refused("--server", "example.com", folder=tmp_path)
    assert (code, "https://" in said) == (2, True)
    code, said = run_refused("--server", "http://127.0.0.1:1", "--database", "sqlite:///x.db", folder=tmp_path)
    assert (code, "not both" in said) == (2, True)
    (tmp_path / "holdfast.toml").write_text(f"worker_key = {json.dumps(NO_SUCH_KEY)}")
    async with serving(fresh_sqlite_url) as served:
        code, said = await asyncio.to_thread(run_refused, "--server", served.url, folder=tmp_path)
    assert (code, "the server rejected this worker's key" in said, NO_SUCH_KEY in said) == (1, True, False)
    on_database = "from holdfast import App\napp = App()\n\n@app.job(needs_database=True)\ndef hello(): ...\n"
    (tmp_path / "tasks.py").write_text(on_database)
    command = ("worker", "--app", "tasks:app", "--server", "http://127.0.0.1:1")
    ended = holdfast(*command, folder=tmp_path)
    assert (ended.returncode, "all job types need the database (hello)" in ended.stderr) == (2, True)
    assert not (tmp_path / ".holdfast").exists()
