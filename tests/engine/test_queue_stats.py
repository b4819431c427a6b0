"""Queue statistics: counted by one process, returned by all of them, with a bounded cost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.engine.reads import queue_stats as counting
from holdfast.engine.reads.queue_stats import NAMES_MAX, PATIENCE_SECONDS, QueueDepth, QueueStats
from holdfast.ids import SeededIds
from holdfast.lifecycle import State
from holdfast.lifecycle.default import DEFAULT
from holdfast.model import Liveness, NewJob
from holdfast.store import Tx, open_store, q
from holdfast.store.queries import Query
from tests.engine.steps import ask, bring, run

HOUR = 3600.0
OLD = 11.0  # seconds after which figures are no longer shown


@pytest.fixture(autouse=True)
def counts_take_no_time(clock: MovableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a busy machine does not change how long a count takes."""
    monkeypatch.setattr(clock, "monotonic", lambda: 0.0)


@pytest.fixture
async def other(store_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    """Another process on the same database."""
    ids = SeededIds(8)
    engine = Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids)
    yield engine
    await engine.close()


def counts_of(*engines: Engine) -> list[str]:
    """The counts that these engines make from now on."""
    made: list[str] = []

    def note(query: Query, _seconds: float, _error: BaseException | None) -> None:
        if query.name == "queue_stats":
            made.append(query.name)

    for engine in engines:
        engine.store.on_query = note
    return made


async def test_each_kind_is_counted_once(engine: Engine, worker: str) -> None:
    for state in State:
        if state is not State.RETRYING:
            await bring(engine, worker, DEFAULT, state)
    lease = await run(engine, worker)
    await engine.fail(worker, lease.id, lease.token, "E_BUSY", retry_after_seconds=HOUR)
    await engine.create(NewJob(type="later", delay_seconds=HOUR))
    found = (await engine.reads.queue_stats()).queues
    assert found == {"default": QueueDepth(waiting=1, delayed=1, retrying=1, created=1, running=1)}
    assert (found["default"].later, found["default"].jobs) == (3, 5)


async def test_queue_stats_are_grouped_by_queue_and_by_type_across_tenants(engine: Engine) -> None:
    for queue, kind, tenant in (("a", "x", "t1"), ("a", "x", "t2"), ("a", "y", "t1"), ("b", "y", "t1")):
        await engine.create(NewJob(type=kind, queue=queue, tenant=tenant))
    found = await engine.reads.queue_stats()
    assert {name: depth.waiting for name, depth in found.queues.items()} == {"a": 3, "b": 1}
    assert {name: depth.waiting for name, depth in found.types.items()} == {"x": 2, "y": 2}


async def test_oldest_seconds_counts_from_the_time_a_job_became_due(engine: Engine, clock: MovableClock) -> None:
    """Not from its creation; a delayed job counts from its time on, even before maintenance has marked it as due."""
    await engine.create(NewJob(type="echo", queue="a"))
    await engine.create(NewJob(type="echo", queue="b", delay_seconds=60))
    clock.advance(30)
    await engine.create(NewJob(type="echo", queue="a"))
    found = (await engine.reads.queue_stats()).queues
    assert (found["a"], found["b"]) == (QueueDepth(waiting=2, oldest_seconds=30), QueueDepth(delayed=1))
    clock.advance(50)
    found = (await engine.reads.queue_stats()).queues
    assert (found["a"], found["b"]) == (
        QueueDepth(waiting=2, oldest_seconds=80),
        QueueDepth(waiting=1, oldest_seconds=20),
    )


async def test_jobs_in_a_paused_queue_are_not_counted_as_waiting(engine: Engine, clock: MovableClock) -> None:
    """No worker may claim them, so none should be started for them; each tenant has its own queue of a name."""
    await engine.create(NewJob(type="echo", queue="held back"))
    await engine.create(NewJob(type="echo", queue="held back", tenant="another"))
    await engine.create(NewJob(type="echo", queue="free"))
    await engine.queues.pause("held back")
    found = (await engine.reads.queue_stats()).queues
    assert found["held back"] == QueueDepth(waiting=1, paused=1)
    assert found["held back"].later == 1
    assert found["free"] == QueueDepth(waiting=1)
    await engine.queues.resume("held back")
    clock.advance(30)
    assert (await engine.reads.queue_stats()).queues["held back"] == QueueDepth(waiting=2, oldest_seconds=30)


