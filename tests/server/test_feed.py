"""The reader that all watchers share: what it tells whom, and what it costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Cursor, Engine
from holdfast.engine.admin import queues
from holdfast.engine.cancel import cancel
from holdfast.engine.reads.read import Extent
from holdfast.errors import StoreError
from holdfast.lifecycle import Actor
from holdfast.model import NewJob
from holdfast.server.live import feed as feeds
from holdfast.server.live.event_buffer import BufferedEvent, EventBuffer
from holdfast.server.live.feed import EventFeed
from holdfast.store import Tx
from tests.engine.steps import UNKNOWN_ID
from tests.server.event_reader import watching
from tests.server.steps import Served, serving

START = (0, "", 0)


@asynccontextmanager
async def reading(engine: Engine) -> AsyncIterator[EventFeed]:
    feed = EventFeed(engine, Clock())
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()


async def test_a_reader_of_one_job_is_not_woken_by_others(engine: Engine) -> None:
    [mine, other] = await engine.create_many([NewJob(type="t"), NewJob(type="t")])
    async with reading(engine) as feed:
        watches = {job: await feed.watch(feeds.of_job(job)) for job in (mine.id, other.id)}
        elsewhere = await feed.watch(feeds.of_tenant("them"))
        await engine.cancel(other.id)
        assert await watches[other.id].wait(Clock(), 30)
        assert watches[mine.id].since is None
        assert elsewhere.since is None


async def test_a_heartbeat_does_not_skip_unread_events(engine: Engine) -> None:
    async with reading(engine) as feed:
        position = await feed.end()
        watch = await feed.watch(feeds.of_tenant("default"))
        await engine.create(NewJob(type="t"))
        assert await watch.wait(Clock(), 30)
        assert feed.quiet_until(watch, position) == position
        watch.take()
        pulled = await feed.read_after(position, watch.key)
        assert pulled.at_end
        assert feed.quiet_until(watch, pulled.position) == pulled.position


async def test_the_position_of_a_reader_advances_with_events_of_others(engine: Engine) -> None:
    async with reading(engine) as feed:
        watch, other = await feed.watch(feeds.of_tenant("us")), await feed.watch(feeds.of_tenant("them"))
        position = await feed.end()
        await engine.create(NewJob(type="t", tenant="them"))
        assert await other.wait(Clock(), 30)
        assert feed.quiet_until(watch, position) > position


async def test_without_readers_the_log_is_not_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    read = engine.reads.feed

    async def counted(*arguments: object, **more: object) -> object:
        looked.append(arguments)
        return await read(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.reads, "feed", counted)
    monkeypatch.setattr(feeds, "IDLE_SECONDS", 0.001)
    async with reading(engine) as feed:
        await asyncio.sleep(0.05)
        assert not looked
        watch = await feed.watch(feeds.EVERYTHING)
        await engine.create(NewJob(type="t"))
        assert await watch.wait(Clock(), 30)
        feed.leave(watch)
        await asyncio.sleep(0.05)
        until_here = len(looked)
        await asyncio.sleep(0.05)
        assert len(looked) == until_here
        again = await feed.watch(feeds.EVERYTHING)
        await engine.create(NewJob(type="t"))
        assert await again.wait(Clock(), 30)


async def test_a_failed_read_of_the_log_is_retried(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, failures = engine.reads.feed, iter([OSError("gone"), OSError("gone")])

    async def flaky(*arguments: object, **more: object) -> object:
        for failure in failures:
            raise failure
        return await read(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.reads, "feed", flaky)
    async with reading(engine) as feed:
        watch = await feed.watch(feeds.EVERYTHING)
        await engine.create(NewJob(type="t"))
        assert await watch.wait(Clock(), 30)
    assert [record.message for record in caplog.records if "cannot read" in record.message] == [
        "cannot read the event log, retrying: gone"
    ]


async def test_the_event_buffer_is_bounded_by_the_size_of_events(engine: Engine, clock: MovableClock) -> None:
    await engine.create(NewJob(type="t"))
    [event], _ = await engine.reads.feed()
    buffer = EventBuffer(START)
    for number in range(30_000):
        line = BufferedEvent(event)
        line.position, line.weight = (number + 1, "", 0), 1 if number % 2 else 5
        buffer.add([line], line.position)
    kept = buffer.after(START)
    assert 1000 < len(kept) < 5000
    assert buffer.begin == (kept[0].position[0] - 1, "", 0)
    assert buffer.end == kept[-1].position == (30_000, "", 0)
    assert buffer.holds(buffer.begin)
    assert not buffer.holds((buffer.begin[0] - 1, "", 0))


def test_a_cursor_without_a_job_skips_no_event() -> None:
    low, middle, high = (f"{digit}0000000-0000-7000-8000-000000000000" for digit in "05f")
    assert feeds.before_all_of(Cursor(7, middle, 1)) < (7, low, 1), "the rest of a transaction comes behind it"
    assert (7, high, 9) < feeds.after_all_of(Cursor(7, middle, 1)) < (8, low, 1)


@pytest.mark.postgres
async def test_two_transitions_of_a_job_are_in_order_even_if_the_later_transaction_is_older(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is ordered by transactions, but the events of one job never stand the other way round."""
    monkeypatch.setattr(feeds, "PAGE", 1)
    async with serving(fresh_postgres_url) as served:
        engine, worker = served.engine, (await served.engine.workers.register(name="w")).id
        job = await engine.create(NewJob(type="t"))
        begun, go = asyncio.Event(), asyncio.Event()

        async def wish(tx: Tx) -> None:
            await queues.pause(tx, "elsewhere", tenant="default", by=None)  # from now on it has its place in the log
            begun.set()
            await go.wait()
            await cancel(tx, engine.ctx, job.id, actor=Actor.CLIENT)

        async with watching(served, f"/jobs/{job.id}/events") as reader:
            assert (await reader.next()).data["verb"] == "create"
            older = asyncio.create_task(engine.store.write(wish))
            await begun.wait()
            await engine.claim(worker, types=["t"])
            go.set()
            await older
            assert [(await reader.next()).data["verb"] for _ in range(2)] == ["claim", "cancel"]
        log = [(event.seq, event.verb) for event in (await engine.reads.feed())[0] if event.job_id == job.id]
        assert log == [(1, "create"), (2, "claim"), (3, "cancel")]


