"""Enqueueing: from async and sync code, one and many, from any loop, any thread and any process."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, JobHandle, SyncContext
from holdfast.errors import Invalid, KeyReused, StoreError
from holdfast.lifecycle import State
from holdfast.model import NewJob
from holdfast.sdk.definitions import Definition
from holdfast.settings import Settings
from tests.app.steps import drained, jobs_in


@pytest.fixture
def number(app: App) -> Definition[[int], int]:
    @app.job()
    async def number(n: int) -> int:
        return n

    return number


async def test_a_job_is_on_disk_when_enqueue_returns(app: App, number: Definition[[int], int]) -> None:
    job = await number.enqueue(1)
    assert isinstance(job, JobHandle)
    other = App(app.settings)
    found = await other.job_handle(job.id).get()
    assert (found.type, found.payload, found.state, found.queue) == ("number", {"n": 1}, State.QUEUED, "default")
    await other.close()


async def test_job_types_are_declared_with_the_first_enqueue(app: App) -> None:
    """Another process that knows nothing of the app creates the type alike."""

    @app.job("MAIL", queue="post", max_attempts=7, requires=["smtp"])
    async def mail() -> None: ...

    await mail.enqueue()
    stranger = App(app.settings)
    [made] = await stranger.create([NewJob(type="MAIL")])
    found = await stranger.job_handle(made.id).get()
    assert (found.queue, found.max_attempts) == ("post", 7)
    await stranger.close()


async def test_a_type_defined_later_is_declared_later(app: App, number: Definition[[int], int]) -> None:
    await number.enqueue(1)

    @app.job(queue="late")
    async def late() -> None: ...

    assert (await (await late.enqueue()).get()).queue == "late"


async def test_jobs_enqueue_jobs(app: App) -> None:
    @app.job()
    async def child(n: int) -> int:
        return n

    @app.job()
    async def parent() -> str:
        return (await child.enqueue(1)).id

    @app.job()
    def parent_in_thread() -> str:
        return child.enqueue_sync(2).id

    first, second = await parent.enqueue(), await parent_in_thread.enqueue()
    assert await drained(app) == 4
    children = [app.job_handle(await job.result(60)) for job in (first, second)]
    assert [await job.result(60) for job in children] == [1, 2]


class TestEnqueueMany:
    async def test_enqueue_many_returns_handles_in_order(self, app: App, number: Definition[[int], int]) -> None:
        jobs = await number.enqueue_many({"n": n} for n in range(10))
        assert [(await job.get()).payload["n"] for job in jobs] == list(range(10))
        assert await number.enqueue_many([]) == []

    async def test_twenty_thousand_in_one_call(self, app: App, number: Definition[[int], int]) -> None:
        jobs = await number.enqueue_many([{"n": n} for n in range(20_000)])
        assert len({job.id for job in jobs}) == await jobs_in(app) == 20_000
        assert (await jobs[-1].get()).payload == {"n": 19_999}

    async def test_one_invalid_call_refuses_the_whole_batch(self, app: App, number: Definition[[int], int]) -> None:
        calls = [{"n": n} for n in range(3000)]
        calls[1500] = {"n": "x"}  # type: ignore[dict-item]
        with pytest.raises(Invalid, match="call 1500: payload of number: Expected `int`") as refused:
            await number.enqueue_many(calls)
        assert refused.value.code == "invalid_payload"
        assert await jobs_in(app) == 0

    async def test_one_job_refused_by_the_engine_rolls_back_the_whole_batch(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        """The first thousands have been written by then, and are taken back."""
        new = [NewJob(type="number", payload={"n": n}) for n in range(3000)]
        new[2500] = NewJob(type="number", queue="\n")
        with pytest.raises(Invalid):
            await app.create(new)
        assert await jobs_in(app) == 0

    async def test_a_call_that_is_no_mapping_is_refused(self, app: App, number: Definition[[int], int]) -> None:
        for calls in ([1], ["n"], [{"n": 1}, None], [{1: 1}]):
            with pytest.raises(Invalid, match="call") as refused:
                await number.enqueue_many(calls)  # type: ignore[arg-type]
            assert refused.value.code == "invalid_payload"
        assert await jobs_in(app) == 0

    async def test_enqueue_many_refuses_an_idempotency_key(self, app: App, number: Definition[[int], int]) -> None:
        with pytest.raises(Invalid, match="names one job") as refused:
            await number.options(idempotency_key="k").enqueue_many([{"n": 1}])
        assert refused.value.code == "invalid_field"

    def test_enqueue_many_sync_returns_handles_in_order(self, app: App, number: Definition[[int], int]) -> None:
        jobs = number.enqueue_many_sync([{"n": n} for n in range(3)])
        assert [job.get_sync().payload["n"] for job in jobs] == [0, 1, 2]


class TestKeys:
    async def test_a_repeated_request_returns_the_job_of_the_first(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        keyed = number.options(idempotency_key="req-1")
        first, second = await keyed.enqueue(1), await keyed.enqueue(n=1)
        assert (first.existed, second.existed) == (False, True)
        assert first.id == second.id
        with pytest.raises(KeyReused):
            await keyed.enqueue(2)
        assert await jobs_in(app) == 1

    async def test_concurrent_requests_with_one_key_make_one_job(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        keyed = number.options(idempotency_key="req-1")
        jobs = await asyncio.gather(*(keyed.enqueue(1) for _ in range(20)))
        assert len({job.id for job in jobs}) == 1
        assert [job.existed for job in jobs].count(False) == 1


def sync_loop_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("holdfast-sync")


class TestLoopsAndThreads:
    def test_sync_code_needs_no_loop(self, app: App, number: Definition[[int], int]) -> None:
        job = number.enqueue_sync(5)
        assert job.get_sync().payload == {"n": 5}
        app.close_sync()
        assert number.enqueue_sync(n=6).status_sync() == "PENDING"

    async def test_sync_code_may_be_called_inside_a_loop(self, app: App, number: Definition[[int], int]) -> None:
        """It blocks that loop, and so must not need it."""
        assert (await number.enqueue_sync(5).get()).payload == {"n": 5}

    def test_each_event_loop_has_its_own_connections(self, app: App, number: Definition[[int], int]) -> None:
        async def story() -> str:
            try:
                return (await number.enqueue(1)).id
            finally:
                await app.close()

        assert len({asyncio.run(story()) for _ in range(3)}) == 3

    def test_loops_in_several_threads_at_once(self, app: App, number: Definition[[int], int]) -> None:
        """Alternating with sync calls, all starting together."""
        together = threading.Barrier(8, timeout=60)
        before = sync_loop_threads()

        async def in_loop(place: int) -> list[str]:
            together.wait()
            async with app:
                return [(await number.enqueue(place)).id for _ in range(5)]

        def in_thread(place: int) -> list[str]:
            if place % 2:
                return asyncio.run(in_loop(place))
            together.wait()
            return [number.enqueue_sync(place).id for _ in range(5)]

        with ThreadPoolExecutor(8) as pool:
            ids = [job_id for found in pool.map(in_thread, range(8)) for job_id in found]
        assert len(set(ids)) == 40
        assert sync_loop_threads() - before == 1


APP = """
import asyncio, gc, os, sys, threading
from holdfast import App

