"""Connections to a migrated database, as an operator with a SQL prompt has."""

import secrets
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.ids import Ids
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.sqlite import connect
from tests.conftest import administer, with_database
from tests.store.by_hand import ByHand, by_hand


@pytest.fixture
async def postgres(fresh_postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def empty_postgres_url(postgres_server_url: str) -> AsyncIterator[str]:
    """A database without any schema."""
    name = f"hf_empty_{secrets.token_hex(8)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    yield with_database(postgres_server_url, name)
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def sqlite(fresh_sqlite_url: str) -> AsyncIterator[sqlite3.Connection]:
    await migrate(fresh_sqlite_url)
    connection = connect(sqlite_path(fresh_sqlite_url), Ids())
    yield connection
    connection.close()


@pytest.fixture
async def db(store_url: str) -> AsyncIterator[ByHand]:
    async with by_hand(store_url) as session:
        yield session