async def test_workers_are_counted_by_status_and_only_live_ones_contribute_slots(
    engine: Engine, clock: MovableClock
) -> None:
    gone = await engine.workers.register(slots=100, offline_seconds=10)
    for liveness, slots in ((Liveness.IDLE, 3), (Liveness.BUSY, 4), (Liveness.BUSY, None)):
        worker = await engine.workers.register(slots=slots)
        await engine.heartbeat(worker.id, [], liveness=liveness, slots=slots)
    await engine.workers.disable((await engine.workers.register(slots=1000)).id)
    await engine.maintenance.mark_silent_workers()  # the first sweep ever
    clock.advance(10)
    assert [worker.id for worker in await engine.maintenance.mark_silent_workers()] == [gone.id]
    found = await engine.reads.queue_stats()
    assert found.workers == {"idle": 1, "busy": 2, "offline": 1, "disabled": 1}
    assert found.slots == 7


async def test_recent_queue_stats_are_not_counted_again(engine: Engine, other: Engine, clock: MovableClock) -> None:
    """However many processes ask; old ones are counted once."""
    counts = counts_of(engine, other)
    first = await engine.reads.queue_stats()
    await engine.create(NewJob(type="echo"))
    clock.advance(9)
    assert [await asking.reads.queue_stats() for asking in (engine, other, engine)] == [first] * 3
    assert len(counts) == 1
    clock.advance(1)
    assert (await other.reads.queue_stats()).types["echo"].waiting == 1
    assert (await engine.reads.queue_stats()).types["echo"].waiting == 1
    assert len(counts) == 2
    clock.advance(2)
    await engine.reads.queue_stats(max_age_seconds=1)
    assert len(counts) == 3


async def test_concurrent_reads_of_queue_stats_make_one_count(
    engine: Engine, other: Engine, clock: MovableClock
) -> None:
    counts = counts_of(engine, other)
    await asyncio.gather(*(asking.reads.queue_stats() for asking in (engine, other) * 5))
    assert len(counts) == 1
    clock.advance(OLD)
    await asyncio.gather(*(asking.reads.queue_stats() for asking in (engine, other) * 5))
    assert len(counts) == 2


async def test_begin_count_gives_no_turn_while_the_stored_stats_are_recent(engine: Engine) -> None:
    """Another process has counted between its read and its turn."""
    await engine.reads.queue_stats()
    turn = await engine.store.write(
        lambda tx: tx.one(q.begin_count, name=counting.NAME, age=10.0, patience=PATIENCE_SECONDS)
    )
    assert turn is None


async def test_queue_stats_do_not_touch_other_rows_of_counted(engine: Engine) -> None:
    at = await engine.reads.now()
    for name in ("another", "zebra"):
        row = "(name, taken_at, asked_at, figures) VALUES (:name, :at, :at, 'theirs') RETURNING name"
        await ask(engine, f"INSERT INTO holdfast_counted {row}", name=name, at=at)
    await engine.create(NewJob(type="echo"))
    assert (await engine.reads.queue_stats()).types["echo"].waiting == 1
    rows = await ask(
        engine, "SELECT name, figures FROM holdfast_counted WHERE name <> :name ORDER BY name", name=counting.NAME
    )
    assert [(row["name"], row["figures"]) for row in rows] == [("another", "theirs"), ("zebra", "theirs")]


