"""What a worker counts: each attempt once, by its outcome, with its waiting and running time."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import App, Context, JobFailed, Snooze
from holdfast.assembly.worker import measure
from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.errors import LeaseLost, StoreError, StoreUnavailable
from holdfast.model import NewJob
from holdfast.model.reports import HeldLease
from holdfast.observe.instruments import LABELS_MAX
from holdfast.observe.worker_metrics import WorkerMetrics
from holdfast.store import PostgresStore
from holdfast.worker.heartbeat.heartbeater import HeartbeatResult
from holdfast.worker.metrics import DEPTH_SECONDS, WorkerCounters
from tests.engine.steps import ask
from tests.worker.in_process import until, working


class ManualClock(Clock):
    """A monotonic clock that the test sets."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def told(registry: WorkerMetrics) -> dict[str, dict[tuple[str, ...], Any]]:
    """By family and labels; of a histogram, how many and their sum."""
    return {
        name: {
            tuple(labels): (sum(value[:-1]), value[-1]) if isinstance(value, list) else value
            for labels, value in values
        }
        for name, values in registry.snapshot().items()
    }


async def test_each_attempt_is_counted_by_its_outcome(app: App) -> None:
    @app.job(max_attempts=2, backoff_base_seconds=0)
    async def fails() -> None:
        raise ConnectionError("no")

    @app.job()
    async def snoozes(ctx: Context) -> Snooze | None:
        return Snooze(0.01) if ctx.fence == 1 else None

    @app.job()
    async def lasts() -> None:
        await asyncio.sleep(60)

    figures = WorkerCounters(sorted(app.handlers))
    async with working(app, figures=figures) as at_work:
        failed, snoozed, canceled = await fails.enqueue(), await snoozes.enqueue(), await lasts.enqueue()
        with pytest.raises(JobFailed):
            await failed.result(60)
        await snoozed.result(60)
        await until(lambda: [run.lease.type for run in at_work.worker.slots.running()] == ["lasts"])
        assert told(figures.registry)["job_active_count"] == {("fails",): 0, ("lasts",): 1, ("snoozes",): 0}
        await canceled.cancel()
        held = HeldLease(canceled.id, str((await canceled.get()).lease_token))
        at_work.worker.on_heartbeat(HeartbeatResult(cancel=[held]))
        await until(lambda: len(at_work.worker.slots.executions) == 0)
        found = told(figures.registry)
    assert found["holdfast_attempts_total"] == {
        ("fails", "retrying"): 1,
        ("fails", "dead"): 1,
        ("snoozes", "released"): 1,
        ("snoozes", "succeeded"): 1,
        ("lasts", "canceled"): 1,
    }
    assert ("snoozes", "released") not in found["job_processed_total"], "it was not processed, only looked at"
    assert sum(found["job_processed_total"].values()) == found["job_duration_seconds"][()][0] == 4
    assert found["job_failures_total"] == {("ConnectionError",): 2}
    assert found["retry_attempts_total"] == {(): 1}, "a snooze costs no attempt"
    assert found["holdfast_run_seconds"]["snoozes",][0] == 2
    assert (found["holdfast_slots"], found["holdfast_slots_busy"]) == ({(): 10}, {(): 0})


async def test_lost_leases_and_stale_reports_are_counted(app: App) -> None:
    gate = asyncio.Event()

    @app.job()
    async def gated(ctx: Context) -> None:
        await gate.wait()

    @app.job()
    async def talks(ctx: Context) -> None:
        await gate.wait()
        with pytest.raises(LeaseLost):
            await ctx.progress(percent=50)

    figures = WorkerCounters(sorted(app.handlers))
    async with working(app, figures=figures) as at_work:
        late, _ = await gated.enqueue(), await talks.enqueue()
        await until(lambda: len(at_work.worker.slots.running()) == 2)
        instance = (await late.get()).lease_instance
        assert instance is not None
        await (await app.engine()).maintenance.reap(gone=[instance])
        gate.set()
        await until(lambda: told(figures.registry)["holdfast_attempts_total"].get(("gated", "lost")))
        await until(lambda: told(figures.registry)["holdfast_attempts_total"].get(("talks", "lost")))
        await late.result(60)
    found = told(figures.registry)
    assert found["holdfast_leases_lost_total"] == {(): 2}
    assert found["holdfast_stale_writes_rejected_total"] == {(): 2}
    assert ("gated", "lost") not in found["job_processed_total"]