app = App(database_url=sys.argv[1])

@app.job()
async def number(n: int) -> None: ...
"""

PREFORK = """
async def once(n):
    async with app:
        return (await number.enqueue(n)).id

def child(n):
    found = [number.enqueue_sync(n).id, number.enqueue_sync(n).id, asyncio.run(once(n))]
    assert sum(thread.name == "holdfast-sync" for thread in threading.enumerate()) == 1
    app.close_sync()
    return found

found = [number.enqueue_sync(0).id, asyncio.run(once(0))]
for n in (1, 2):
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        try:
            os.write(writer, " ".join(child(n)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found += pipe.read().split()
    assert os.waitpid(pid, 0)[1] == 0
found += [number.enqueue_sync(3).id, asyncio.run(once(3))]
app.close_sync()
print(*found)
"""

WITHOUT_CLOSE = """
def opened():
    gc.collect()
    return threading.active_count() + len(os.listdir("/dev/fd"))

async def once(n):
    await number.enqueue(n)

asyncio.run(once(0))
before = opened()
for n in range(20):
    asyncio.run(once(n))
assert opened() <= before + 5, (before, opened())
"""


class TestProcesses:
    async def test_a_web_server_may_load_the_app_and_fork_afterwards(
        self, app: App, store_url: str, tmp_path: Path
    ) -> None:
        """Parent and children each enqueue through connections of their own."""
        ids = (await self.run(PREFORK, store_url, tmp_path)).split()
        numbers = [(await app.job_handle(job_id).get()).payload["n"] for job_id in ids]
        assert numbers == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
        assert len(set(ids)) == await jobs_in(app) == 10

    async def test_event_loops_that_end_without_closing_the_app_leak_nothing(
        self, app: App, store_url: str, tmp_path: Path
    ) -> None:
        await self.run(WITHOUT_CLOSE, store_url, tmp_path)
        assert await jobs_in(app) == 21

    async def run(self, script: str, store_url: str, tmp_path: Path) -> str:
        path = tmp_path / "script.py"
        path.write_text(APP + script)
        ran = await asyncio.to_thread(
            subprocess.run, [sys.executable, path, store_url], capture_output=True, text=True, timeout=100
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


class TestErrors:
    async def test_a_missing_database_raises_and_is_opened_by_a_later_call(self, tmp_path: Path) -> None:
        blocked = tmp_path / "not-a-folder"
        blocked.write_text("")
        app = App(Settings(database_url=f"sqlite:///{blocked}/jobs.db"))

        @app.job()
        async def number(n: int) -> None: ...

        for _ in range(2):
            with pytest.raises(StoreError, match="cannot open"):
                await number.enqueue(1)
        blocked.unlink()
        assert await (await number.enqueue(1)).status() == "PENDING"
        await app.close()

    async def test_a_closed_app_opens_again_on_the_next_call(self, app: App, number: Definition[[int], int]) -> None:
        await number.enqueue(1)
        await app.close()
        await app.close()
        await number.enqueue(2)
        assert await jobs_in(app) == 2

    async def test_cancelling_the_first_caller_does_not_break_the_opening_for_others(
        self, app: App, number: Definition[[int], int]
    ) -> None:
        """F42: at whichever await it comes."""
        for turns in range(12):
            first, second = asyncio.create_task(number.enqueue(1)), asyncio.create_task(number.enqueue(2))
            for _ in range(turns):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert (await (await second).get()).payload == {"n": 2}
            await app.close()


def test_an_app_opens_nothing_until_the_first_enqueue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    app = App()

    @app.job()
    def both(ctx: SyncContext, other: int = 0) -> Any: ...

    @app.job()
    async def too(ctx: Context) -> Any: ...

    assert list(tmp_path.iterdir()) == []
    assert both.enqueue_sync().status_sync() == "PENDING"
    app.close_sync()
    assert (tmp_path / ".holdfast" / "holdfast.db").exists()
