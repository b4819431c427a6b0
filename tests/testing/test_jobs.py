"""`jobs_of(app)`: the app's own jobs on a database of the test, run by a real worker, at the test's time."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import App, Context, JobFailed, Permanent, Reject, Retry, Snooze, SyncContext
from holdfast.engine import Cursor
from holdfast.errors import HoldfastError, Invalid, UnknownName
from holdfast.lifecycle import State
from holdfast.model import Event, NewJob
from holdfast.testing import Jobs, jobs_of
from tests.testing import workshop


@pytest.fixture
def app() -> App:
    return App(database_url="sqlite:////nowhere/real.db")


@pytest.fixture
def jobs(app: App) -> Iterator[Jobs]:
    with jobs_of(app) as jobs:
        yield jobs


# -- what waits -------------------------------------------------------------------------------------------------------


async def test_what_was_enqueued_can_be_seen_until_it_has_run(app: App, jobs: Jobs) -> None:
    @app.job("SEND_EMAIL")
    async def send_email(to: str, subject: str) -> None: ...

    first = await send_email.enqueue(to="a@example.com", subject="Hi")
    second = await send_email.enqueue(to="b@example.com", subject="Hi")
    assert [job.id for job in jobs.enqueued()] == [first.id, second.id]
    assert [job.id for job in jobs.enqueued("SEND_EMAIL", subject="Hi")] == [first.id, second.id]
    assert [job.id for job in jobs.enqueued(send_email, to="b@example.com")] == [second.id]
    assert jobs.enqueued(send_email, to="c@example.com") == []
    await jobs.drain()
    assert jobs.enqueued() == []


async def test_a_payload_is_matched_as_the_handler_sees_it_or_as_json(app: App, jobs: Jobs) -> None:
    class Address(msgspec.Struct):
        street: str

    @app.job()
    async def ship(to: Address, at: datetime, order: UUID) -> None: ...

    at, order = datetime(2026, 5, 1, tzinfo=UTC), UUID(int=7)
    await ship.enqueue(Address("Main St"), at, order)
    assert jobs.enqueued(ship, to=Address("Main St"), at=at, order=order)
    assert jobs.enqueued(ship, to={"street": "Main St"}, at="2026-05-01T00:00:00Z", order=str(order))
    assert not jobs.enqueued(ship, to=Address("Side St"))


async def test_delayed_and_failed_jobs_wait_too(app: App, jobs: Jobs) -> None:
    @app.job()
    async def fail() -> None:
        raise ValueError

    await fail.enqueue()
    await fail.options(delay=60).enqueue()
    await jobs.drain(raise_errors=False)
    assert [job.state for job in jobs.enqueued(fail)] == [State.RETRYING, State.QUEUED]


async def test_more_jobs_than_fit_on_a_page_are_all_seen_in_order(app: App, jobs: Jobs) -> None:
    @app.job()
    async def count(number: int) -> None: ...

    await count.enqueue_many([{"number": number} for number in range(1203)])
    assert [job.payload["number"] for job in jobs.enqueued(count)] == list(range(1203))
    assert len(await jobs.drain()) == 1203


def test_a_name_that_nothing_can_match_is_an_error(app: App, jobs: Jobs) -> None:
    @app.job("SEND_EMAIL")
    async def send_email(to: str) -> None: ...

    with pytest.raises(UnknownName, match="did you mean 'SEND_EMAIL'"):
        jobs.enqueued("SEND_EMIAL")
    with pytest.raises(UnknownName, match="did you mean 'to'"):
        jobs.enqueued("SEND_EMAIL", too="a@example.com")


async def test_jobs_for_another_app_can_be_seen_and_are_left_alone(app: App, jobs: Jobs) -> None:
    await app.create(NewJob(type="elsewhere", payload={"number": 1}))
    assert await jobs.drain(until_done=True) == []
    assert jobs.enqueued("elsewhere", number=1)
    assert not jobs.enqueued("elsewhere", number=2)


# -- what ran ---------------------------------------------------------------------------------------------------------


async def test_drain_says_what_ran_and_how_it_ended(app: App, jobs: Jobs) -> None:
    @app.job()
    async def double(number: int) -> int:
        return 2 * number

    job = await double.enqueue(21)
    [ran] = await jobs.drain()
    assert (ran.job_id, ran.type, ran.payload, ran.attempt) == (job.id, "double", {"number": 21}, 1)
    assert (ran.verb, ran.result, ran.error) == ("complete", 42, None)
    assert await job.result(timeout=60) == 42
    assert jobs.get(job).state is State.SUCCEEDED
    assert jobs.get(job.id).result == 42


async def test_jobs_made_by_jobs_run_too(app: App, jobs: Jobs) -> None:
    @app.job()
    async def grandparent() -> None:
        await parent.enqueue()

    @app.job()
    def parent() -> None:
        child.enqueue_sync()

    @app.job()
    async def child() -> None: ...

    await grandparent.enqueue()
    assert [ran.type for ran in await jobs.drain()] == ["grandparent", "parent", "child"]


async def test_a_job_may_wait_for_the_result_of_another(app: App, jobs: Jobs) -> None:
    @app.job()
    async def parent() -> int:
        return await (await child.enqueue()).result(timeout=60) + 1

    @app.job()
    async def child() -> int:
        return 1

    await parent.enqueue()
    assert [ran.result for ran in await jobs.drain()] == [1, 2]


async def test_the_error_of_a_handler_is_raised_as_it_was(app: App, jobs: Jobs) -> None:
    original = ValueError("no such address")

    @app.job("SEND_EMAIL")
    async def send_email() -> None:
        raise original

    job = await send_email.enqueue()
    with pytest.raises(ValueError, match="no such address") as raised:
        await jobs.drain()
    assert raised.value is original
    assert any(job.id in note and "SEND_EMAIL" in note for note in original.__notes__)
    assert jobs.get(job).state is State.RETRYING


async def test_the_errors_of_several_jobs_are_raised_together(app: App, jobs: Jobs) -> None:
    @app.job()
    async def fail(kind: str) -> None:
        raise {"key": KeyError, "value": ValueError}[kind]

    await fail.enqueue_many([{"kind": "key"}, {"kind": "value"}])
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as raised:
        await jobs.drain()
    assert {type(error) for error in raised.value.exceptions} == {KeyError, ValueError}


@pytest.mark.parametrize("error", [Permanent("E_GONE", "gone"), Retry("E_BUSY"), Reject("E_RUDE", "no")])
async def test_errors_in_our_words_are_raised_too(app: App, jobs: Jobs, error: Exception) -> None:
    @app.job(lifecycle="generation")
    def fail(ctx: SyncContext) -> None:
        raise error

    await fail.enqueue()
    with pytest.raises(type(error)) as raised:
        await jobs.drain()
    assert raised.value is error


async def test_errors_can_be_looked_at_instead(app: App, jobs: Jobs) -> None:
    @app.job(errors={ValueError: "permanent"})
    async def fail() -> None:
        raise ValueError("no")

    job = await fail.enqueue()
    [ran] = await jobs.drain(raise_errors=False)
    assert ran.verb == "fail"
    assert isinstance(ran.error, ValueError)
    assert jobs.get(job).status == "FAILED"


async def test_what_would_end_the_tests_themselves_is_told_as_a_failed_job(app: App, jobs: Jobs) -> None:
    @app.job()
    async def leave() -> None:
        raise SystemExit(3)

    await leave.enqueue()
    with pytest.raises(JobFailed, match="SystemExit") as raised:
        await jobs.drain()
    assert isinstance(raised.value.__cause__, SystemExit)


async def test_a_timeout_is_a_failed_job(app: App, jobs: Jobs) -> None:
    @app.job(timeout=0.05)
    async def sleep() -> None:
        await asyncio.sleep(60)

    await sleep.enqueue()
    with pytest.raises(JobFailed) as raised:
        await jobs.drain()
    assert raised.value.code == "timeout"


async def test_a_snoozed_job_is_no_error_and_waits(app: App, jobs: Jobs) -> None:
    @app.job()
    async def nap() -> Snooze:
        return Snooze(30)

    await nap.enqueue()
    [ran] = await jobs.drain()
    assert (ran.verb, ran.error) == ("release", None)
    assert jobs.enqueued(nap)


async def test_a_job_canceled_while_it_runs_is_no_error(app: App, jobs: Jobs) -> None:
    @app.job()
    async def long(ctx: Context) -> None:
        await app.job_handle(ctx.job_id).cancel()
        await ctx.progress(50)
        await asyncio.sleep(60)

    job = await long.enqueue()
    assert [ran.verb for ran in await jobs.drain()] == ["release"]
    assert jobs.get(job).status == "CANCELED"


async def test_what_the_worker_claimed_and_gave_back_did_not_run(app: App, jobs: Jobs) -> None:
    @app.job(max_attempts=1)  # so it may not wait in a worker that has no slot for it
    async def once(number: int) -> int:
        await asyncio.sleep(0.005)
        return number

    await once.enqueue_many([{"number": number} for number in range(1000)])
    assert sorted(ran.result for ran in await jobs.drain()) == list(range(1000))
    given_back = [event async for event in _events(app) if event.verb == "release"]
    assert given_back, "the worker never claimed ahead, so this shows nothing"


async def test_an_app_without_jobs_has_nothing_to_drain(jobs: Jobs) -> None:
    assert await jobs.drain(until_done=True) == []


# -- time -------------------------------------------------------------------------------------------------------------


async def test_time_stands_still_until_it_is_moved(app: App, jobs: Jobs) -> None:
    @app.job()
    async def later() -> None: ...

    before = jobs.clock.now()
    job = await later.options(delay=3600).enqueue()
    assert await jobs.drain() == []
    jobs.clock.advance(minutes=59, seconds=59)
    assert await jobs.drain() == []
    jobs.clock.advance(1)
    assert len(await jobs.drain()) == 1
    assert jobs.get(job).finished_at == before + timedelta(hours=1)


async def test_a_test_may_choose_the_day(app: App) -> None:
    start = datetime(2030, 2, 28, 12, tzinfo=UTC)
    with jobs_of(app, start=start) as jobs:
        jobs.clock.advance(days=1, hours=1)
        assert jobs.clock.now() == datetime(2030, 3, 1, 13, tzinfo=UTC)


async def test_times_that_the_code_takes_from_the_computer_are_due_when_one_expects_it(app: App, jobs: Jobs) -> None:
    @app.job()
    async def remind() -> None: ...

    await remind.options(run_at=datetime.now(UTC)).enqueue()
    assert len(await jobs.drain()) == 1
    await remind.options(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    assert await jobs.drain() == []
    jobs.clock.advance(hours=1)
    assert len(await jobs.drain()) == 1


async def test_until_done_runs_every_retry_and_raises_nothing_that_was_overcome(app: App, jobs: Jobs) -> None:
    @app.job(backoff_base_seconds=600)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    job = await flaky.options(delay=3600).enqueue()
    ran = await jobs.drain(until_done=True)
    assert [each.verb for each in ran] == ["fail", "fail", "complete"]
    assert isinstance(ran[0].error, ConnectionError)
    assert await job.result(timeout=60) == 3


async def test_until_done_raises_what_a_job_died_of(app: App, jobs: Jobs) -> None:
    tries = []

    @app.job(max_attempts=3)
    async def fail(ctx: Context) -> None:
        tries.append(ctx.attempt)
        raise ValueError(f"try {ctx.attempt}")

    job = await fail.enqueue()
    with pytest.raises(ValueError, match="try 3"):
        await jobs.drain(until_done=True)
    assert tries == [1, 2, 3]
    assert jobs.get(job).status == "FAILED"


async def test_jobs_that_never_end_are_not_drained_for_ever(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.testing.source.MOVES_MAX", 20)

    @app.job()
    async def poll() -> Snooze:
        return Snooze(30)

    await poll.enqueue()
    with pytest.raises(HoldfastError, match=r"poll \(21 times\)") as raised:
        await jobs.drain(until_done=True)
    assert raised.value.code == "drain_did_not_finish"


# -- the production path ----------------------------------------------------------------------------------------------


async def test_lifespan_middleware_and_error_hook_of_the_app_are_in_force(app: App, jobs: Jobs) -> None:
    heard: list[Any] = []

    @app.lifespan
    @asynccontextmanager
    async def pool(_: App) -> AsyncIterator[str]:
        heard.append("opened")
        yield "a pool"
        heard.append("closed")

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        heard.append(ctx.state)
        return await call_next()

    @app.on_error
    async def hook(_: Context, error: BaseException) -> None:
        heard.append(str(error))

    @app.job()
    async def fail() -> None:
        raise ValueError("no")

    await fail.enqueue()
    with pytest.raises(ValueError, match="no"):
        await jobs.drain()
    assert heard == ["opened", "a pool", "no", "closed"]


async def test_what_the_job_types_ask_for_the_worker_can_do(app: App, jobs: Jobs) -> None:
    @app.job(requires=["gpu", "codecs:h264"])
    async def render() -> None: ...

    @app.job(prefers=["big"])
    async def sort() -> None: ...

    await render.enqueue()
    await sort.enqueue()
    assert {ran.type for ran in await jobs.drain()} == {"render", "sort"}


async def test_parts_and_checkpoints_are_there_in_the_next_attempt(app: App, jobs: Jobs) -> None:
    @app.job()
    async def copy(ctx: Context) -> list[str]:
        done = []
        async for part in ctx.parts(["a", "b", "c"]):
            if part.name == "b" and ctx.attempt == 1:
                raise OSError
            done.append(part.name)
        return done

    await copy.enqueue()
    assert [ran.result for ran in await jobs.drain(until_done=True)] == [None, ["b", "c"]]


async def test_a_process_isolated_job_runs_in_a_child_on_the_same_database_and_time() -> None:
    with jobs_of(workshop.app) as jobs:
        await workshop.square.enqueue(3)
        jobs.clock.advance(days=1)
        first, second = await jobs.drain()
        assert first.result != os.getpid()
        assert (second.type, second.result) == ("delivered", 9)
        job = await workshop.what_time_is_it.enqueue()
        await jobs.drain()
        assert await job.result(timeout=60) == jobs.clock.now()


async def test_an_error_in_a_child_is_told_with_its_traceback() -> None:
    with jobs_of(workshop.app) as jobs:
        await workshop.square.enqueue(-1)
        with pytest.raises(JobFailed, match="no negative numbers") as raised:
            await jobs.drain()
    assert raised.value.code == "ValueError"
    assert any("workshop.py" in note for note in raised.value.__notes__)


async def test_a_child_cannot_run_what_it_cannot_import(app: App, jobs: Jobs) -> None:
    @app.job(isolation="process")
    def local() -> None: ...

    await local.enqueue()
    with pytest.raises(JobFailed) as raised:
        await jobs.drain()
    assert raised.value.code == "E_NO_CHILDREN"


# -- sync tests, and the app afterwards -------------------------------------------------------------------------------


def test_a_test_that_is_no_coroutine_can_do_all_this(app: App, jobs: Jobs) -> None:
    @app.job()
    async def double(number: int) -> int:
        halve.enqueue_sync(number)
        return 2 * number

    @app.job()
    def halve(number: int) -> float:
        assert jobs.enqueued(halve) == []  # it runs, it does not wait
        return number / 2

    job = double.options(delay=60).enqueue_sync(21)
    assert jobs.enqueued(double, number=21)
    jobs.clock.advance(minutes=1)
    assert [ran.result for ran in jobs.drain_sync()] == [42, 10.5]
    assert job.result_sync(timeout=20) == 42


async def test_drain_sync_says_where_it_does_not_belong(jobs: Jobs) -> None:
    with pytest.raises(Invalid, match=r"await jobs.drain\(\)"):
        jobs.drain_sync()


async def test_the_app_is_afterwards_as_it_was_before(tmp_path: Path) -> None:
    app = App(database_url=f"sqlite:///{tmp_path}/real.db")

    @app.job()
    async def note() -> None: ...

    real = await note.enqueue()
    with jobs_of(app) as jobs:
        await note.enqueue()
        assert len(jobs.enqueued()) == 1
    assert await real.status() == "PENDING"
    assert [job.id for job in (await (await app.engine()).reads.page()).jobs] == [real.id]
    await app.close()


async def test_each_test_has_a_database_of_its_own(app: App) -> None:
    @app.job()
    async def note() -> None: ...

    for _ in range(2):
        with jobs_of(app) as jobs:
            assert jobs.enqueued() == []
            await note.enqueue()


async def test_nothing_is_left_behind(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job()
    def note() -> None: ...

    async def once() -> None:
        with jobs_of(app) as jobs:
            await note.enqueue()
            await jobs.drain()
            await asyncio.to_thread(jobs.drain_sync)
            jobs.enqueued()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await once()
    files, threads = _open_files(), _our_threads()
    for _ in range(3):
        await once()
    assert _open_files() <= files
    assert await _eventually(lambda: _our_threads() <= threads)
    assert os.listdir(tmp_path) == []


def _open_files() -> int:
    gc.collect()
    return len(os.listdir("/dev/fd"))


def _our_threads() -> int:
    return sum(thread.name.startswith("holdfast") for thread in threading.enumerate())


async def _events(app: App) -> AsyncIterator[Event]:
    engine, cursor = await app.engine(), Cursor()
    while True:
        events, cursor = await engine.reads.feed(cursor)
        if not events:
            return
        for event in events:
            yield event


async def _eventually(condition: Any) -> bool:
    for _ in range(200):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False