async def test_waiting_time_is_counted_from_the_time_a_job_is_due(app: App) -> None:
    """R000-61: neither its delay nor the pause before a retry is the queue's fault."""

    @app.job(queue="slow")
    async def quick() -> None: ...

    figures = WorkerCounters(sorted(app.handlers))
    await quick.options(delay=3600).enqueue()
    job = await quick.enqueue()
    engine = await app.engine()
    due = (await job.get()).run_at
    async with working(app, figures=figures):
        await job.result(60)
        await until(lambda: told(figures.registry)["holdfast_attempts_total"])
    claimed = next(event.at for event in await engine.reads.history(job.id) if event.verb == "claim")
    number, seconds = told(figures.registry)["holdfast_wait_seconds"]["slow",]
    assert number == 1
    assert (claimed - due).total_seconds() <= seconds < (claimed - due + timedelta(seconds=20)).total_seconds()
    assert told(figures.registry)["job_queue_latency_milliseconds"]["quick",] == (1, pytest.approx(seconds * 1000))


async def test_the_status_label_is_the_state_name_of_the_lifecycle(app: App) -> None:
    """R000-60, R000-62: `failed` is the end in `images`, and a retry to come in `generation`."""

    @app.job(lifecycle="images", max_attempts=2)
    async def resize() -> None:
        raise ConnectionError("no")

    figures = WorkerCounters(sorted(app.handlers), lifecycles=app.lifecycles)
    async with working(app, figures=figures) as at_work:
        await resize.options(policy={"backoff_base_seconds": 0}).enqueue()
        await resize.options(lifecycle="generation", policy={"backoff_base_seconds": 600}).enqueue()
        await until(lambda: figures.registry.retries.values[()] == 1 and len(at_work.worker.slots.executions) == 0)
        found = told(figures.registry)
    words = {("resize", "failed_retryable"): 1, ("resize", "failed"): 2}
    assert found["job_processed_total"] == words
    assert {labels: count for labels, (count, _) in found["job_processing_duration_seconds"].items()} == words
    assert found["holdfast_attempts_total"] == {("resize", "retrying"): 2, ("resize", "dead"): 1}


# -- without a database ------------------------------------------------------------------------------------------


def test_fine_histograms_are_exported_in_the_buckets_of_each_metric() -> None:
    """A value on a bound belongs to the bucket below, as in Prometheus."""
    figures = WorkerCounters(["a"])
    for seconds in (0.005, 0.07, 0.1, 0.10001, 7, 10, 10.5, 30_000):
        figures._runs(seconds, "a", "succeeded", "default")
        figures._waits(seconds, "q", "a")
    figures._runs(7, "a", "lost", "default")
    values = {name: dict(each) for name, each in figures.registry.snapshot().items()}
    assert values["job_processing_duration_seconds"]["a", "succeeded"][:-1] == [3, 1, 0, 0, 0, 0, 0, 1, 1, 2]
    assert values["job_duration_seconds"][()][:-1] == [3, 1, 0, 0, 0, 0, 0, 1, 1, 2]
    latency = values["job_queue_latency_milliseconds"]["a",]
    assert (latency[:6], sum(latency[6:-2]), latency[-2]) == ([1, 0, 0, 1, 1, 1], 2, 2)
    assert latency[-1] == pytest.approx(1000 * values["holdfast_wait_seconds"]["q",][-1])
    assert sum(values["holdfast_run_seconds"]["a",][:-1]) == 9
    assert values["holdfast_attempts_total"] == {("a", "succeeded"): 8, ("a", "lost"): 1}
    assert figures.registry.snapshot() == figures.registry.snapshot(), "reading changes nothing"


def test_label_values_beyond_a_limit_are_grouped() -> None:
    """SEC-44: clients name queues, handlers name errors."""
    figures = WorkerCounters(["a"])
    for number in range(10_000):
        figures._waits(1, f"queue-{number}", "a")
        figures.registry.failures.add(1, f"E_{number}")
    found = told(figures.registry)
    for name in ("holdfast_wait_seconds", "job_failures_total"):
        assert len(found[name]) <= LABELS_MAX + 1
    assert sum(found["job_failures_total"].values()) == 10_000
    assert sum(number for number, _ in found["holdfast_wait_seconds"].values()) == 10_000
    assert found["job_queue_latency_milliseconds"] == {("a",): (10_000, 10_000_000)}, "types are named by the app only"