async def test_many_reconnecting_readers_use_a_bounded_number_of_connections(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F39: a storm of readers who are far behind."""
    jobs = await served.engine.create_many([NewJob(type="t") for _ in range(20)])
    at_once, most = 0, 0
    history = served.engine.reads.history

    async def counted(*arguments: object, **more: object) -> object:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            return await history(*arguments, **more)  # type: ignore[arg-type]
        finally:
            at_once -= 1

    monkeypatch.setattr(served.engine.reads, "history", counted)

    async def first(job_id: str) -> int:
        async with watching(served, f"/jobs/{job_id}/events") as reader:
            return (await reader.next()).data["seq"]

    assert await asyncio.gather(*(first(job.id) for job in jobs)) == [1] * 20
    assert 1 <= most <= feeds.CONCURRENT_PAGES


async def test_each_requested_job_is_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = await engine.create_many([NewJob(type=f"t{number}", queue="q") for number in range(3)])
    asked: list[int] = []
    read = engine.store.read

    async def counted(work: object) -> object:
        found = await read(work)  # type: ignore[arg-type]
        asked.append(len(found))  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(engine.store, "read", counted)
    feed = EventFeed(engine, Clock())
    for wanted in (jobs[:1], jobs[:2], jobs[:2]):
        about = await feed.about([job.id for job in wanted])
        assert [(about[job.id].type, about[job.id].queue) for job in wanted] == [("t0", "q"), ("t1", "q")][
            : len(wanted)
        ]
    assert asked == [1, 1]
    assert await feed.about([UNKNOWN_ID]) == {}, "a job that was pruned"


async def test_a_database_that_is_replaced_while_its_log_is_checked_is_checked_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, checks = EventFeed(engine, Clock()), 0
    extent = engine.reads.log_extent

    async def replaced_meanwhile() -> Extent:
        nonlocal checks
        checks += 1
        found = await extent()
        if checks == 1:
            announce(engine)
        if checks == 2:
            raise StoreError("no answer")
        return found

    def announce(engine: Engine) -> None:
        for told in engine.store.identity.on_change:
            told()

    monkeypatch.setattr(engine.reads, "log_extent", replaced_meanwhile)
    announce(engine)
    for _ in range(4):
        await feed._poll()
    assert checks == 3, "once more for the second change, and again because that check failed"
