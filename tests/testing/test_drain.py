"""`jobs.drain()`: which jobs run, how they end, and which errors it raises."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Permanent, Reject, Retry, Snooze, SyncContext
from holdfast.engine import Cursor
from holdfast.lifecycle import State
from holdfast.model import Event
from holdfast.testing import Jobs, jobs_of
from tests.testing import process_app


async def _events(app: App) -> AsyncIterator[Event]:
    engine, cursor = await app.engine(), Cursor()
    while True:
        events, cursor = await engine.reads.feed(cursor)
        if not events:
            return
        for event in events:
            yield event


async def test_drain_returns_what_ran_and_how_it_ended(app: App, jobs: Jobs) -> None:
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


async def test_drain_runs_jobs_enqueued_by_jobs(app: App, jobs: Jobs) -> None:
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


async def test_jobs_in_all_slots_may_wait_for_one_in_the_reserved_slot(app: App, jobs: Jobs) -> None:
    @app.job()
    async def parent() -> int:
        return await (await child.enqueue()).result(timeout=60) + 1

    @app.job(reserved_slot=True)
    async def child() -> int:
        return 1

    slots = app.settings.concurrency
    await parent.enqueue_many([{}] * slots)
    assert sorted(ran.result for ran in await jobs.drain()) == [1] * slots + [2] * slots


async def test_drain_raises_the_original_error_of_a_handler(app: App, jobs: Jobs) -> None:
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


async def test_drain_raises_the_errors_of_several_jobs_as_a_group(app: App, jobs: Jobs) -> None:
    @app.job()
    async def fail(kind: str) -> None:
        raise {"key": KeyError, "value": ValueError}[kind]

    await fail.enqueue_many([{"kind": "key"}, {"kind": "value"}])
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as raised:
        await jobs.drain()
    assert {type(error) for error in raised.value.exceptions} == {KeyError, ValueError}


@pytest.mark.parametrize("error", [Permanent("E_GONE", "gone"), Retry("E_BUSY"), Reject("E_RUDE", "no")])
async def test_drain_raises_permanent_retry_and_reject(app: App, jobs: Jobs, error: Exception) -> None:
    @app.job(lifecycle="generation")
    def fail(ctx: SyncContext) -> None:
        raise error

    await fail.enqueue()
    with pytest.raises(type(error)) as raised:
        await jobs.drain()
    assert raised.value is error


async def test_drain_without_raise_errors_returns_the_errors(app: App, jobs: Jobs) -> None:
    @app.job(errors={ValueError: "permanent"})
    async def fail() -> None:
        raise ValueError("no")

    job = await fail.enqueue()
    [ran] = await jobs.drain(raise_errors=False)
    assert ran.verb == "fail"
    assert isinstance(ran.error, ValueError)
    assert jobs.get(job).status == "FAILED"


async def test_drain_raises_job_failed_for_system_exit(app: App, jobs: Jobs) -> None:
    @app.job()
    async def leave() -> None:
        raise SystemExit(3)

    await leave.enqueue()
    with pytest.raises(JobFailed, match="SystemExit") as raised:
        await jobs.drain()
    assert isinstance(raised.value.__cause__, SystemExit)


async def test_drain_raises_job_failed_for_a_timeout(app: App, jobs: Jobs) -> None:
    @app.job(timeout=0.05)
    async def sleep() -> None:
        await asyncio.sleep(60)

    await sleep.enqueue()
    with pytest.raises(JobFailed) as raised:
        await jobs.drain()
    assert raised.value.code == "timeout"


async def test_a_snoozed_job_raises_no_error_and_waits(app: App, jobs: Jobs) -> None:
    @app.job()
    async def nap() -> Snooze:
        return Snooze(30)

    await nap.enqueue()
    [ran] = await jobs.drain()
    assert (ran.verb, ran.error) == ("release", None)
    assert jobs.enqueued(nap)


async def test_a_job_canceled_while_it_runs_raises_no_error(app: App, jobs: Jobs) -> None:
    @app.job()
    async def long(ctx: Context) -> None:
        await app.job_handle(ctx.job_id).cancel()
        await ctx.progress(50)
        await asyncio.sleep(60)

    job = await long.enqueue()
    assert [ran.verb for ran in await jobs.drain()] == ["release"]
    assert jobs.get(job).status == "CANCELED"


async def test_drain_does_not_list_released_jobs_as_run(app: App, jobs: Jobs) -> None:
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


async def test_drain_uses_lifespan_middleware_and_error_hook_of_the_app(app: App, jobs: Jobs) -> None:
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


async def test_the_test_worker_has_every_required_capability(app: App, jobs: Jobs) -> None:
    @app.job(requires=["gpu", "codecs:h264"])
    async def render() -> None: ...

    @app.job(prefers=["big"])
    async def sort() -> None: ...

    await render.enqueue()
    await sort.enqueue()
    assert {ran.type for ran in await jobs.drain()} == {"render", "sort"}


async def test_finished_parts_are_kept_for_the_next_attempt(app: App, jobs: Jobs) -> None:
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
    with jobs_of(process_app.app) as jobs:
        await process_app.square.enqueue(3)
        jobs.clock.advance(days=1)
        ran = {each.type: each.result for each in await jobs.drain()}  # in the order of their ends, which may vary
        assert ran["square"] != os.getpid()
        assert ran["delivered"] == 9
        job = await process_app.what_time_is_it.enqueue()
        await jobs.drain()
        assert await job.result(timeout=60) == jobs.clock.now()


async def test_an_error_in_a_child_is_raised_with_its_traceback() -> None:
    with jobs_of(process_app.app) as jobs:
        await process_app.square.enqueue(-1)
        with pytest.raises(JobFailed, match="no negative numbers") as raised:
            await jobs.drain()
    assert raised.value.code == "ValueError"
    assert any("process_app.py" in note for note in raised.value.__notes__)


async def test_a_process_job_that_cannot_be_imported_fails(app: App, jobs: Jobs) -> None:
    @app.job(isolation="process")
    def local() -> None: ...

    await local.enqueue()
    with pytest.raises(JobFailed) as raised:
        await jobs.drain()
    assert raised.value.code == "E_NO_CHILDREN"
