"""A commit that its synchronous standby has not confirmed is never reported as success (K44)."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import Conflict, OutcomeUnknown
from holdfast.ids import Ids
from holdfast.model import NewJob
from holdfast.store import Tx, open_store
from holdfast.store.migrate import migrate
from holdfast.store.queries import Query
from tests.servers.postgres import running
from tests.worker.in_process import until

pytestmark = pytest.mark.postgres
PATIENCE_SECONDS = 60.0
SYNCHRONOUS = ["synchronous_commit=on", "lc_messages=C"]


@pytest.fixture
async def server() -> AsyncIterator[tuple[Engine, Any, str]]:
    """An engine, an administrator's connection that itself waits for no standby, and the URL."""
    with running(settings=SYNCHRONOUS) as postgres:
        await migrate(postgres.dsn())
        admin = await asyncpg.connect(postgres.dsn())
        await admin.execute("SET synchronous_commit = local")
        engine = Engine(await open_store(postgres.dsn(), Clock(), Ids()))
        await engine.create(NewJob(type="t"))  # everything that a job of this type needs is there
        yield engine, admin, postgres.dsn()
        await engine.close()
        await admin.close()


async def require_standby(admin: Any, name: str) -> None:
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await admin.execute("SELECT pg_reload_conf()")


WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def held_up(admin: Any, act: Callable[[], Awaitable[Any]]) -> tuple[asyncio.Future[Any], int]:
    """The first call that waits for the standby, and its server process: a reload takes a moment to apply."""
    while True:
        acting = asyncio.ensure_future(act())
        await until(lambda acting=acting: seen(admin, acting), seconds=PATIENCE_SECONDS)
        if not acting.done():
            return acting, await admin.fetchval(WAITING)


async def seen(admin: Any, acting: asyncio.Future[Any]) -> bool:
    return acting.done() or bool(await admin.fetch(WAITING))


def keyed() -> NewJob:
    return NewJob(type="t", idempotency_key=secrets.token_hex(8))


ACTS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "one statement": lambda engine: engine.create(NewJob(type="t")),
    "a transaction": lambda engine: engine.create_many([keyed(), keyed()]),
}


@pytest.mark.parametrize("act", ACTS)
async def test_an_unconfirmed_commit_is_not_reported_as_done(server: tuple[Engine, Any, str], act: str) -> None:
    """F27: an administrator cancels the wait; the server warns, and says that it has committed."""
    engine, admin, _ = server
    await require_standby(admin, "missing_standby")
    unconfirmed, pid = await held_up(admin, lambda: ACTS[act](engine))
    await admin.execute("SELECT pg_cancel_backend($1)", pid)
    with pytest.raises(OutcomeUnknown, match="standby"):
        await unconfirmed

    await require_standby(admin, "")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await engine.create(NewJob(type="t"))  # the connection goes on as before


async def _asyncpg(url: str) -> Any:
    return await asyncpg.connect(url)


async def _psycopg(url: str) -> Any:
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


@pytest.mark.parametrize("connect", [_asyncpg, _psycopg])
async def test_an_unconfirmed_commit_on_a_callers_connection_is_not_reported_as_done(
    server: tuple[Engine, Any, str], connect: Callable[[str], Awaitable[Any]]
) -> None:
    """The caller has no transaction open, so that each create commits by itself."""
    engine, admin, url = server
    connection = await connect(url)
    try:
        await engine.create(keyed(), connection=connection)
        await require_standby(admin, "missing_standby")
        unconfirmed, pid = await held_up(admin, lambda: engine.create(keyed(), connection=connection))
        await admin.execute("SELECT pg_cancel_backend($1)", pid)
        with pytest.raises(OutcomeUnknown, match="standby"):
            await unconfirmed

        await require_standby(admin, "")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await engine.create(keyed(), connection=connection)).existed is False
    finally:
        await connection.close()


async def test_a_failure_after_an_unconfirmed_commit_does_not_affect_the_next_commit(
    server: tuple[Engine, Any, str],
) -> None:
    engine, admin, _ = server

    async def refused(tx: Tx) -> None:
        await tx.all(Query("touch", "UPDATE holdfast_lanes SET tenant = tenant RETURNING id"))
        raise Conflict("refused", code="refused")

    async def act() -> None:
        with pytest.raises(Conflict):
            await engine.store.write(refused, alone=True)

    await require_standby(admin, "missing_standby")
    unconfirmed, pid = await held_up(admin, act)
    await admin.execute("SELECT pg_cancel_backend($1)", pid)
    await unconfirmed

    await require_standby(admin, "")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await engine.create(NewJob(type="t"))
