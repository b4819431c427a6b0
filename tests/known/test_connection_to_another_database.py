"""`connection=` with a connection to another database that has Holdfast's tables too: refused, and both are named."""

import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from holdfast import App
from holdfast.engine import Engine
from holdfast.errors import Invalid
from holdfast.model import NewJob
from holdfast.store.migrate import migrate
from tests.conftest import administer, with_database


@pytest.fixture
async def other_postgres_url(postgres_server_url: str, postgres_template: str) -> AsyncIterator[str]:
    """On the same server, and made from the same template: even the row of its identity is the same."""
    name = f"hf_other_{secrets.token_hex(8)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    yield with_database(postgres_server_url, name)
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


def app_on(url: str) -> App:
    app = App(database_url=url)

    @app.job()
    async def echo(word: str) -> str:
        return word

    return app


def name_in(url: str) -> str:
    return urlsplit(url).path[1:]


async def jobs_in(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM holdfast_jobs"))
    finally:
        await connection.close()


@pytest.mark.postgres
async def test_a_connection_to_another_postgres_database_is_refused(
    fresh_postgres_url: str, other_postgres_url: str
) -> None:
    app = app_on(fresh_postgres_url)
    connection = await asyncpg.connect(other_postgres_url)
    async with app, connection.transaction():
        with pytest.raises(Invalid) as refused:
            await app.create([NewJob(type="echo", payload={"word": "hi"})], connection=connection)
        assert refused.value.code == "invalid_connection"
        assert name_in(other_postgres_url) in str(refused.value)
        assert name_in(fresh_postgres_url) in str(refused.value)
        assert await connection.fetchval("SELECT 1") == 1, "the caller's transaction is as it was"
    await connection.close()
    assert (await jobs_in(fresh_postgres_url), await jobs_in(other_postgres_url)) == (0, 0)


@pytest.mark.postgres
def test_sync_enqueue_refuses_another_database_and_accepts_the_right_one(
    fresh_postgres_url: str, other_postgres_url: str
) -> None:
    app = app_on(fresh_postgres_url)
    new = NewJob(type="echo", payload={"word": "hi"})
    with psycopg.connect(other_postgres_url) as wrong, pytest.raises(Invalid, match=name_in(other_postgres_url)):
        app.create_sync([new], connection=wrong)
    with psycopg.connect(fresh_postgres_url) as right:
        for _ in range(2):  # the second time it is known to be right
            app.create_sync([new], connection=right)
    app.close_sync()


@pytest.mark.postgres
async def test_a_connection_to_a_database_without_holdfast_tables_is_refused_with_the_reason(
    postgres_server_url: str, fresh_postgres_url: str
) -> None:
    app = app_on(fresh_postgres_url)
    connection = await asyncpg.connect(postgres_server_url)
    async with app, connection.transaction():
        with pytest.raises(Invalid, match="never migrated") as refused:
            await app.create([NewJob(type="echo", payload={"word": "hi"})], connection=connection)
        assert name_in(fresh_postgres_url) in str(refused.value)
        assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@pytest.mark.postgres
async def test_an_app_accepts_a_connection_to_its_replaced_database(
    postgres_server_url: str, fresh_postgres_url: str, other_postgres_url: str
) -> None:
    app = app_on(fresh_postgres_url)
    async with app:
        name = name_in(fresh_postgres_url)
        await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")
        await administer(postgres_server_url, f"CREATE DATABASE {name} TEMPLATE {name_in(other_postgres_url)}")
        connection = await asyncpg.connect(fresh_postgres_url)
        async with connection.transaction():
            await app.create([NewJob(type="echo", payload={"word": "hi"})], connection=connection)
        await connection.close()
    assert await jobs_in(fresh_postgres_url) == 1


async def test_a_connection_to_another_sqlite_file_is_refused(fresh_sqlite_url: str, tmp_path: Path) -> None:
    app = app_on(fresh_sqlite_url)
    await migrate(f"sqlite:///{tmp_path}/other.db")
    async with app:
        engine: Engine = await app.engine()
        with closing(sqlite3.connect(tmp_path / "other.db")) as other, pytest.raises(Invalid) as refused:
            await engine.create(NewJob(type="echo"), connection=other)
        assert f"{tmp_path}/other.db" in str(refused.value)
        assert f"{tmp_path}/jobs.db" in str(refused.value)
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as same:
            await app.create([NewJob(type="echo", payload={"word": "hi"})], connection=same)
