"""The log of events across jobs: the moves of a job in order, also after a dump was loaded into another server."""

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from holdfast.assembly.engine import open_engine
from holdfast.clock import Clock
from holdfast.engine import Engine, Retention
from holdfast.engine.cancel import cancel
from holdfast.engine.maintenance.event_log import rebase_within
from holdfast.engine.reads.read import Cursor
from holdfast.errors import Locked
from holdfast.ids import Ids
from holdfast.maintenance.maintainer import Maintainer
from holdfast.model import NewJob
from holdfast.settings import Settings
from holdfast.store import Tx, open_store
from holdfast.store.identity import Identity, IdentityTracker
from holdfast.store.migrate import migrate
from holdfast.store.queries import Query
from tests.engine.log import settled
from tests.engine.steps import run
from tests.servers.postgres import PostgresServer, find_binaries, running
from tests.servers.proxy import Proxy
from tests.webhooks.steps import sent_to, subscribe

BEGUN = Query("begun", "SELECT pg_current_xact_id()::text AS xid")
AHEAD = Query("ahead", "UPDATE holdfast_event_log SET base = base - 100000 RETURNING base")
BURN = "DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"

FOR_EVER = Retention(succeeded=None, dead=None, canceled=None, rejected=None)


@pytest.fixture
async def postgres_engine(fresh_postgres_url: str) -> AsyncIterator[Engine]:
    clock, ids = Clock(), Ids()
    engine = Engine(await open_store(fresh_postgres_url, clock, ids), clock=clock, ids=ids)
    yield engine
    await engine.close()


async def seqs(engine: Engine, job_id: str) -> list[int]:
    events, _ = await engine.reads.feed(Cursor(), limit=1000)
    return [event.seq for event in events if event.job_id == job_id]


