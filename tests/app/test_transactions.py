"""Enqueueing inside the caller's own transaction: the job commits and rolls back with the caller's rows."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import App
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.sdk.definitions import Definition
from holdfast.settings import Settings
from holdfast.store.migrate import migrate, sqlite_path
from tests.app.steps import drained, jobs_in
from tests.conftest import administer

ORDERS = "CREATE TABLE orders (id integer)"
ORDER = "INSERT INTO orders VALUES (1)"


class Caller(NamedTuple):
    """A caller with its own connection."""

    connection: Any
    run: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    roll_back: Callable[[], Awaitable[Any]]


def as_coroutine(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def answer(*args: Any) -> Any:
        return call(*args)

    return answer


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN")
    yield Caller(
        connection,
        connection.execute,
        lambda: connection.execute("COMMIT; BEGIN"),
        lambda: connection.execute("ROLLBACK; BEGIN"),
    )
    await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Caller]:
    connection = psycopg.connect(url)
    yield Caller(
        connection, as_coroutine(connection.execute), as_coroutine(connection.commit), as_coroutine(connection.rollback)
    )
    connection.close()


@asynccontextmanager
async def psycopg2_connection(url: str) -> AsyncIterator[Caller]:
    connection = psycopg2.connect(url)
    yield Caller(
        connection,
        as_coroutine(by_cursor(connection)),
        as_coroutine(connection.commit),
        as_coroutine(connection.rollback),
    )
    connection.close()


@asynccontextmanager
async def psycopg2_dicts(url: str) -> AsyncIterator[Caller]:
    """In autocommit mode, where the caller begins by hand; rows are dictionaries."""
    connection = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
    connection.autocommit = True
    run = by_cursor(connection)
    run("BEGIN")
    end = as_coroutine(lambda how: run(f"{how}; BEGIN"))
    yield Caller(connection, as_coroutine(run), lambda: end("COMMIT"), lambda: end("ROLLBACK"))
    connection.close()


def by_cursor(connection: Any) -> Callable[[str], Any]:
    def run(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    return run


@asynccontextmanager
async def django_connection(url: str, engine: str) -> AsyncIterator[Caller]:
    """As between the beginning and the end of `transaction.atomic()`."""
    connection = django_database(url, engine)
    connection.set_autocommit(False)
    run = as_coroutine(by_cursor(connection))
    yield Caller(connection, run, as_coroutine(connection.commit), as_coroutine(connection.rollback))
    connection.close()


def django_database(url: str, engine: str) -> Any:
    from django.db.utils import ConnectionHandler

    parts = urlsplit(url)
    where: dict[str, Any] = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "NAME": parts.path[1:]}
    if engine == "sqlite3":
        where = {"NAME": sqlite_path(url)}
    return ConnectionHandler({"default": {"ENGINE": f"django.db.backends.{engine}", **where}})["default"]


@pytest.fixture(autouse=True)
def django_in_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are coroutines; Django would refuse to be called from one."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()


@asynccontextmanager
async def psycopg_async_connection(url: str) -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(url)
    yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    await connection.close()


@asynccontextmanager
async def sqlite3_connection(url: str) -> AsyncIterator[Caller]:
    connection = sqlite3.connect(sqlite_path(url))
    yield Caller(
        connection, as_coroutine(connection.execute), as_coroutine(connection.commit), as_coroutine(connection.rollback)
    )
    connection.close()


@asynccontextmanager
async def sqlite3_autocommit(url: str) -> AsyncIterator[Caller]:
    connection = sqlite3.connect(sqlite_path(url), isolation_level=None)
    connection.execute("BEGIN")

    async def end(how: str) -> None:
        connection.execute(how)
        connection.execute("BEGIN")

    yield Caller(connection, as_coroutine(connection.execute), lambda: end("COMMIT"), lambda: end("ROLLBACK"))
    connection.close()


def of_sqlalchemy(driver: str, url: str) -> str:
    return url.replace("postgresql:", f"postgresql+{driver}:").replace("sqlite:", f"sqlite+{driver}:")


@asynccontextmanager
async def async_session(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    async with OwnSession(engine) as session:
        yield Caller(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)
    await engine.dispose()


class OwnSession(AsyncSession):
    """Apps and libraries derive from it."""


@asynccontextmanager
async def async_connection(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    async with engine.connect() as connection:
        assert isinstance(connection, AsyncConnection)
        yield Caller(connection, connection.exec_driver_sql, connection.commit, connection.rollback)
    await engine.dispose()


@asynccontextmanager
async def sync_session(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    with Session(engine) as session:
        execute = as_coroutine(lambda sql: session.execute(sqlalchemy.text(sql)))
        yield Caller(session, execute, as_coroutine(session.commit), as_coroutine(session.rollback))
    engine.dispose()


@asynccontextmanager
async def sync_connection(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    with engine.connect() as connection:
        yield Caller(
            connection,
            as_coroutine(connection.exec_driver_sql),
            as_coroutine(connection.commit),
            as_coroutine(connection.rollback),
        )
    engine.dispose()


@asynccontextmanager
async def scoped(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    execute = as_coroutine(lambda sql: session.execute(sqlalchemy.text(sql)))
    yield Caller(session, execute, as_coroutine(session.commit), as_coroutine(session.rollback))
    session.remove()
    engine.dispose()


@asynccontextmanager
async def async_scoped(url: str, driver: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(of_sqlalchemy(driver, url), poolclass=NullPool)
    session = async_scoped_session(lambda: AsyncSession(engine), lambda: "this test")  # type: ignore[arg-type]
    yield Caller(session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback)
    await session.remove()
    await engine.dispose()


@asynccontextmanager
async def aiosqlite_connection(url: str) -> AsyncIterator[Caller]:
    import aiosqlite

    async with aiosqlite.connect(sqlite_path(url)) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


def ways(store: str, *found: tuple[Callable[..., Any], str] | Callable[..., Any]) -> list[Any]:
    marks = getattr(pytest.mark, store)
    return [
        pytest.param((store, connect, driver), marks=marks, id=f"{connect.__name__} {' '.join(driver)}".strip())
        for connect, *driver in (one if isinstance(one, tuple) else (one,) for one in found)
    ]


SYNC = [
    *ways("postgres", psycopg_connection, (sync_session, "psycopg"), (sync_connection, "psycopg")),
    *ways("postgres", psycopg2_connection, psycopg2_dicts, (sync_session, "psycopg2")),
    *ways("postgres", (django_connection, "postgresql")),
    *ways("sqlite", (django_connection, "sqlite3")),
    *ways("sqlite", sqlite3_connection, sqlite3_autocommit, (sync_session, "pysqlite"), (scoped, "pysqlite")),
]
ASYNC = [
    *ways("postgres", asyncpg_connection, asyncpg_pool, psycopg_async_connection),
    *ways("postgres", (async_session, "asyncpg"), (async_connection, "asyncpg"), (async_scoped, "asyncpg")),
    *ways("postgres", (async_session, "psycopg")),
    *ways("sqlite", aiosqlite_connection, (async_session, "aiosqlite"), (async_connection, "aiosqlite")),
]


@pytest.fixture
def url(request: pytest.FixtureRequest, way: tuple[str, Any, list[str]]) -> str:
    return str(request.getfixturevalue(f"fresh_{way[0]}_url"))


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    await migrate(url)
    await add_orders(url)
    app = App(Settings(database_url=url))
    yield app
    app.close_sync()
    await app.close()


async def add_orders(url: str) -> None:
    """A table of the caller's own."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.execute(ORDERS)
    else:
        await administer(url, ORDERS)


