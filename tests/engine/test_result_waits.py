"""Waiting for results: by signals from whatever ended the job, in this process or another; polling is the fallback."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from holdfast import App
from holdfast.assembly.engine import AppParts, OpenEngine, open_all
from holdfast.clock import MovableClock
from holdfast.engine import Engine, Retention, result_waits
from holdfast.engine.result_waits import ResultWaits
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.model.reports import Complete
from holdfast.settings import Settings
from holdfast.store import PostgresStore, listen_connection, open_store, result_signals
from holdfast.store.migrate import sqlite_path
from holdfast.store.presence import open_presence
from holdfast.store.result_signals import ENDED, PostgresResultSignals, decode_ends, encode_ends
from holdfast.store.wake_sockets import WakeDirectory
from tests.engine.steps import UNKNOWN_ID
from tests.worker.in_process import until

PATIENCE = 60.0
HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1"


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only signals are left, and the poll when they begin."""
    monkeypatch.setattr(result_waits, "FIRST_SECONDS", 3600.0)
    monkeypatch.setattr(result_waits, "POLL_SECONDS", 3600.0)


@pytest.fixture
def fast_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_waits, "POLL_SECONDS", 0.02)


class Process:
    """Stands for a process: an engine as production opens it, and the statements that it has run."""

    def __init__(self, opened: OpenEngine) -> None:
        self.opened, self.engine, self.statements = opened, opened.engine, Counter[str]()
        self.engine.store.on_query = lambda query, _seconds, _error: self.statements.update([query.name])

    @property
    def results(self) -> ResultWaits:
        return self.engine.results

    @property
    def waiting(self) -> int:
        return len(self.results._waiting)

    async def listening(self) -> None:
        await until(lambda: self.results.signals is not None and self.results.signals.listening)

    async def all_wait(self, jobs: int) -> None:
        """So many jobs are waited for, and were not finished when they were first read."""
        reads = self.results._reads
        await until(lambda: self.waiting == jobs and reads._sending is None and not (reads._waiting or reads._lone))

    async def waits(self, job_id: str) -> "asyncio.Task[Job]":
        """A caller that waits, with everything set up to receive signals."""
        assert self.results.signals is not None
        is_first, polls = not self.results.signals.listening, self.statements["ended_jobs"]
        task = asyncio.create_task(self.results.wait(job_id, PATIENCE))
        await self.listening()
        if is_first:
            await until(lambda: self.statements["ended_jobs"] > polls)
        return task


Open = Callable[..., Awaitable[Process]]


@pytest.fixture
async def process(store_url: str) -> AsyncIterator[Open]:
    opened: list[OpenEngine] = []

    async def open_one(**parts: Any) -> Process:
        opened.append(await open_all(Settings(database_url=store_url), AppParts(**parts)))
        return Process(opened[-1])

    yield open_one
    for each in opened:
        await each.close()


async def finish(engine: Engine, number: int = 1) -> None:
    worker = (await engine.workers.register()).id
    leases = await engine.claim(worker, limit=number)
    await engine.complete_many(worker, [Complete(lease.id, lease.token, {"n": 1}) for lease in leases])


# -- who is told ------------------------------------------------------------------------------------------------------


async def complete(engine: Engine, job_id: str, clock: MovableClock) -> None:
    await finish(engine)


async def cancel(engine: Engine, job_id: str, clock: MovableClock) -> None:
    await engine.cancel(job_id)


async def fail(engine: Engine, job_id: str, clock: MovableClock) -> None:
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "E_BROKEN", permanent=True)


async def reject(engine: Engine, job_id: str, clock: MovableClock) -> None:
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker)
    await engine.reject(worker, lease.id, lease.token, "E_REFUSED")


async def reap(engine: Engine, job_id: str, clock: MovableClock) -> None:
    await engine.claim((await engine.workers.register()).id)
    for _ in range(200):
        clock.advance(10)
        if await engine.maintenance.reap():
            return
    pytest.fail("nothing was reaped")


