"""Maintenance tasks of extensions: one process at a time, each task independent, failures retried."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.maintenance.extension_tasks import BACKOFF_MAX_SECONDS, FORGET_SECONDS, SEEN_SECONDS, Task
from holdfast.ids import SeededIds
from holdfast.maintenance.maintainer import ExtensionMaintainer
from holdfast.store import Tx, open_store
from holdfast.store.queries import Query
from tests.engine.steps import ask

NOTE = Query("note", "INSERT INTO holdfast_secrets (name, value) VALUES ('swept', 'x') RETURNING name")
FOREVER = Query(
    "forever", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS all_of_them FROM n"
)


class Tasks:
    """Two extensions that each have a task `sweep`, and one more; each counts how often it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: dict[str, Any] = {}
        self.all = [self._task("notes", "sweep", 60), self._task("notes", "tidy", 10), self._task("pages", "sweep", 60)]

    def _task(self, extension: str, name: str, every: float) -> Task:
        async def function(tx: Tx) -> None:
            self.ran.append(f"{extension}.{name}")
            if (broken := self.broken.get(f"{extension}.{name}")) is not None:
                await tx.all(NOTE)
                await broken(tx)

        return Task(extension, name, every, function, seconds=0.5)

    def since(self) -> list[str]:
        ran, self.ran = self.ran, []
        return ran


def with_extensions(engine: Engine) -> Engine:
    engine.ctx.hooks.add("notes")
    engine.ctx.hooks.add("pages")
    return engine


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def maintainer(engine: Engine, clock: MovableClock, tasks: Tasks) -> ExtensionMaintainer:
    return ExtensionMaintainer(with_extensions(engine), clock, SeededIds(7), tasks.all)


@pytest.fixture
async def other(store_url: str, clock: MovableClock, tasks: Tasks) -> AsyncIterator[ExtensionMaintainer]:
    """Another process with the same extensions."""
    engine = with_extensions(Engine(await open_store(store_url, clock), clock=clock))
    yield ExtensionMaintainer(engine, clock, SeededIds(8), tasks.all)
    await engine.close()


async def rows(engine: Engine) -> dict[str, Any]:
    found = await ask(
        engine, "SELECT extension, task, due_at, ran_at, failures, error FROM holdfast_maintenance ORDER BY 1, 2"
    )
    return {f"{row['extension']}.{row['task']}": row for row in found}


async def test_each_task_runs_once_in_its_interval_in_one_of_the_processes(
    maintainer: ExtensionMaintainer, other: ExtensionMaintainer, tasks: Tasks, clock: MovableClock
) -> None:
    for each in (maintainer, other):
        await each.round()
    for each in (maintainer, other, maintainer, other):
        await each.round()
    assert sorted(tasks.since()) == ["notes.sweep", "notes.tidy", "pages.sweep"]
    clock.advance(9.9)
    for each in (other, maintainer):
        await each.round()
    assert tasks.since() == []
    clock.advance(0.1)
    for each in (other, maintainer):
        await each.round()
    assert tasks.since() == ["notes.tidy"]
    clock.advance(50)
    await other.round()
    assert sorted(tasks.since()) == ["notes.sweep", "notes.tidy", "pages.sweep"]


async def test_the_maintainer_waits_until_the_next_task_is_due(
    maintainer: ExtensionMaintainer, clock: MovableClock
) -> None:
    for _ in range(2):
        assert await maintainer.round() == 0.5
    assert await maintainer.round() == pytest.approx(10, abs=0.01)
    clock.advance(4)
    assert await maintainer.round() == pytest.approx(6, abs=0.01)


async def test_a_task_that_one_process_runs_is_skipped_by_another(fresh_postgres_url: str) -> None:
    one, two = [with_extensions(Engine(await open_store(fresh_postgres_url))) for _ in range(2)]
    started = asyncio.Event()

    async def function(tx: Tx) -> None:
        started.set()
        await tx.all(Query("slow", "SELECT pg_sleep(3)"))

    task = Task("notes", "sweep", 60, function)
    await one.maintenance.extension_tasks([task])
    async with asyncio.timeout(60):
        running = asyncio.create_task(one.maintenance.run_extension_task(task))
        await started.wait()
        assert not await two.maintenance.run_extension_task(task)
        assert not running.done(), "the other one did not wait for it"
        assert await running
        assert not await two.maintenance.run_extension_task(task), "it was done a moment ago"
    for engine in (one, two):
        await engine.close()


async def raises(_tx: Tx) -> None:
    raise ZeroDivisionError("a mistake")


async def fails_in_sql(tx: Tx) -> None:
    await tx.one(Query("broken", "INSERT INTO holdfast_job_types (name) VALUES ('half') RETURNING name"))


async def takes_too_long(tx: Tx) -> None:
    await tx.all(FOREVER)


