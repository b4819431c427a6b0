"""Database errors: clients see the kind of failure, and the log has the message of PostgreSQL."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import asyncpg
import httpx2
import pytest

from holdfast.errors import StoreError
from holdfast.store.migrate import migrate
from holdfast.worker.outcomes import GIVEN_BACK_MAX, Failed, of_error
from tests.server.steps import ADMIN, Served, bearer, client_key, serving
from tests.servers.postgres import PostgresServer, running

pytestmark = pytest.mark.postgres

USER, PASSWORD, DATABASE = "clerk_17", "first-secret", "ledger_17"
Break = Callable[[PostgresServer], Awaitable[None]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running() as server:
        rules = server.directory / "data/pg_hba.conf"
        rules.write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        yield server


async def administer(postgres: PostgresServer, *statements: str) -> None:
    connection = await asyncpg.connect(postgres.dsn())
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


@asynccontextmanager
async def guarded_server(postgres: PostgresServer) -> AsyncIterator[Served]:
    """It logs in with a password, to a database of its own."""
    await administer(
        postgres,
        f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'",
        f"CREATE DATABASE {DATABASE} OWNER {USER}",
        "SELECT pg_reload_conf()",
    )
    url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{postgres.port}/{DATABASE}"
    try:
        await migrate(url)
        async with serving(url) as served:
            yield served
    finally:
        if not postgres.is_running:
            postgres.start()
        await administer(postgres, f"DROP DATABASE {DATABASE} WITH (FORCE)", f"DROP ROLE {USER}")


CUT = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'"


async def change_password(postgres: PostgresServer) -> None:
    await administer(postgres, f"ALTER ROLE {USER} PASSWORD 'another'", CUT)


async def allow_no_connections(postgres: PostgresServer) -> None:
    await administer(postgres, f"ALTER ROLE {USER} CONNECTION LIMIT 0", CUT)


async def close_database(postgres: PostgresServer) -> None:
    await administer(postgres, f"ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS false", CUT)


async def take_rights_away(postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(postgres.dsn(DATABASE))
    await connection.execute("ALTER TABLE holdfast_jobs OWNER TO postgres")
    await connection.execute("ALTER TABLE holdfast_keys OWNER TO postgres")
    await connection.close()


async def stop_server(postgres: PostgresServer) -> None:
    postgres.stop()


async def wait_for_error(postgres: PostgresServer, served: Served, expected: str) -> StoreError:
    """A connection that was being opened at the moment of the fault may still work: it is ended, too."""
    async with asyncio.timeout(60):
        while True:
            try:
                await served.engine.reads.page(limit=1)
            except StoreError as error:
                if expected in str(error):
                    return error
            else:
                await administer(postgres, CUT)


async def until_refused(postgres: PostgresServer, ask: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """By way of a connection that was being opened at the moment of the fault, a request may still succeed."""
    async with asyncio.timeout(60):
        while (answer := await ask()).is_success:
            await administer(postgres, CUT)
        return answer


@pytest.mark.parametrize(
    ("fault", "kind", "logged"),
    [
        (change_password, "authentication failed", f'failed for user "{USER}"'),
        (allow_no_connections, "too many connections", f'for role "{USER}"'),
        (close_database, "does not allow it", f'database "{DATABASE}" is not currently accepting connections'),
        (take_rights_away, "lacks a permission", "permission denied for table"),
        (stop_server, "cannot be reached", "127.0.0.1"),
    ],
)
async def test_a_client_error_contains_neither_database_address_nor_user(
    postgres: PostgresServer, fault: Break, kind: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast.server")
    async with guarded_server(postgres) as served:
        known = bearer(await client_key(served, "a"))
        await fault(postgres)
        refused = await wait_for_error(postgres, served, logged)
        asked = (
            lambda: served.http.get("/api/admin/jobs", headers=ADMIN),
            lambda: served.http.get("/jobs", headers=known),
            lambda: served.http.post("/jobs", json={"jobType": "echo"}, headers=known),
        )
        answers = [await until_refused(postgres, ask) for ask in asked]
    for answer in answers:
        assert answer.status_code == 503
        assert kind in answer.json()["detail"]
    failed = of_error(refused, {}, given_back=GIVEN_BACK_MAX)
    assert isinstance(failed, Failed)
    assert kind in failed.message
    heard = "\n".join([*(answer.text for answer in answers), failed.message])
    for hidden in (USER, DATABASE, "127.0.0.1", str(postgres.port), PASSWORD):
        assert hidden not in heard
    assert logged in caplog.text
    assert PASSWORD not in caplog.text
