"""The reserved slot: jobs of types with `reserved_slot` start while all other slots of a worker are busy."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import InvalidField
from holdfast.model import NewJob
from holdfast.sdk.definitions import Definition
from holdfast.store import open_store
from holdfast.worker.metrics import WorkerCounters
from holdfast.worker.sources.database import DatabaseSource
from tests.server.steps import serving
from tests.worker.in_process import AtWork, until, working
from tests.worker.test_database_source import ScriptedPresence
from tests.worker.test_http_source import source_at
from tests.worker.test_http_source import working as working_remotely
from tests.worker.test_worker_metrics import told


class Desk:
    """A long job, which ends when `gate` is set, and a control job, which waits for `control_gate`."""

    def __init__(self, app: App, **control: Any) -> None:
        self.app = app
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.control_gate = asyncio.Event()
        self.control_gate.set()
        self.longs = self.controls = self.controls_at_once = 0
        self.long: Definition[Any, str] = app.job("long")(self._long)
        self.control: Definition[Any, str] = app.job("control", **{"reserved_slot": True, **control})(self._control)

    async def _long(self) -> str:
        self.longs += 1
        self.started.set()
        await self.gate.wait()
        return "long"

    async def _control(self) -> str:
        self.controls += 1
        self.controls_at_once = max(self.controls_at_once, self.controls)
        await asyncio.sleep(0)
        await self.control_gate.wait()
        self.controls -= 1
        return "control"

    async def fill(self) -> Any:
        """The only other slot is busy from now on."""
        job = await self.long.enqueue()
        await self.started.wait()
        return job


def recorded(at_work: AtWork, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The calls by which the worker looks for jobs, with the types that it asks for."""
    calls: list[tuple[str, Any]] = []
    claim, wait = at_work.source.claim, at_work.source.wait

    async def claiming(limit: int, **where: Any) -> Any:
        calls.append(("claim", (limit, where["types"])))
        return await claim(limit, **where)

    async def waiting(seconds: float, queues: Any = None, types: Any = None, **options: Any) -> Any:
        calls.append(("wait", types))
        return await wait(seconds, queues, types, **options)

    monkeypatch.setattr(at_work.source, "claim", claiming)
    monkeypatch.setattr(at_work.source, "wait", waiting)
    return calls


@pytest.mark.parametrize("max_attempts", [1, 20])
async def test_a_control_job_runs_while_the_only_other_slot_is_busy(app: App, max_attempts: int) -> None:
    """On its last attempt it is never buffered."""
    desk = Desk(app, max_attempts=max_attempts)
    async with working(app, concurrency=1):
        long = await desk.fill()
        for _ in range(3):
            assert await (await desk.control.enqueue()).result(60) == "control"
        assert await long.status() == "RUNNING"
        desk.gate.set()
        assert await long.result(60) == "long"


async def test_a_control_job_that_waited_before_the_slots_were_busy_runs_too(app: App) -> None:
    desk = Desk(app)
    long = await desk.long.options(priority=10).enqueue()
    control = await desk.control.enqueue()
    async with working(app, concurrency=1):
        assert await control.result(60) == "control"
        assert await long.status() == "RUNNING"
        desk.gate.set()


