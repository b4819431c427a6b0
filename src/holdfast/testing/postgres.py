"""A temporary PostgreSQL database for a test: a migrated copy of a template, dropped afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.settings import plain_url
from holdfast.store.migrate import migrate

T = TypeVar("T")


@contextlib.contextmanager
def copy_of(url: str) -> Iterator[str]:
    """The URL of the copy. It has the tables and rows of the original, which is not changed."""
    url = plain_url(url)
    name = f"holdfast_test_{Ids().bits(64):016x}"
    _run(_create(url, name))
    try:
        copy = _with_database(url, name)
        _run(migrate(copy))
        yield copy
    finally:
        _run(_administer(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def _create(url: str, name: str) -> None:
    template = unquote(urlsplit(url).path[1:]) or "postgres"
    quoted = '"' + template.replace('"', '""') + '"'
    try:
        await _administer(url, f"CREATE DATABASE {name} TEMPLATE {quoted}")
    except asyncpg.ObjectInUseError:
        raise Invalid(
            f"each test gets a copy of the database {template}, and it cannot be copied while others are connected to "
            "it; close their connections, and connect your own code to `jobs.database_url`",
            code="invalid_test_database",
        ) from None
    except asyncpg.PostgresError as error:
        raise Invalid(
            f"cannot copy the database {template} for a test: {error}", code="invalid_test_database"
        ) from None


async def _administer(url: str, statement: str) -> None:
    """Connects to another database: there must be no connection to the one that is copied."""
    connection = await asyncpg.connect(_with_database(url, _other(url)))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _other(url: str) -> str:
    return "template1" if urlsplit(url).path in ("", "/", "/postgres") else "postgres"


def _with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """In a thread with its own event loop: the test may be a coroutine."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
