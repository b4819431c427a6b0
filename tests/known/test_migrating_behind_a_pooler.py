"""`holdfast migrate` behind a pooler in transaction mode: its session, with its locks, outlives it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.store import migrate as migrating
from holdfast.store.migrate import migrate, migrations
from tests.conftest import administer, with_database
from tests.worker.real_databases.pgbouncer import PROGRAM, pooled

pytestmark = pytest.mark.postgres
NAMES = [migration.name for migration in migrations("postgres")]
PATIENCE_SECONDS = 60.0


@pytest.fixture
async def empty_url(postgres_server_url: str) -> AsyncIterator[str]:
    await administer(postgres_server_url, "CREATE DATABASE hf_pooled_migrate")
    yield with_database(postgres_server_url, "hf_pooled_migrate")
    await administer(postgres_server_url, "DROP DATABASE hf_pooled_migrate WITH (FORCE)")


class Kept(asyncpg.Connection):
    """To close it ends nothing: a pooler gives the session to its next client."""

    async def close(self, **_: Any) -> None:
        return


async def test_a_second_migrator_does_not_wait_for_the_session_of_the_first(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the first stayed in the pooler's session, and the second waited for it for ever."""
    kept: list[Kept] = []

    async def connect(url: str) -> Kept:
        kept.append(await asyncpg.connect(url, statement_cache_size=0, connection_class=Kept))
        return kept[-1]

    with monkeypatch.context() as an_older_release_behind_a_pooler:
        an_older_release_behind_a_pooler.setattr(
            migrating, "migrations", lambda dialect, _=(): migrations(dialect)[:-1]
        )
        an_older_release_behind_a_pooler.setattr(migrating, "_connect_postgres", connect)
        assert await migrate(empty_url) == NAMES[:-1]
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await migrate(empty_url) == NAMES[-1:]
    for connection in kept:
        connection.terminate()


@pytest.mark.skipif(PROGRAM is None, reason="there is no pgbouncer on the PATH")
async def test_migrators_behind_pgbouncer_end(empty_url: str) -> None:
    async with pooled(empty_url) as url, asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(*(migrate(url) for _ in range(3)))
        assert sorted(name for names in answers for name in names) == NAMES
        assert await migrate(url) == []