async def test_an_ordinary_job_does_not_take_the_reserved_slot(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(app)
    async with working(app, concurrency=1) as at_work:
        await desk.fill()
        calls = recorded(at_work, monkeypatch)
        second = await desk.long.enqueue()
        assert await (await desk.control.enqueue()).result(60) == "control"
        assert await second.status() == "PENDING"
        assert {(limit, *types) for _, (limit, types) in (call for call in calls if call[0] == "claim")} == {
            (1, "control")
        }
        desk.gate.set()
        assert await second.result(60) == "long"


async def test_control_jobs_run_one_at_a_time_in_the_reserved_slot(app: App) -> None:
    desk = Desk(app)
    async with working(app, concurrency=1) as at_work:
        await desk.fill()
        desk.control_gate.clear()
        jobs = await desk.control.enqueue_many([{}] * 5)
        await until(lambda: desk.controls == 1)
        at_work.worker.slots.capacity_changed.set()
        await until(lambda: not at_work.worker.slots.capacity_changed.is_set())
        assert len(at_work.worker.slots.executions) == 2, "it holds no more jobs than it has slots"
        desk.control_gate.set()
        for job in jobs:
            await job.result(60)
        assert desk.controls_at_once == 1
        desk.gate.set()


async def test_control_jobs_use_free_slots_too(app: App) -> None:
    """Concurrency 2 runs three of them, or two others and one of them."""
    desk = Desk(app)
    desk.control_gate.clear()
    await desk.control.enqueue_many([{}] * 5)
    async with working(app, concurrency=2) as at_work:
        await until(lambda: desk.controls == 3)
        assert at_work.worker.slots.free() == 0
        desk.control_gate.set()
        await until(lambda: desk.controls == 0)
        await desk.long.enqueue_many([{}] * 3)
        await until(lambda: desk.longs == 2)
        assert await (await desk.control.enqueue()).result(60) == "control"
        assert desk.longs == 2
        desk.gate.set()


async def test_a_control_job_leaves_the_reserved_slot_to_another(app: App) -> None:
    """It has a slot like any other job, and an ordinary job waits for it: the order by priority stays."""
    desk = Desk(app)
    desk.control_gate.clear()
    await desk.control.options(priority=10).enqueue()
    async with working(app, concurrency=1) as at_work:
        await until(lambda: desk.controls == 1)
        long = await desk.long.enqueue()
        await desk.control.enqueue()
        await until(lambda: desk.controls == 2)
        assert (await long.status(), at_work.worker.slots.in_use()) == ("PENDING", 1)
        desk.control_gate.set()
        await desk.started.wait()
        desk.gate.set()
        assert await long.result(60) == "long"


async def test_a_prefetched_control_job_does_not_wait_behind_the_others(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(app)
    long = await desk.long.options(priority=10).enqueue()
    await desk.long.options(priority=5).enqueue_many([{}] * 5)
    controls = [await desk.control.enqueue() for _ in range(3)]
    async with working(app, concurrency=1) as at_work:
        at_work.worker.slots.prefetch.ended(0.001)
        calls = recorded(at_work, monkeypatch)
        for control in controls:
            assert await control.result(60) == "control"
        assert calls[0][1][0] > len(controls) + 6, "the first claim was for all of them"
        assert (desk.controls_at_once, await long.status()) == (1, "RUNNING")
        desk.gate.set()


async def test_control_jobs_do_not_make_the_worker_prefetch_others(app: App) -> None:
    """They are quick, and say nothing about the jobs in the other slots."""
    desk = Desk(app)
    async with working(app, concurrency=1) as at_work:
        await desk.fill()
        await (await desk.control.enqueue()).result(60)
        assert at_work.worker.slots.prefetch.ahead() == 0
        desk.gate.set()


async def test_without_such_types_a_busy_worker_asks_for_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(app, reserved_slot=False)
    async with working(app, concurrency=1) as at_work:
        await desk.fill()
        slots, calls = at_work.worker.slots, recorded(at_work, monkeypatch)
        control = await desk.control.enqueue()
        for _ in range(3):
            slots.capacity_changed.set()
            await until(lambda: not slots.capacity_changed.is_set())
        assert calls == []
        desk.gate.set()
        assert await control.result(60) == "control"
        assert all(types == slots.types for verb, types in calls if verb == "wait")


async def test_while_both_slots_are_busy_nothing_is_claimed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(app)
    async with working(app, concurrency=1) as at_work:
        await desk.fill()
        desk.control_gate.clear()
        await desk.control.enqueue()
        await until(lambda: desk.controls == 1)
        slots, calls = at_work.worker.slots, recorded(at_work, monkeypatch)
        await desk.control.enqueue()
        slots.capacity_changed.set()
        await until(lambda: not slots.capacity_changed.is_set())
        assert calls == []
        desk.gate.set()
        desk.control_gate.set()


async def test_an_ordinary_slot_that_becomes_free_is_used_while_the_worker_waits_for_control_jobs(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(app)
    async with working(app, concurrency=1) as at_work:
        calls = recorded(at_work, monkeypatch)
        long = await desk.fill()
        await until(lambda: ("wait", ["control"]) in calls)
        at_work.worker.slots.capacity_changed.set()  # as after a heartbeat: nothing has become free
        second = await desk.long.enqueue()
        desk.gate.set()
        assert [await long.result(60), await second.result(60)] == ["long", "long"]


async def test_a_control_job_in_a_paused_queue_is_not_claimed(app: App) -> None:
    desk = Desk(app)
    engine = await app.engine()
    async with working(app, concurrency=1):
        await desk.fill()
        await engine.queues.pause("held")
        held = await desk.control.options(queue="held").enqueue()
        assert await (await desk.control.enqueue()).result(60) == "control"
        assert await held.status() == "PENDING"
        await engine.queues.resume("held")
        assert await held.result(60) == "control"
        desk.gate.set()


async def test_a_limit_of_the_type_applies_to_the_reserved_slot(app: App) -> None:
    desk = Desk(app, concurrency=1)

    @app.job(reserved_slot=True)
    async def other() -> str:
        return "other"

    engine = await app.engine()
    elsewhere = (await engine.workers.register()).id
    await desk.control.enqueue()
    [held] = await engine.claim(elsewhere, types=["control"])
    async with working(app, concurrency=1):
        await desk.fill()
        limited = await desk.control.options(priority=10).enqueue()
        assert await (await other.enqueue()).result(60) == "other"
        assert await limited.status() == "PENDING"
        await engine.complete(elsewhere, held.id, held.token)
        assert await limited.result(60) == "control"
        desk.gate.set()


async def test_sync_handlers_have_a_thread_for_the_reserved_slot(app: App) -> None:
    started, gate = threading.Event(), threading.Event()

    @app.job()
    def long() -> None:
        started.set()
        gate.wait(60)

    @app.job(reserved_slot=True)
    def control() -> str:
        return "control"

    try:
        async with working(app, concurrency=1):
            job = await long.enqueue()
            await until(started.is_set)
            assert await (await control.enqueue()).result(60) == "control"
            assert await job.status() == "RUNNING"
            gate.set()
    finally:
        gate.set()


async def test_a_stopping_worker_waits_for_the_reserved_slot(app: App) -> None:
    desk = Desk(app)
    desk.control_gate.clear()
    async with working(app, concurrency=1, stop_grace_seconds=60) as at_work:
        long = await desk.fill()
        control = await desk.control.enqueue()
        await until(lambda: desk.controls == 1)
        at_work.worker.stop()
        desk.gate.set()
        assert await long.result(60) == "long"
        await until(lambda: at_work.worker.slots.busy == 1)
        assert not at_work.worker.slots.idle.is_set()
        desk.control_gate.set()
        await at_work.running
    assert await control.status() == "COMPLETED"


async def test_a_stop_ends_the_wait_for_control_jobs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(app)
    async with working(app, concurrency=1, stop_grace_seconds=60) as at_work:
        calls = recorded(at_work, monkeypatch)
        await desk.fill()
        await until(lambda: ("wait", ["control"]) in calls)
        at_work.worker.stop()
        control = await desk.control.enqueue()
        desk.gate.set()
        await at_work.running
    assert await control.status() == "PENDING"


async def test_the_metrics_leave_the_reserved_slot_out(app: App) -> None:
    """Else a worker whose slots are all busy would look as if it had one left."""
    desk = Desk(app)
    figures = WorkerCounters(["control", "long"])
    desk.control_gate.clear()
    async with working(app, concurrency=1, figures=figures):
        await desk.fill()
        await desk.control.enqueue()
        await until(lambda: desk.controls == 1)
        await figures.text()
        found = told(figures.registry)
        assert (found["holdfast_slots"], found["holdfast_slots_busy"]) == ({(): 1}, {(): 1})
        assert found["job_active_count"] == {("control",): 1, ("long",): 1}
        desk.gate.set()
        desk.control_gate.set()


async def test_a_remote_worker_has_the_reserved_slot(store_url: str, app: App) -> None:
    desk = Desk(app)
    async with (
        serving(store_url) as served,
        source_at(served) as source,
        working_remotely(source, app, concurrency=1) as worker,
    ):
        long = await desk.fill()
        second = await desk.long.enqueue()
        for _ in range(2):
            assert await (await desk.control.enqueue()).result(60) == "control"
        assert [await long.status(), await second.status()] == ["RUNNING", "PENDING"]
        assert worker.slots.prefetch.ahead() == 0
        desk.gate.set()
        assert await second.result(60) == "long"


def test_it_cannot_be_combined_with_child_processes(app: App) -> None:
    with pytest.raises(InvalidField, match="reserved_slot cannot be combined with isolation='process'"):
        app.job(reserved_slot=True, isolation="process")(asyncio.sleep)


class NoHints:
    """Hints of a broker that must not be taken."""

    floor_seconds = 60.0

    def waiting(self) -> Any:
        raise AssertionError("the worker takes hints that workers with free slots need")

    def looking(self, wanted: int) -> Any:
        raise AssertionError("the claim acknowledges hints about jobs that it does not claim")

    def given_up(self, jobs: list[str]) -> None: ...


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    """In real time."""
    engine = Engine(await open_store(store_url))
    yield engine
    await engine.close()


async def test_a_busy_worker_leaves_the_hints_of_a_broker_to_others(engine: Engine) -> None:
    worker = (await engine.workers.register()).id
    presence = ScriptedPresence(True, exact=True)
    source = DatabaseSource(engine, presence, Clock(), worker=worker, hints=NoHints())
    reserved: dict[str, Any] = {"queues": None, "types": ["control"], "reserved": True}
    assert await source.claim(1, **reserved) == []
    await engine.create(NewJob(type="long"))
    await engine.create(NewJob(type="control"))
    assert await source.wait(60, None, ["control"], reserved=True)
    assert [lease.type for lease, _ in await source.claim(1, **reserved)] == ["control"]