@pytest.fixture
async def caller(app: App, way: tuple[str, Any, list[str]], url: str) -> AsyncIterator[Caller]:
    _, connect, driver = way
    if (driver == ["aiosqlite"] or connect is aiosqlite_connection) and find_spec("aiosqlite") is None:
        pytest.skip("aiosqlite is not installed")
    async with connect(url, *driver) as caller:
        yield caller


@pytest.fixture
def bill(app: App) -> Definition[[int], int]:
    @app.job(queue="bills")
    async def bill(order: int) -> int:
        return order

    return bill


async def exists(app: App, job_id: str) -> bool:
    try:
        await app.job_handle(job_id).get()
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("way", SYNC + ASYNC)
class TestCommitAndRollback:
    async def test_the_job_exists_only_after_the_caller_commits(
        self, app: App, bill: Definition[[int], int], caller: Caller
    ) -> None:
        await caller.run("SELECT 1")
        await caller.run(ORDER)
        job = await bill.options(connection=caller.connection).enqueue(1)
        assert not await exists(app, job.id)
        await caller.commit()
        assert ((await job.get()).queue, await drained(app), await job.result(60)) == ("bills", 1, 1)

    @pytest.mark.parametrize("first", ["ours", "theirs"])
    async def test_the_job_does_not_exist_after_the_caller_rolls_back(
        self, app: App, bill: Definition[[int], int], caller: Caller, first: str
    ) -> None:
        """Also when nothing else has happened in that transaction yet."""
        if first == "theirs":
            await caller.run(ORDER)
        jobs = [
            await bill.options(connection=caller.connection).enqueue(1),
            *await bill.options(connection=caller.connection).enqueue_many([{"order": 2}, {"order": 3}]),
        ]
        await caller.roll_back()
        assert [await exists(app, job.id) for job in jobs] == [False] * 3

        again = await bill.enqueue(4)
        assert (await drained(app), await again.result(60)) == (1, 4)

    async def test_an_invalid_request_leaves_the_transaction_usable(
        self, app: App, bill: Definition[[int], int], caller: Caller
    ) -> None:
        await caller.run(ORDER)
        within = bill.options(connection=caller.connection)
        with pytest.raises(Invalid):
            await within.enqueue("1")  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            await within.options(queue="\n").enqueue(1)
        job = await within.enqueue(1)
        await caller.commit()
        assert await exists(app, job.id)
        assert await jobs_in(app) == 1

    async def test_an_idempotency_key_applies_in_the_callers_transaction(
        self, app: App, bill: Definition[[int], int], caller: Caller
    ) -> None:
        keyed = bill.options(idempotency_key="order-1")
        first = await keyed.options(connection=caller.connection).enqueue(1)
        await caller.commit()
        again = await keyed.options(connection=caller.connection).enqueue(1)
        assert (first.id, first.existed, again.existed) == (again.id, False, True)


