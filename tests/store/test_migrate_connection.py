"""Migrations through a connection of the caller's own: in its transaction, in whatever library it is."""

import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from holdfast import migrate_connection
from holdfast.errors import Invalid
from holdfast.store.migrate import migrations, missing, sqlite_path
from holdfast.store.migrate_connection import _statements
from tests.conftest import administer, with_database

EVERYTHING = [migration.name for migration in migrations("postgres")]


@pytest.fixture
async def empty_url(postgres_server_url: str) -> AsyncIterator[str]:
    name = f"hf_empty_{secrets.token_hex(8)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    yield with_database(postgres_server_url, name)
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


def by_sqlalchemy(url: str, migrate: Callable[[Any], Any]) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg2:"), poolclass=NullPool)
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()


def by_psycopg(url: str, migrate: Callable[[Any], Any]) -> None:
    with psycopg.connect(url) as connection:
        migrate(connection)


def by_psycopg2(url: str, migrate: Callable[[Any], Any]) -> None:
    with closing(psycopg2.connect(url)) as connection, connection:
        migrate(connection)


@pytest.mark.postgres
@pytest.mark.parametrize("by", [by_sqlalchemy, by_psycopg, by_psycopg2])
async def test_migrations_commit_and_roll_back_with_the_callers_transaction(
    empty_url: str, by: Callable[[str, Callable[[Any], Any]], None]
) -> None:
    def and_fail(connection: Any) -> None:
        migrate_connection(connection)
        raise RuntimeError("the revision fails")

    with pytest.raises(RuntimeError):
        by(empty_url, and_fail)
    assert len(await missing(empty_url)) == len(EVERYTHING)
    applied: list[list[str]] = []
    by(empty_url, lambda connection: applied.append(migrate_connection(connection)))
    by(empty_url, lambda connection: applied.append(migrate_connection(connection)))
    assert applied == [EVERYTHING, []]
    assert await missing(empty_url) == []


@pytest.mark.postgres
async def test_migrations_run_through_an_async_sqlalchemy_connection(empty_url: str) -> None:
    engine = create_async_engine(empty_url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    async with engine.begin() as connection:
        assert await connection.run_sync(migrate_connection) == EVERYTHING
    await engine.dispose()
    assert await missing(empty_url) == []


async def test_migrations_run_through_a_sqlite_connection(fresh_sqlite_url: str) -> None:
    with closing(sqlite3.connect(sqlite_path(fresh_sqlite_url))) as connection, connection:
        assert migrate_connection(connection)
    assert await missing(fresh_sqlite_url) == []


def test_migrate_connection_refuses_an_object_that_is_no_connection() -> None:
    with pytest.raises(Invalid, match="cannot migrate through an object"):
        migrate_connection(object())


def test_a_semicolon_at_the_end_of_a_comment_ends_no_statement() -> None:
    script = "-- first;\nCREATE TABLE a (n int); -- and then;\nINSERT INTO a SELECT length('--');\n"
    first, second = _statements("postgres", script)
    assert first.startswith("-- first;\nCREATE")
    assert second == "INSERT INTO a SELECT length('--');\n"