async def test_other_processes_return_the_previous_stats_while_one_is_counting(
    engine: Engine, other: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.create(NewJob(type="echo"))
    old = await engine.reads.queue_stats()
    await engine.create(NewJob(type="echo"))
    clock.advance(OLD)
    counting_now, go_on = asyncio.Event(), asyncio.Event()
    count = counting._recount

    async def slow(*given: Any) -> QueueStats:
        counting_now.set()
        await go_on.wait()
        return await count(*given)

    monkeypatch.setattr(counting, "_recount", slow)
    new = asyncio.create_task(engine.reads.queue_stats())
    await counting_now.wait()
    assert await other.reads.queue_stats() == old
    go_on.set()
    assert (await new).types["echo"].waiting == 2
    assert await other.reads.queue_stats() == await new


async def die_counting(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the turn and crash before the count ends."""

    async def gone(*_given: Any) -> QueueStats:
        raise SystemError

    with monkeypatch.context() as dying:
        dying.setattr(counting, "_recount", gone)
        with pytest.raises(SystemError):
            await engine.reads.queue_stats()


async def test_another_process_counts_after_the_counting_process_crashed(
    engine: Engine, other: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was the first count, and no stats are stored yet."""
    await engine.create(NewJob(type="echo"))
    for known in (0, 1):
        counts = counts_of(engine, other)
        await die_counting(engine, monkeypatch)
        clock.advance(PATIENCE_SECONDS - 1)
        assert len((await other.reads.queue_stats()).queues) == known
        assert counts == []
        clock.advance(1)
        assert (await other.reads.queue_stats()).types["echo"].waiting == 1
        assert len(counts) == 1
        clock.advance(OLD)


async def test_a_process_that_lost_its_turn_does_not_store_its_stats(
    engine: Engine, other: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = counting._recount

    async def overtaken(*given: Any) -> QueueStats:
        late = await count(*given)
        monkeypatch.setattr(counting, "_recount", count)
        await other.create(NewJob(type="echo"))
        clock.advance(PATIENCE_SECONDS)
        assert len((await other.reads.queue_stats()).queues) == 1
        return late

    monkeypatch.setattr(counting, "_recount", overtaken)
    assert (await engine.reads.queue_stats()).queues == {}
    assert len((await engine.reads.queue_stats()).queues) == 1


async def test_the_pause_between_counts_grows_with_their_duration(
    engine: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of two seconds is made at most every forty: a twentieth of one connection's time."""
    passed = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: passed[0])
    count = counting._count

    async def slow(tx: Tx) -> QueueStats:
        passed[0] += 2
        return await count(tx)

    monkeypatch.setattr(counting, "_count", slow)
    assert (await engine.reads.queue_stats()).took_seconds == 2
    counts = counts_of(engine)
    clock.advance(39)
    await engine.reads.queue_stats()
    assert counts == []
    clock.advance(1)
    await engine.reads.queue_stats()
    assert len(counts) == 1


async def test_a_failed_count_keeps_the_previous_stats_and_waits_before_the_next(
    engine: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.create(NewJob(type="echo"))
    old = await engine.reads.queue_stats()
    clock.advance(OLD)
    with monkeypatch.context() as failing:
        failing.setattr(counting, "COUNT_SECONDS", -1.0)
        assert (await engine.reads.queue_stats()).queues == old.queues
    counts = counts_of(engine)
    clock.advance(OLD)
    assert (await engine.reads.queue_stats()).counted_at == old.counted_at
    assert counts == []
    clock.advance(OLD)
    assert (await engine.reads.queue_stats()).counted_at == clock.now()


async def test_queue_stats_group_names_beyond_the_limit_under_other(engine: Engine) -> None:
    """The largest keep their names, the rest is grouped (SEC-44); types are counted separately (R000-71)."""
    await engine.create_many([NewJob(type="echo", queue=f"q{n}") for n in range(NAMES_MAX + 20)])
    await engine.create_many([NewJob(type="echo", queue="large") for _ in range(3)])
    found = await engine.reads.queue_stats()
    assert (next(iter(found.queues)), len(found.queues)) == ("large", NAMES_MAX + 1)
    assert found.queues["other"] == QueueDepth(waiting=21)
    assert found.types == {"echo": QueueDepth(waiting=NAMES_MAX + 23)}
    [row] = await ask(engine, "SELECT figures FROM holdfast_counted")
    assert len(row["figures"]) < 100_000