@pytest.mark.parametrize("broken", [raises, fails_in_sql, takes_too_long])
async def test_a_failed_task_is_rolled_back_and_retried_and_the_others_run(
    engine: Engine,
    maintainer: ExtensionMaintainer,
    tasks: Tasks,
    clock: MovableClock,
    caplog: pytest.LogCaptureFixture,
    broken: Any,
) -> None:
    tasks.broken["notes.sweep"] = broken
    await maintainer.round()
    with caplog.at_level(logging.INFO):
        await maintainer.round()
    assert "extension notes: maintenance sweep failed (1 times)" in caplog.text
    assert sorted(tasks.since()) == ["notes.sweep", "notes.tidy", "pages.sweep"]
    found = await rows(engine)
    assert (found["notes.sweep"]["failures"], found["notes.sweep"]["ran_at"]) == (1, None)
    assert found["notes.sweep"]["error"]
    for name in ("notes.tidy", "pages.sweep"):
        assert (found[name]["failures"], found[name]["error"]) == (0, None)
        assert found[name]["ran_at"] is not None
    assert await ask(engine, "SELECT name FROM holdfast_secrets WHERE name = 'swept'") == []
    clock.advance(1.9)
    await maintainer.round()
    assert tasks.since() == []
    clock.advance(0.1)
    del tasks.broken["notes.sweep"]
    with caplog.at_level(logging.INFO):
        await maintainer.round()
    assert tasks.since() == ["notes.sweep"]
    assert "maintenance sweep recovered" in caplog.text
    row = (await rows(engine))["notes.sweep"]
    assert (row["failures"], row["error"], row["ran_at"] is None) == (0, None, False)


async def test_the_pause_after_a_failure_grows_up_to_five_minutes(
    engine: Engine, maintainer: ExtensionMaintainer, tasks: Tasks, clock: MovableClock
) -> None:
    tasks.broken["pages.sweep"] = raises
    await maintainer.round()
    await ask(engine, "UPDATE holdfast_maintenance SET failures = 20 WHERE extension = 'pages' RETURNING task")
    await maintainer.round()
    row = (await rows(engine))["pages.sweep"]
    [now] = await ask(engine, "SELECT {now} AS at")
    assert row["failures"] == 21
    assert row["due_at"] - now["at"] == timedelta(seconds=BACKOFF_MAX_SECONDS)


async def test_a_task_due_later_than_its_longest_pause_runs_immediately(
    engine: Engine, maintainer: ExtensionMaintainer, tasks: Tasks
) -> None:
    """Its interval was longer before, or the clock was set back."""
    for _ in range(2):
        await maintainer.round()
    tasks.since()
    await ask(engine, "UPDATE holdfast_maintenance SET due_at = {now+400} WHERE task = 'tidy' RETURNING task")
    await maintainer.round()
    assert tasks.since() == ["notes.tidy"]
    await maintainer.round()
    assert tasks.since() == []


async def test_a_task_that_is_not_due_does_not_run_when_one_of_the_same_name_is(
    engine: Engine, maintainer: ExtensionMaintainer, tasks: Tasks, clock: MovableClock
) -> None:
    for _ in range(2):
        await maintainer.round()
    tasks.since()
    await ask(engine, "UPDATE holdfast_maintenance SET due_at = {now} WHERE extension = 'notes' RETURNING task")
    assert not await engine.maintenance.run_extension_task(tasks.all[2])
    assert tasks.since() == []
    assert await engine.maintenance.run_extension_task(tasks.all[0])
    assert tasks.since() == ["notes.sweep"]


async def test_a_process_reports_its_extensions_once_per_interval(
    engine: Engine, maintainer: ExtensionMaintainer, clock: MovableClock
) -> None:
    async def seen() -> dict[str, Any]:
        return {
            row["name"]: row["seen_at"] for row in await ask(engine, "SELECT name, seen_at FROM holdfast_extensions")
        }

    await maintainer.round()
    first = await seen()
    assert sorted(first) == ["notes", "pages"]
    clock.advance(SEEN_SECONDS - 1)
    await maintainer.round()
    assert await seen() == first
    clock.advance(1)
    await maintainer.round()
    assert {name: at - first[name] for name, at in (await seen()).items()} == dict.fromkeys(
        first, timedelta(seconds=SEEN_SECONDS)
    )


async def test_a_task_that_no_process_has_any_more_is_deleted(
    engine: Engine, maintainer: ExtensionMaintainer, clock: MovableClock
) -> None:
    await maintainer.round()
    await ask(
        engine,
        "INSERT INTO holdfast_maintenance (extension, task, due_at)"
        " VALUES ('notes', 'gone', {now}), ('other', 'gone', {now}) RETURNING task",
    )
    clock.advance(FORGET_SECONDS - 1)
    await maintainer.round()
    assert len(await rows(engine)) == 5
    clock.advance(SEEN_SECONDS)
    await maintainer.round()
    assert sorted(await rows(engine)) == ["notes.sweep", "notes.tidy", "other.gone", "pages.sweep"]


async def test_an_outage_does_not_end_the_maintainer(
    maintainer: ExtensionMaintainer, engine: Engine, tasks: Tasks
) -> None:
    await engine.store.close()
    assert await maintainer.round() > 0
    assert tasks.since() == []