WAYS = {
    complete: State.SUCCEEDED,
    cancel: State.CANCELED,
    fail: State.DEAD,
    reject: State.REJECTED,
    reap: State.DEAD,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("where", ["another process", "the same process"])
async def test_every_way_to_end_a_job_wakes_the_caller_without_a_poll(
    process: Open, no_polls: None, way: Any, where: str
) -> None:
    clock = MovableClock()
    waiting = await process(clock=clock)
    other = await process(clock=clock) if where == "another process" else waiting
    job_id = (await other.engine.create(NewJob(type="echo", max_attempts=1))).id
    task = await waiting.waits(job_id)
    polls = waiting.statements["ended_jobs"]
    await way(other.engine, job_id, clock)
    assert (await task).state is WAYS[way]
    assert waiting.statements["ended_jobs"] == polls


async def test_the_first_wait_finds_a_job_that_ended_before_signals_could_arrive(
    process: Open, no_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, other = await process(), await process()
    job_id = (await other.engine.create(NewJob(type="echo"))).id
    assert waiting.results.signals is not None
    listen, may_listen = waiting.results.signals.listen, asyncio.Event()

    async def late(hear: Any) -> None:
        await may_listen.wait()
        await listen(hear)

    monkeypatch.setattr(waiting.results.signals, "listen", late)
    task = asyncio.create_task(waiting.results.wait(job_id, PATIENCE))
    await until(lambda: waiting.results._listening is not None)
    await finish(other.engine)
    may_listen.set()
    assert (await task).final


async def test_a_job_that_has_ended_already_costs_one_read_and_no_listener(process: Open) -> None:
    here, other = await process(), await process()
    job_id = (await other.engine.create(NewJob(type="echo"))).id
    await finish(other.engine)
    here.statements.clear()
    assert (await here.results.wait(job_id)).result == {"n": 1}
    assert here.statements == {"jobs_by_id": 1}
    assert here.results.signals is not None
    assert not here.results.signals.listening


async def test_callers_in_several_event_loops_are_told(store_url: str, no_polls: None) -> None:
    """Sync code waits in an event loop of its own."""
    async with App(database_url=store_url) as app:

        @app.job()
        async def echo() -> None: ...

        job = await echo.enqueue()
        tasks = [
            asyncio.create_task(job.result(PATIENCE)),
            asyncio.create_task(asyncio.to_thread(job.result_sync, PATIENCE)),
        ]
        engine = await app.engine()

        async def sync_engine() -> Engine:
            return await app.engine(declared=False)

        theirs = (await asyncio.to_thread(app.run_sync, sync_engine)).results
        for results in (engine.results, theirs):
            await until(lambda results=results: results.signals.listening and not results._poll_now)
        await finish(engine)
        assert await asyncio.gather(*tasks) == [{"n": 1}] * 2
        await asyncio.to_thread(app.close_sync)


# -- when signals are lost --------------------------------------------------------------------------------------------


@pytest.fixture
async def silent(store_url: str) -> AsyncIterator[Engine]:
    """An engine that sends no signals, as from another release, or SQL typed by hand."""
    engine = Engine(await open_store(store_url))
    yield engine
    await engine.close()


async def test_a_lost_signal_is_made_up_for_by_the_poll(process: Open, silent: Engine, fast_polls: None) -> None:
    waiting = await process()
    task = await waiting.waits((await silent.create(NewJob(type="echo"))).id)
    await finish(silent)
    assert (await task).state is State.SUCCEEDED


async def test_an_engine_without_signals_polls(store_url: str, silent: Engine) -> None:
    job_id = (await silent.create(NewJob(type="echo"))).id
    other = Engine(await open_store(store_url))
    task = asyncio.create_task(silent.results.wait(job_id, PATIENCE))
    await finish(other)
    assert (await task).final
    await other.close()


async def test_behind_a_pooler_results_are_polled_for_with_growing_pauses(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pooled(_: object) -> bool:
        return True

    monkeypatch.setattr(listen_connection, "is_pooled", pooled)
    opened = [await open_all(Settings(database_url=fresh_postgres_url), AppParts()) for _ in range(2)]
    waiting, other = Process(opened[0]), Process(opened[1])
    job_id = (await other.engine.create(NewJob(type="echo"))).id
    began = waiting.engine.clock.monotonic()
    task = asyncio.create_task(waiting.results.wait(job_id, PATIENCE))
    await until(lambda: waiting.statements["ended_jobs"] >= 8)
    pauses = [result_waits.FIRST_SECONDS * result_waits.GROWTH**n for n in range(8)]
    assert waiting.engine.clock.monotonic() - began >= sum(pauses)
    assert waiting.results.signals is not None
    assert not waiting.results.signals.listening
    await finish(other.engine)
    assert (await task).final
    for each in opened:
        await each.close()


async def test_a_job_that_is_pruned_during_the_wait_raises_not_found(
    process: Open, silent: Engine, no_polls: None
) -> None:
    waiting = await process()
    task = await waiting.waits((await silent.create(NewJob(type="echo"))).id)
    await finish(silent)
    await silent.maintenance.prune(Retention(succeeded=0))
    waiting.results._hear(None)  # as after a reconnect
    with pytest.raises(NotFound) as error:
        await task
    assert error.value.code == "job_pruned"


async def test_a_listener_whose_connection_is_lost_reconnects_and_reads_what_it_missed(
    fresh_postgres_url: str, no_polls: None
) -> None:
    opened = [await open_all(Settings(database_url=fresh_postgres_url), AppParts()) for _ in range(2)]
    waiting, other = Process(opened[0]), Process(opened[1])
    task = await waiting.waits((await other.engine.create(NewJob(type="echo"))).id)
    operator = await asyncpg.connect(fresh_postgres_url)
    [listener] = await operator.fetch(HELD, result_signals.LOCK)
    await operator.execute("SELECT pg_terminate_backend($1)", listener["pid"])
    await finish(other.engine)
    assert (await task).final
    await operator.close()
    for each in opened:
        await each.close()


async def test_a_sender_that_hangs_while_it_tests_the_lock_blocks_no_listener(
    fresh_postgres_url: str, fast_polls: None
) -> None:
    """The results are then polled for; hints and crash detection on the same connection go on."""
    opened = await open_all(Settings(database_url=fresh_postgres_url), AppParts())
    signals = opened.engine.results.signals
    presence = await open_presence(fresh_postgres_url)
    await presence.share(signals)
    hanging = await asyncpg.connect(fresh_postgres_url)
    await hanging.execute(f"BEGIN; SELECT pg_advisory_xact_lock({result_signals.LOCK})")
    task = asyncio.create_task(opened.engine.results.wait((await opened.engine.create(NewJob(type="echo"))).id))
    silent = Engine(await open_store(fresh_postgres_url))
    await until(lambda: opened.engine.results._listening is not None and opened.engine.results._listening.done())
    assert signals is not None
    assert not signals.listening
    assert presence.instance.endswith(".live")
    await finish(silent)
    assert (await task).final
    await hanging.execute("ROLLBACK")
    last = await Process(opened).waits((await opened.engine.create(NewJob(type="echo"))).id)  # the lock is free again
    await finish(opened.engine)
    assert (await last).final
    for each in (hanging, silent, opened, presence):
        await each.close()


@pytest.mark.parametrize("payload", ["", "not ours", "ü" * 9])
async def test_a_foreign_payload_on_the_channel_does_no_harm(fresh_postgres_url: str, payload: str) -> None:
    opened = await open_all(Settings(database_url=fresh_postgres_url), AppParts())
    waiting = Process(opened)
    task = await waiting.waits((await opened.engine.create(NewJob(type="echo"))).id)
    operator = await asyncpg.connect(fresh_postgres_url)
    await operator.execute("SELECT pg_notify($1, $2)", ENDED, payload)
    await finish(opened.engine)
    assert (await task).final
    await operator.close()
    await opened.close()


# -- what it costs ----------------------------------------------------------------------------------------------------


async def test_ten_thousand_waiting_callers_cost_one_statement_a_second(
    process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, other = await process(), await process()
    poll, begun = waiting.results._poll, list[float]()

    async def timed() -> set[str]:
        begun.append(waiting.engine.clock.monotonic())
        return await poll()

    monkeypatch.setattr(waiting.results, "_poll", timed)
    made = [
        one.id for _ in range(10) for one in await other.engine.create_many([NewJob(type="echo") for _ in range(1000)])
    ]
    tasks = [asyncio.create_task(waiting.results.wait(job_id)) for job_id in made]
    await waiting.all_wait(len(made))
    await waiting.listening()
    known = len(begun)
    await until(lambda: len(begun) >= known + 2)  # one when signals begin to arrive, and one more
    before, known = waiting.statements.copy(), len(begun) - 1
    await until(lambda: len(begun) >= known + 4)
    assert set(waiting.statements - before) == {"ended_jobs"}
    assert all(later - earlier >= result_waits.POLL_SECONDS for earlier, later in pairwise(begun[known:]))
    await finish(other.engine, 1000)
    await until(lambda: sum(task.done() for task in tasks) == 1000)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert waiting.waiting == 0


async def test_the_event_loops_of_a_process_together_poll_as_often_as_one(
    process: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await process(), await process()
    tasks = [await each.waits((await each.engine.create(NewJob(type="echo"))).id) for each in (first, second)]
    monkeypatch.setattr(result_waits, "POLL_SECONDS", 1000.0)
    assert first.results._until_poll() > 1000
    second.engine.results._fail(StoreUnavailable("enough"))
    await asyncio.wait(tasks[1:])
    await second.opened.close()
    assert first.results._until_poll() <= 1000
    await finish(first.engine, 2)
    assert (await tasks[0]).final


async def test_jobs_that_end_together_are_read_together(process: Open, no_polls: None) -> None:
    waiting, other = await process(), await process()
    made = [one.id for one in await other.engine.create_many([NewJob(type="echo") for _ in range(300)])]
    tasks = [await waiting.waits(job_id) for job_id in made[:1]]
    tasks += [asyncio.create_task(waiting.results.wait(job_id, PATIENCE)) for job_id in made for _ in range(3)]
    await waiting.all_wait(300)
    waiting.statements.clear()
    await finish(other.engine, 300)
    assert all(job.final for job in await asyncio.gather(*tasks))
    assert waiting.statements == {"jobs_by_id": 1}


async def test_nothing_is_sent_while_nobody_waits(fresh_postgres_url: str) -> None:
    """One statement a second tests whether somebody waits; the announcement of a wait ends the silence at once."""
    opened = await open_all(Settings(database_url=fresh_postgres_url), AppParts())
    ending = Process(opened)
    signals = ending.results.signals
    assert isinstance(signals, PostgresResultSignals)
    listener = await asyncpg.connect(fresh_postgres_url)
    heard: list[str] = []
    await listener.add_listener(ENDED, lambda *said: heard.append(str(said[-1])))
    signals.sender._quiet_until = 0.0
    await ending.engine.create_many([NewJob(type="echo") for _ in range(50)])
    await finish(ending.engine)
    await signals.sender.flush()
    signals.sender._quiet_until += 3600  # the second is over when the test says so
    for _ in range(20):
        await finish(ending.engine)
    assert (ending.statements["notify_results"], heard) == (1, [])
    await listener.execute(f"SELECT pg_advisory_lock_shared({result_signals.LOCK})")
    await finish(ending.engine)
    assert ending.statements["notify_results"] == 1
    signals.sender.awaited("")
    await finish(ending.engine)
    await signals.sender.flush()
    await listener.fetchval("SELECT 1")
    assert (ending.statements["notify_results"], len(heard)) == (2, 1)
    await opened.close()
    await listener.close()


async def test_an_announcement_during_the_test_of_the_lock_is_not_forgotten(fresh_postgres_url: str) -> None:
    opened = await open_all(Settings(database_url=fresh_postgres_url), AppParts())
    signals = opened.engine.results.signals
    assert isinstance(signals, PostgresResultSignals)
    opened.engine.store.on_query = lambda *_: signals.sender.awaited(
        ""
    )  # after the statement, before its answer is used
    signals.ended([UNKNOWN_ID])
    await signals.sender.flush()
    assert signals.sender._quiet_until == 0.0
    await opened.close()


async def test_a_worker_process_hears_results_and_announcements_on_the_connection_that_it_has(
    fresh_postgres_url: str, no_polls: None
) -> None:
    opened = await open_all(Settings(database_url=fresh_postgres_url), AppParts())
    worker, signals = Process(opened), opened.engine.results.signals
    assert isinstance(signals, PostgresResultSignals)
    presence = await open_presence(fresh_postgres_url)
    await presence.share(signals)
    task = await worker.waits((await opened.engine.create(NewJob(type="echo"))).id)
    assert signals._own is None
    await until(lambda: signals.sender._announced)
    await finish(opened.engine)
    assert (await task).final
    second = await worker.waits((await opened.engine.create(NewJob(type="echo"))).id)
    await presence.close()
    worker.results._start()  # the next poll would do it
    await worker.listening()
    assert signals._own is not None
    await finish(opened.engine)
    assert (await second).final
    await opened.close()


def test_ends_of_ids_fill_as_few_payloads_as_possible() -> None:
    ends = [f"{number:08x}" for number in range(2500)]
    payloads = encode_ends(ends)
    assert len(payloads) == 3
    assert all(len(payload) < 8000 for payload in payloads)
    assert [end for payload in payloads for end in decode_ends(payload) or ()] == ends
    assert (encode_ends([]), decode_ends("")) == ([], None)


# -- the end of a wait ------------------------------------------------------------------------------------------------


async def test_a_wait_that_is_canceled_or_times_out_leaves_nothing(process: Open) -> None:
    here = await process()
    job_id = (await here.engine.create(NewJob(type="echo"))).id
    canceled = await here.waits(job_id)
    assert not (await here.results.wait(job_id, 0.05)).final
    assert not (await here.results.wait(job_id, 0)).final
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    assert (here.results._waiting, here.results._by_end) == ({}, {})


async def test_an_unknown_job_raises_not_found(process: Open) -> None:
    here = await process()
    for job_id in (UNKNOWN_ID, "no-uuid", ""):
        with pytest.raises(NotFound):
            await here.results.wait(job_id, PATIENCE)
    assert here.waiting == 0


async def test_after_the_last_wait_nothing_is_left_behind_and_the_next_one_listens_again(
    process: Open, store_url: str, no_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waits, "LINGER_SECONDS", 0.01)
    here = await process()
    for _ in range(2):
        task = await here.waits((await here.engine.create(NewJob(type="echo"))).id)
        await finish(here.engine)
        assert (await task).final
        assert here.results.signals is not None
        await until(lambda: not here.results.signals.listening and here.results._task.done())
        if isinstance(here.engine.store, PostgresStore):
            operator = await asyncpg.connect(store_url)
            assert await operator.fetch(HELD, result_signals.LOCK) == []
            await operator.close()
        else:
            assert not WakeDirectory(sqlite_path(store_url)).path.exists()


async def test_a_wait_goes_on_when_it_begins_while_the_listener_is_put_to_rest(
    process: Open, no_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waits, "LINGER_SECONDS", 0.01)
    here = await process()
    signals = here.results.signals
    assert signals is not None
    rest, resting, may_rest = signals.rest, asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        resting.set()
        await may_rest.wait()
        await rest()

    monkeypatch.setattr(signals, "rest", slowly)
    first = await here.waits((await here.engine.create(NewJob(type="echo"))).id)
    await finish(here.engine)
    assert (await first).final
    await resting.wait()
    second = asyncio.create_task(here.results.wait((await here.engine.create(NewJob(type="echo"))).id, PATIENCE))
    await until(lambda: here.waiting == 1)
    may_rest.set()
    await finish(here.engine)
    assert (await second).final
    monkeypatch.setattr(signals, "rest", rest)


async def test_closing_the_engine_ends_the_waits_with_an_error(store_url: str) -> None:
    opened = await open_all(Settings(database_url=store_url), AppParts())
    task = await Process(opened).waits((await opened.engine.create(NewJob(type="echo"))).id)
    await opened.close()
    with pytest.raises(StoreUnavailable) as error:
        await task
    assert error.value.code == "store_closed"


async def test_an_error_of_the_database_ends_the_waits(process: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    here = await process()
    task = await here.waits((await here.engine.create(NewJob(type="echo"))).id)

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(here.engine.store, "read", away)
    here.results._hear(None)
    with pytest.raises(StoreUnavailable, match="is away"):
        await task