@pytest.mark.parametrize("way", [way for way in ASYNC if way.id != "asyncpg_pool"])  # that one has one transaction
class TestCancelled:
    async def test_a_cancelled_enqueue_leaves_no_job_and_a_usable_connection(
        self, app: App, bill: Definition[[int], int], caller: Caller
    ) -> None:
        """F42, K37: it is the caller's transaction, and the caller's to roll back."""
        await bill.enqueue(0)
        for tenths in range(30):
            enqueueing = asyncio.create_task(bill.options(connection=caller.connection).enqueue(1))
            await asyncio.sleep(tenths / 10_000)
            enqueueing.cancel()
            await asyncio.gather(enqueueing, return_exceptions=True)
            await caller.roll_back()
        again = await bill.options(connection=caller.connection).enqueue(2)
        await caller.commit()
        assert await exists(app, again.id)
        assert await jobs_in(app) == 2


@pytest.mark.parametrize("way", SYNC)
class TestFromSyncCode:
    """In the thread that the connection belongs to."""

    async def test_sync_enqueue_commits_and_rolls_back_with_the_transaction(
        self, app: App, bill: Definition[[int], int], caller: Caller
    ) -> None:
        within = bill.options(connection=caller.connection)
        await caller.run(ORDER)
        lost = [within.enqueue_sync(1), *within.enqueue_many_sync([{"order": 2}])]
        await caller.roll_back()
        kept = [within.enqueue_sync(3), *within.enqueue_many_sync([{"order": 4}])]
        assert not await exists(app, kept[0].id)
        await caller.commit()
        assert [await exists(app, job.id) for job in lost + kept] == [False, False, True, True]


