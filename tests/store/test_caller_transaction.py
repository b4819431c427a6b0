"""Creating a job inside the caller's own transaction: it commits and rolls back with the caller's rows."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import psycopg
import psycopg.rows
import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import Invalid, KeyReused, NotFound
from holdfast.ids import Ids
from holdfast.lifecycle import State
from holdfast.model import Job, NewJob
from holdfast.model.hint import Hint
from holdfast.store import Tx, open_store
from holdfast.store.migrate import sqlite_path
from holdfast.store.queries import Query
from holdfast.store.render import POSTGRES
from tests.engine.hooking import effect
from tests.worker.in_process import until

ORDERS = "CREATE TABLE orders (id integer)"
ORDER = "INSERT INTO orders VALUES (1)"


class Caller(NamedTuple):
    """A caller with its own connection and its own table in the same database."""

    connection: Any
    run: Callable[[str], Awaitable[Any]]
    close: Callable[[], Awaitable[Any]]


async def with_asyncpg(url: str) -> Caller:
    connection = await asyncpg.connect(url)
    return Caller(connection, connection.execute, connection.close)


async def with_psycopg(url: str, **options: Any) -> Caller:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, **options)
    return Caller(connection, connection.execute, connection.close)


async def with_psycopg_dicts(url: str) -> Caller:
    return await with_psycopg(url, row_factory=psycopg.rows.dict_row)


def in_sync(connection: Any) -> Caller:
    async def run(sql: str) -> None:
        connection.execute(sql)

    async def close() -> None:
        connection.close()

    return Caller(connection, run, close)


async def with_sync_psycopg(url: str) -> Caller:
    return in_sync(psycopg.connect(url, autocommit=True))


async def with_sqlite(url: str) -> Caller:
    return in_sync(sqlite3.connect(sqlite_path(url), isolation_level=None))


async def with_sqlite_rows(url: str) -> Caller:
    caller = await with_sqlite(url)
    caller.connection.row_factory = sqlite3.Row
    return caller


async def with_sqlite_dicts(url: str) -> Caller:
    caller = await with_sqlite(url)
    caller.connection.row_factory = lambda cursor, row: dict(zip([c[0] for c in cursor.description], row, strict=True))
    return caller


CALLERS = [
    *(
        pytest.param((connect, "fresh_postgres_url"), marks=pytest.mark.postgres, id=connect.__name__)
        for connect in (with_asyncpg, with_psycopg, with_psycopg_dicts, with_sync_psycopg)
    ),
    *(
        pytest.param((connect, "fresh_sqlite_url"), marks=pytest.mark.sqlite, id=connect.__name__)
        for connect in (with_sqlite, with_sqlite_rows, with_sqlite_dicts)
    ),
]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Engine]:
    engine = Engine(await open_store(url, Clock(), Ids()))
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(params=CALLERS)
def connect_with(request: pytest.FixtureRequest) -> tuple[Callable[[str], Awaitable[Caller]], str]:
    connect, fixture = request.param
    return connect, str(request.getfixturevalue(fixture))


@pytest.fixture
async def engine_and_caller(
    connect_with: tuple[Callable[[str], Awaitable[Caller]], str],
) -> AsyncIterator[tuple[Engine, Caller]]:
    connect, url = connect_with
    async with opened(url) as engine:
        caller = await connect(url)
        await caller.run(ORDERS)
        yield engine, caller
        await caller.close()


async def test_a_job_appears_when_the_caller_commits(engine_and_caller: tuple[Engine, Caller]) -> None:
    engine, caller = engine_and_caller
    await caller.run("BEGIN")
    await caller.run(ORDER)
    created = await engine.create(NewJob(type="bill", payload={"order": 1}, tags=["a"]), connection=caller.connection)
    with pytest.raises(NotFound):
        await engine.reads.get(created.id)
    await caller.run("COMMIT")
    job = await engine.reads.get(created.id)
    assert (job.state, job.payload, job.tags) == (State.QUEUED, {"order": 1}, ["a"])
    assert [event.verb for event in await engine.reads.history(job.id)] == ["create"]


async def test_wakers_get_hints_for_a_job_in_a_callers_transaction(engine_and_caller: tuple[Engine, Caller]) -> None:
    """On SQLite the file shows the commit. On PostgreSQL two hints are sent some time later."""
    engine, caller = engine_and_caller
    heard: list[str | None] = []

    def hear(hints: Sequence[Hint]) -> None:
        asyncio.get_running_loop()  # wakers run in the event loop, whatever thread the job comes from
        heard.extend(hint.job for hint in hints)

    engine.ctx.wakers.append(hear)
    await caller.run("BEGIN")
    created = await engine.create(NewJob(type="bill"), connection=caller.connection)
    assert heard == []  # it would be for nothing
    await caller.run("COMMIT")
    if engine.store.dialect == POSTGRES:
        await until(lambda: len(heard) == 2)
    assert set(heard) <= {created.id}


@pytest.mark.parametrize("write", ["run", "all"])
async def test_writes_of_a_hook_join_the_callers_transaction(
    engine_and_caller: tuple[Engine, Caller], write: str
) -> None:
    engine, caller = engine_and_caller
    add = Query("add", "INSERT INTO holdfast_secrets (name, value) VALUES (:job, 'a')")
    read = Query("read", "SELECT name FROM holdfast_secrets WHERE value = 'a'")

    @effect(engine, "create")
    async def follow(tx: Tx, _verb: str, job: Job) -> None:
        await getattr(tx, write)(add, job=job.id)

    await caller.run("BEGIN")
    made = await engine.create_many([NewJob(type="n"), NewJob(type="n")], connection=caller.connection)
    assert await engine.store.read(lambda tx: tx.all(read)) == []
    await caller.run("COMMIT")
    assert {row["name"] for row in await engine.store.read(lambda tx: tx.all(read))} == {one.id for one in made}


async def test_a_job_is_gone_when_the_caller_rolls_back(engine_and_caller: tuple[Engine, Caller]) -> None:
    """Also cached lanes and policies: a later create must not use rows that were rolled back."""
    engine, caller = engine_and_caller
    await caller.run("BEGIN")
    created = await engine.create(NewJob(type="bill", queue="new queue"), connection=caller.connection)
    await caller.run("ROLLBACK")
    with pytest.raises(NotFound):
        await engine.reads.get(created.id)
    assert await engine.reads.history(created.id) == []

    again = await engine.create(NewJob(type="bill", queue="new queue"))
    worker = (await engine.workers.register(name="w")).id
    assert [lease.id for lease in await engine.claim(worker, limit=10)] == [again.id]


async def test_an_idempotency_key_applies_inside_a_callers_transaction(
    engine_and_caller: tuple[Engine, Caller],
) -> None:
    """C-18, C-19, S2."""
    engine, caller = engine_and_caller
    job = NewJob(type="bill", idempotency_key="order-1")
    first = await engine.create(job)
    await caller.run("BEGIN")
    repeated = await engine.create(job, connection=caller.connection)
    fresh = NewJob(type="bill", idempotency_key="order-2")
    twice = [await engine.create(fresh, connection=caller.connection) for _ in range(2)]
    with pytest.raises(KeyReused):
        await engine.create(NewJob(type="other", idempotency_key="order-1"), connection=caller.connection)
    await caller.run("COMMIT")
    assert (repeated.id, repeated.existed) == (first.id, True)
    assert [(one.id, one.existed) for one in twice] == [(twice[0].id, False), (twice[0].id, True)]
    assert sum(number for *_, number in await engine.reads.counts()) == 2


async def test_many_jobs_at_once_join_the_callers_transaction(engine_and_caller: tuple[Engine, Caller]) -> None:
    engine, caller = engine_and_caller
    await caller.run("BEGIN")
    created = await engine.create_many(
        [NewJob(type="bill", priority=n, delay_seconds=n) for n in range(20)], connection=caller.connection
    )
    assert await engine.reads.counts() == []
    await caller.run("COMMIT")
    assert sum(number for *_, number in await engine.reads.counts()) == len({one.id for one in created}) == 20


async def test_a_bad_request_leaves_the_callers_transaction_usable(engine_and_caller: tuple[Engine, Caller]) -> None:
    engine, caller = engine_and_caller
    await caller.run("BEGIN")
    await caller.run(ORDER)
    with pytest.raises(Invalid):
        await engine.create(NewJob(type="bill", payload={"x": float("nan")}), connection=caller.connection)
    created = await engine.create(NewJob(type="bill"), connection=caller.connection)
    await caller.run("COMMIT")
    assert (await engine.reads.get(created.id)).state is State.QUEUED


async def test_a_connection_to_the_wrong_database_is_a_typed_error(
    fresh_postgres_url: str, fresh_sqlite_url: str, postgres: Any
) -> None:
    sqlite = sqlite3.connect(":memory:")
    for url, connection in ((fresh_postgres_url, sqlite), (fresh_sqlite_url, postgres)):
        async with opened(url) as engine:
            with pytest.raises(Invalid, match="the jobs are in") as caught:
                await engine.create(NewJob(type="bill"), connection=connection)
            assert caught.value.code == "invalid_connection"
            assert await engine.reads.counts() == []
    sqlite.close()


async def test_an_object_that_is_no_connection_is_a_typed_error(store_url: str) -> None:
    async with opened(store_url) as engine:
        with pytest.raises(Invalid) as caught:
            await engine.create(NewJob(type="bill"), connection=object())
        assert caught.value.code == "invalid_connection"
        assert await engine.reads.counts() == []


async def test_a_failed_batch_in_a_callers_transaction_writes_no_job_when_the_caller_commits(
    engine_and_caller: tuple[Engine, Caller],
) -> None:
    engine, caller = engine_and_caller
    await engine.create(NewJob(type="bill", idempotency_key="taken"))
    await caller.run("BEGIN")
    await caller.run(ORDER)
    with pytest.raises(KeyReused):
        await engine.create_many(
            [NewJob(type="new"), NewJob(type="other", idempotency_key="taken")], connection=caller.connection
        )
    await caller.run("COMMIT")
    assert [(kind, number) for _, kind, _, number in await engine.reads.counts()] == [("bill", 1)]


async def test_a_connection_without_a_transaction_creates_the_job_atomically(
    engine_and_caller: tuple[Engine, Caller],
) -> None:
    engine, caller = engine_and_caller
    created = await engine.create(NewJob(type="bill"), connection=caller.connection)
    assert (await engine.reads.get(created.id)).state is State.QUEUED