@asynccontextmanager
async def open_transaction(engine: Engine) -> AsyncIterator[None]:
    """Begun, and open as long as the caller is in here."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def work(tx: Tx) -> None:
        await tx.one(BEGUN)
        begun.set()
        await over.wait()

    lasting = asyncio.create_task(engine.store.write(work))
    await begun.wait()
    yield
    over.set()
    await lasting


@pytest.mark.postgres
async def test_events_of_a_job_are_read_in_order_although_the_later_transaction_began_first(
    postgres_engine: Engine,
) -> None:
    engine = postgres_engine
    worker = (await engine.workers.register(name="w")).id
    webhook = await subscribe(engine)
    await engine.webhooks.fan_out()
    job = await engine.create(NewJob(type="t"))

    async def later_move(tx: Tx) -> None:
        await tx.one(BEGUN)  # its number is lower than that of the claim
        await engine.claim(worker)
        await cancel(tx, engine.ctx, job.id)

    await engine.store.write(later_move)
    await settled(engine)

    assert await seqs(engine, job.id) == [1, 2, 3]
    await engine.webhooks.fan_out()
    told = [delivery.seq for delivery in await sent_to(engine, webhook)]
    assert told == sorted(told)


@pytest.mark.postgres
async def test_a_later_event_is_not_read_before_an_earlier_one_of_an_open_transaction(
    postgres_engine: Engine,
) -> None:
    engine = postgres_engine
    worker = (await engine.workers.register(name="w")).id
    job = await engine.create(NewJob(type="t"))
    first, claimed = asyncio.Event(), asyncio.Event()

    async def later_move(tx: Tx) -> None:
        await tx.one(BEGUN)
        first.set()
        await claimed.wait()
        await cancel(tx, engine.ctx, job.id)

    moving = asyncio.create_task(engine.store.write(later_move))
    await first.wait()
    async with open_transaction(engine):
        await engine.claim(worker)
        claimed.set()
        await moving
        assert await seqs(engine, job.id) == [1], "the cancel came before the claim"
    await settled(engine)
    assert await seqs(engine, job.id) == [1, 2, 3]


# -- a dump, loaded into another server ------------------------------------------------------------------------


def load_dump(source: str, target: PostgresServer) -> str:
    """The database of `source` as a database of the other server; its URL."""
    programs = find_binaries()
    dump = subprocess.run([programs / "pg_dump", source], capture_output=True, check=True)
    subprocess.run([programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", target.dsn()], input=dump.stdout, check=True)
    return target.dsn()


@pytest.mark.postgres
async def test_webhooks_and_streams_continue_after_a_dump_was_loaded_into_a_new_server(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute(BURN)
    await connection.close()
    engine = await open_engine(Settings(database_url=fresh_postgres_url))
    webhook = await subscribe(engine)
    await engine.webhooks.fan_out()
    worker = (await engine.workers.register(name="w")).id
    old = await run(engine, worker)
    await settled(engine)
    await engine.webhooks.fan_out()
    place = await engine.reads.feed_end()
    await engine.close()

    with running() as target:
        with caplog.at_level(logging.WARNING):
            engine = await open_engine(Settings(database_url=load_dump(fresh_postgres_url, target)))
        try:
            assert "the log was rebased" in caplog.text
            new = await engine.create(NewJob(type="new"))
            await engine.complete(worker, old.id, old.token)
            await settled(engine)
            await engine.webhooks.fan_out()

            told = {(each.job_id, each.seq) for each in await sent_to(engine, webhook)}
            assert told == {(old.id, 1), (old.id, 2), (old.id, 3), (new.id, 1)}
            events, _ = await engine.reads.feed(place)
            assert {(each.job_id, each.seq) for each in events if each.verb != "worker"} == {(old.id, 3), (new.id, 1)}
        finally:
            await engine.close()


@pytest.mark.postgres
async def test_a_running_process_writes_readable_events_after_a_switch_to_a_loaded_dump() -> None:
    """Its first event on the new server, long before the next round of maintenance."""
    with running() as source, running() as target:
        await migrate(source.dsn())
        connection = await asyncpg.connect(source.dsn())
        await connection.execute(BURN)
        await connection.close()
        async with Proxy.to(source.dsn()) as proxy:
            engine = await open_engine(Settings(database_url=proxy.url))
            try:
                webhook = await subscribe(engine)
                await engine.webhooks.fan_out()
                await engine.create(NewJob(type="old"))
                await settled(engine)
                place = await engine.reads.feed_end()

                load_dump(source.dsn(), target)
                await proxy.lead_to(target.dsn())
                made = await asyncio.gather(*(engine.create(NewJob(type="new")) for _ in range(5)))
                await settled(engine)
                await engine.webhooks.fan_out()

                new = {job.id for job in made}
                events, _ = await engine.reads.feed(place)
                assert {event.job_id for event in events} == new
                assert new <= {each.job_id for each in await sent_to(engine, webhook)}
            finally:
                await engine.close()


@pytest.mark.postgres
async def test_maintenance_detects_that_the_database_server_changed(
    postgres_engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """As a process sees it that was running all the time."""
    engine = postgres_engine
    await engine.create(NewJob(type="t"))
    await engine.store.write(lambda tx: tx.one(AHEAD))
    end = await engine.reads.feed_end()
    maintenance = Maintainer(engine, engine.ctx.clock, engine.ctx.ids, every=10, retention=FOR_EVER)
    with caplog.at_level(logging.WARNING):
        await maintenance.sweep()
    assert "the log was rebased" in caplog.text
    assert (end.pos, end.seq) == (0, 0)
    await engine.create(NewJob(type="t"))
    await settled(engine)
    assert len((await engine.reads.feed(Cursor()))[0]) == 2


@pytest.mark.postgres
async def test_writers_wait_only_once_for_the_event_log_lock_during_a_long_transaction(
    postgres_engine: Engine,
) -> None:
    engine = postgres_engine
    await engine.create(NewJob(type="t"))
    await engine.store.write(lambda tx: tx.one(AHEAD))
    tries: list[str] = []
    engine.store.on_query = lambda query, _, __: tries.append(query.name)
    written, over = asyncio.Event(), asyncio.Event()

    async def long_transaction(tx: Tx) -> None:
        await tx.one(Query("read_base", "SELECT base FROM holdfast_event_log"))
        written.set()
        await over.wait()

    lasting = asyncio.create_task(engine.store.write(long_transaction))
    await written.wait()
    with pytest.raises(Locked):
        await engine.maintenance.rebase_event_log()
    over.set()
    await lasting
    assert tries.count("lock_event_log") == 1
    assert await engine.maintenance.rebase_event_log()


@pytest.mark.postgres
async def test_processes_that_detect_a_server_change_concurrently_do_not_deadlock(
    postgres_engine: Engine,
) -> None:
    engine = postgres_engine
    await engine.create(NewJob(type="t"))
    await engine.store.write(lambda tx: tx.one(AHEAD))
    done: list[str] = []
    engine.store.on_query = lambda query, _, __: done.append(query.name)
    all_have_begun = asyncio.Barrier(3)

    async def work(tx: Tx) -> None:
        await all_have_begun.wait()
        await rebase_within(tx)

    await asyncio.gather(*(engine.store.write(work, retry_locked=False) for _ in range(3)))
    assert done.count("rebase") == 1


async def test_preparing_a_changed_database_is_retried_with_each_new_connection() -> None:
    """As when a long transaction keeps the lock of the log: meanwhile the connections are used."""
    identity, tried, answers = IdentityTracker(), list[str](), iter([False, True])

    async def prepare(connection: str) -> bool:
        tried.append(connection)
        return next(answers)

    identity.prepare = prepare
    first, second = (Identity((name,), (), name) for name in ("before", "after"))
    await identity.verify(first, "the first")
    assert tried == []
    for connection in ("a", "b", "c"):
        await identity.verify(second, connection)
    assert tried == ["a", "b"]