class TestWrongConnections:
    @pytest.fixture
    async def app(self, store_url: str) -> AsyncIterator[App]:
        await migrate(store_url)
        app = App(Settings(database_url=store_url))
        yield app
        app.close_sync()
        await app.close()

    async def test_a_connection_to_another_database_is_refused(
        self, app: App, store_url: str, postgres_server_url: str
    ) -> None:
        @app.job()
        async def bill(order: int) -> None: ...

        class Base(DeclarativeBase): ...

        engine = sqlalchemy.create_engine("sqlite://")
        here = "SQLite" if store_url.startswith("sqlite") else "PostgreSQL"
        other: Any = sqlite3.connect(":memory:")
        session = Session(engine)
        if here == "SQLite":
            other = await asyncpg.connect(postgres_server_url)
            session = Session(sqlalchemy.create_engine(of_sqlalchemy("psycopg", postgres_server_url)))
        wrong = [(object(), "cannot"), ("url", "cannot"), (engine, "cannot"), (Base(), "cannot")]
        for connection, says in [*wrong, (other, f"the jobs are in {here}"), (session, f"the jobs are in {here}")]:
            with pytest.raises(Invalid, match=says) as refused:
                await bill.options(connection=connection).enqueue(1)
            assert refused.value.code == "invalid_connection"
        assert await jobs_in(app) == 0
        await other.close() if here == "SQLite" else other.close()
        session.close()
        engine.dispose()
        if session.bind is not None:
            session.bind.dispose()  # type: ignore[union-attr]

    @pytest.mark.postgres
    async def test_an_async_connection_cannot_be_used_from_sync_code(self, fresh_postgres_url: str) -> None:
        app = App(Settings(database_url=fresh_postgres_url))

        @app.job()
        async def bill(order: int) -> None: ...

        for connect, *driver in ((asyncpg_connection,), (asyncpg_pool,), (async_session, "asyncpg")):
            async with connect(fresh_postgres_url, *driver) as caller:  # type: ignore[operator]
                with pytest.raises(Invalid, match="belongs to its event loop") as refused:
                    bill.options(connection=caller.connection).enqueue_sync(1)
                assert refused.value.code == "invalid_connection"
                await caller.roll_back()
        app.close_sync()

    async def test_a_sqlite_connection_of_another_thread_is_refused(self, fresh_sqlite_url: str) -> None:
        await migrate(fresh_sqlite_url)
        app = App(Settings(database_url=fresh_sqlite_url))

        @app.job()
        async def bill(order: int) -> None: ...

        connection = sqlite3.connect(sqlite_path(fresh_sqlite_url))
        caught: list[BaseException] = []

        def elsewhere() -> None:
            try:
                bill.options(connection=connection).enqueue_sync(1)
            except HoldfastError as error:
                caught.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "same thread" in str(caught[0])
        connection.close()
        app.close_sync()


class TestSqliteWriteLock:
    """SQLite has one write lock, and the caller may hold it when the app has not opened anything yet."""

    async def test_the_first_enqueue_does_not_wait_for_the_callers_write_lock(self, fresh_sqlite_url: str) -> None:
        await migrate(fresh_sqlite_url)
        app = App(Settings(database_url=fresh_sqlite_url))

        @app.job(queue="bills", max_attempts=9)
        async def bill(order: int) -> None: ...

        connection = sqlite3.connect(sqlite_path(fresh_sqlite_url))
        connection.execute(ORDERS)
        connection.execute(ORDER)  # from here on no other connection can write
        async with asyncio.timeout(60):
            first = await bill.options(connection=connection).enqueue(1)
            second = bill.options(connection=connection).enqueue_sync(2)
        connection.commit()
        found = [await job.get() for job in (first, second)]
        assert [(job.queue, job.max_attempts) for job in found] == [("bills", 9)] * 2
        connection.close()
        app.close_sync()
        await app.close()

    async def test_job_types_declared_in_a_rolled_back_transaction_are_declared_again(
        self, fresh_sqlite_url: str
    ) -> None:
        await migrate(fresh_sqlite_url)
        app = App(Settings(database_url=fresh_sqlite_url))

        @app.job(queue="bills")
        async def bill(order: int) -> None: ...

        connection = sqlite3.connect(sqlite_path(fresh_sqlite_url))
        await bill.options(connection=connection).enqueue(1)
        connection.rollback()
        assert (await (await bill.enqueue(2)).get()).queue == "bills"
        connection.close()
        await app.close()