async def test_a_scrape_does_not_wait_for_a_hanging_queue_depth_query() -> None:
    """The depth keeps its last value, and no second query starts before the first has an answer."""
    clock, answers = ManualClock(), list[asyncio.Future[dict[str, int]]]()
    figures = WorkerCounters(["a", "b"], clock)

    async def depths() -> dict[str, int]:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    async def depth() -> dict[tuple[str, ...], Any]:
        await figures.text()
        return told(figures.registry)["job_queue_depth"]

    assert not await depth(), "where there is no database"
    figures.show_depths(depths)
    asked = asyncio.create_task(depth())
    await until(lambda: answers)
    answers[0].set_result({"a": 3, "of another app": 9})
    assert await asked == {("a",): 3, ("b",): 0}
    assert await depth() == {("a",): 3, ("b",): 0}
    assert len(answers) == 1, "young enough"
    clock.seconds += DEPTH_SECONDS
    assert await depth() == await depth() == {("a",): 3, ("b",): 0}
    assert len(answers) == 2
    answers[1].set_exception(StoreUnavailable("gone"))
    assert await depth() == {("a",): 3, ("b",): 0}


def test_counters_of_processes_are_summed_and_shared_gauges_are_not() -> None:
    first, second = WorkerCounters(["a"]), WorkerCounters(["a"])
    for each, up in ((first, True), (second, False)):
        each._runs(0.2, "a", "succeeded", "default")
        each.registry.slots.set(4)
        each.registry.depth.set(7, "a")
        each.registry.show_broker({("sent", "broker"): 5}, up=up, breaker_open=not up)
    total = WorkerMetrics()
    total.add_up([first.registry.snapshot(), second.registry.snapshot()])
    found = told(total)
    assert found["job_processed_total"] == {("a", "succeeded"): 2}
    assert found["holdfast_run_seconds"]["a",] == (2, pytest.approx(0.4))
    assert (found["holdfast_slots"][()], found["job_queue_depth"]["a",]) == (8, 7)
    assert found["holdfast_hints_total"] == {("sent", "broker"): 10}
    assert (found["holdfast_broker_up"][()], found["holdfast_breaker_open"][()]) == (0, 1), "the worst of them"

    past = WorkerMetrics()
    past.keep_counters(second.registry.snapshot())
    total = WorkerMetrics()
    total.add_up([past.snapshot(), first.registry.snapshot()])
    found = told(total)
    assert found["job_processed_total"] == {("a", "succeeded"): 2}
    assert (found["holdfast_slots"][()], found["holdfast_broker_up"][()]) == (4, 1)
    assert past.snapshot()["job_active_count"] == [(("a",), 0)], "shown, and nothing runs"


async def test_a_failed_query_of_a_worker_is_counted(engine: Engine, worker: str) -> None:
    """R000-67: by the query and by what the database called the error."""
    figures = WorkerCounters(["a"])
    measure(engine, figures)
    await engine.claim(worker)
    assert told(figures.registry)["db_query_errors_total"] == {}
    await ask(engine, "ALTER TABLE holdfast_lanes RENAME TO elsewhere")
    with pytest.raises(StoreError):
        await engine.claim(worker)
    error = "42P01" if isinstance(engine.store, PostgresStore) else "SQLITE_ERROR"
    assert told(figures.registry)["db_query_errors_total"] == {("open_lanes", error): 1}


async def test_a_reaped_attempt_is_recorded_with_its_duration(engine: Engine, worker: str, clock: MovableClock) -> None:
    """R000-49: reported by the process that reaped it. A worker reports its own attempts itself."""
    figures = WorkerCounters(["a"])
    measure(engine, figures)
    await engine.create_many([NewJob(type="a"), NewJob(type="a")])
    done, _ = await engine.claim(worker, limit=2, instance="one")
    clock.advance(7)
    await engine.complete(worker, done.id, done.token)
    assert len(await engine.maintenance.reap(gone=["one"])) == 1
    assert told(figures.registry)["holdfast_attempt_seconds"] == {("a", "lost"): (1, pytest.approx(7, abs=0.1))}
